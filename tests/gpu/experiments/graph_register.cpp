// SPDX-License-Identifier: Apache-2.0
// A pass is captured into a CUDA graph while the last rank is late, or is killed. NCCL registers by itself what a captured
// collective works on, and with NVLS the hosts of a node's ranks meet for that: marks must not wait there, and a dead rank
// must be noticed in time. On a GPU that ranks share there is no NVLS; then this shows that capturing works at all.
#include <dlfcn.h>

#include "gpu/experiments/experiments.hpp"
#include "gpu/support/trainer.hpp"
#include "gpu/support/world.hpp"

namespace ddp::experiments {
namespace {

using namespace ddp::test::card;

constexpr double kMarkMs = 100;
constexpr double kDeadMs = 1000;

/// A capture of a stream, by the driver, because it is the program's business and no part of the module's table.
class Capture {
 public:
  explicit Capture(void* stream) : stream_(stream) {
    if (is_fake()) {
      expect(control<int32_t(void*)>("ddp_fake_gpu_begin_capture")(stream) != 0, "the capture begins");
      return;
    }
    constexpr int kThreadLocal = 1;
    expect(function<int(void*, int)>("cuStreamBeginCapture_v2")(stream, kThreadLocal) == 0, "the capture begins");
  }
  /// Did it hold until here?
  [[nodiscard]] bool end() {
    void* graph = nullptr;
    if (is_fake()) {
      graph = control<void*(void*)>("ddp_fake_gpu_end_capture")(stream_);
      if (graph != nullptr) control<void(void*)>("ddp_fake_gpu_destroy_graph")(graph);
      return graph != nullptr;
    }
    const int code = function<int(void*, void**)>("cuStreamEndCapture")(stream_, &graph);
    if (graph != nullptr) (void)function<int(void*)>("cuGraphDestroy")(graph);
    return code == 0 && graph != nullptr;
  }

 private:
  template <class Function>
  static Function* function(const char* name) {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    void* const found = driver == nullptr ? nullptr : dlsym(driver, name);
    if (found == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
    return reinterpret_cast<Function*>(found);
  }
  void* stream_;
};

/// Marks all of it; milliseconds.
double mark_all(Trainer& t) {
  const auto start = Clock::now();
  for (int32_t p = t.count(); p-- > 0;) {
    t.copy_grad(static_cast<size_t>(p), t.stream.get());
    OK(ddp_model_mark_ready(t.model.get(), p, t.stream.get()));
  }
  return ms_since(start);
}

/// The last rank begins its pass `late_ms` after the others. The lines are rank 0's.
void capture_with_a_late_rank(Report& report, const Rank& at, bool own_gradients, int late_ms) {
  Plan plan;
  plan.place = at.place;
  plan.rank = at.rank;
  plan.own_gradients = own_gradients;
  Trainer t(at.group, plan);
  t.pass(0);
  t.put_aside(1);
  OK(ddp_group_barrier(at.group));
  if (at.rank == at.size - 1) std::this_thread::sleep_for(std::chrono::milliseconds(late_ms));
  at.place.make_current();
  Capture capture(t.stream.get());
  const auto start = Clock::now();
  OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
  const double marks_ms = mark_all(t);
  OK(ddp_model_end_backward(t.model.get(), t.stream.get()));
  const double pass_ms = ms_since(start);
  expect(capture.end(), "the capture ends well");
  if (at.rank == 0) {
    const std::string what = own_gradients ? ", through a copy" : ", in place";
    report.figure("captured pass, the last rank 1 s late" + what, pass_ms, "ms");
    report.figure("... of that, its marks", marks_ms, "ms");
  }
  if (!is_fake()) expect(at.rank != 0 || marks_ms < kMarkMs, "the marks took " + std::to_string(marks_ms) + " ms");
  OK(ddp_group_barrier(at.group));
}

/// A pass that the last rank does not come to. When the end of the pass failed, and how.
std::string capture_until_killed(const Folder& folder, int rank, int size, Reporter& say) {
  const Place place = is_fake() ? kCpu : settle_in_process(rank, size);  // the fake GPU knows only threads
  const GroupHandle group = join_world(folder, rank, size, place);
  Plan plan;
  plan.place = place;
  plan.rank = rank;
  Trainer t(group.get(), plan);
  t.pass(0);
  t.put_aside(1);
  OK(ddp_group_barrier(group.get()));
  std::unique_ptr<Capture> capture;
  if (place.on_gpu()) capture = std::make_unique<Capture>(t.stream.get());
  OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
  say.say("captures");
  if (rank == size - 1)
    for (;;) pause();
  (void)mark_all(t);
  const ddp_status status = ddp_model_end_backward(t.model.get(), t.stream.get());
  char text[64];
  std::snprintf(text, sizeof text, "%.3f %s ", now_ms(), ddp_status_name(status));
  const std::string said = std::string(text) + ddp_last_error();
  if (capture != nullptr) (void)capture->end();
  return said;
}

void kill_in_a_capture(Report& report) {
  const Folder folder;
  constexpr int kSize = 2;
  Procs procs(kSize, [&](int rank, Reporter& say) { return capture_until_killed(folder, rank, kSize, say); });
  for (int rank = 0; rank < kSize; ++rank) procs.wait_for(rank, "captures", 60'000);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const double killed = now_ms();
  procs.signal(kSize - 1, SIGKILL);
  const ProcResult& result = procs.wait_one(0, 60'000);
  double when = 0;
  char status[64] = "";
  if (result.exit_code != 0 || std::sscanf(result.text.c_str(), "%lf %63s", &when, status) != 2)
    throw std::runtime_error("rank 0: " + result.describe());
  report.figure("a rank is killed in a captured pass", when - killed, "ms");
  report.verdict("... seen within 1 s, and named",
                 when - killed <= kDeadMs && std::string(status) == "DDP_ERROR_PEER_FAILED" &&
                     result.text.find("rank 1") != std::string::npos,
                 result.text.substr(result.text.find(' ') + 1));
}

}  // namespace

void capture_beside_others(Report& report, const Options& options) {
  need_world();
  const int late_ms = is_fake() ? 100 : 1000;
  for (const bool own_gradients : {false, true}) {
    if (options.quick && own_gradients) continue;
    run_world(2, [&](const Rank& at) { capture_with_a_late_rank(report, at, own_gradients, late_ms); });
    report.verdict("marks of a captured pass do not wait for a late rank", true);
  }
  kill_in_a_capture(report);
}

}  // namespace ddp::experiments
