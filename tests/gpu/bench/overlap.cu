// SPDX-License-Identifier: Apache-2.0
// How much of the communication hides behind the backward, with one GPU: libddp as it is, two ranks that are processes, and
// the module of wire.cu in the place of the real one, whose all-reduce is a kernel that takes as long as a wire of a given
// rate would. Rank 0 computes; rank 1 marks its gradients at once and has no work on the GPU (gradients are summed, because
// a mean is a kernel for each bucket), so the two do not disturb each other. Rates are set so that the wire is busy for 30,
// 60 and 90 % of the backward.
// It measures libddp's order, streams and packing, and the SMs that communication takes; it does not show NCCL's speed.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "gpu/bench/network.hpp"
#include "os/module_files.hpp"

namespace ddp::bench {
namespace {

constexpr int kWarmUp = 5;
constexpr double kBusy[] = {0.3, 0.6, 0.9};
constexpr int32_t kBlocks[] = {8, 24};
constexpr int64_t kBucketBytes = int64_t{8} << 20; /* a matrix each, so that the last bucket is a small part of all */

using SetWire = void (*)(double, int32_t);

SetWire find_wire() {
  for (const std::string& file : ddp::os::module_candidates("libddp_cuda.so")) {
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    return reinterpret_cast<SetWire>(dlsym(library, "ddp_wire_set"));
  }
  return nullptr;
}

ddp_group* join(const std::string& place, int32_t rank) {
  ddp_group_options options;
  MUST(ddp_group_options_init(&options, sizeof options));
  options.rank = rank;
  options.world_size = 2;
  options.device_index = 0;
  ddp_group* group = nullptr;
  MUST(ddp_group_create(place.c_str(), &options, &group));
  return group;
}

/// Passes of rank 1: everything is ready at once.
void mark_all(Lent& lent, int passes) {
  for (int k = 0; k < passes; ++k) {
    MUST(ddp_model_begin_backward(lent.model, DDP_PASS_REDUCE));
    for (auto p = static_cast<int32_t>(lent.grads.size()); p-- > 0;) MUST(ddp_model_mark_ready(lent.model, p, lent.stream));
    MUST(ddp_model_end_backward(lent.model, lent.stream));
  }
}

struct Times {
  double backward, exposed;
};

Times measure(Lent& lent, int repetitions) {
  Stopwatch backward, exposed;
  std::vector<double> all[2];
  for (int k = -kWarmUp; k < repetitions; ++k) {
    MUST(cudaStreamSynchronize(lent.stream));
    backward.start(lent.stream);
    lent.backward_only([&] {
      backward.stop(lent.stream);
      exposed.start(lent.stream);
    });
    exposed.stop(lent.stream);
    const double after = exposed.ms();
    if (k < 0) continue;
    all[0].push_back(backward.ms());
    all[1].push_back(after);
  }
  return {median(all[0]), median(all[1])};
}

/// Bytes of the bucket that is sent last, which nothing can hide: in the last line of the plan.
double last_bucket_bytes(const Lent& lent) {
  std::vector<char> text(1 << 16);
  MUST(ddp_model_describe_plan(lent.model, text.data(), static_cast<int64_t>(text.size()), nullptr));
  const std::string plan(text.data());
  long long bytes = 0;
  (void)std::sscanf(plan.c_str() + plan.rfind("bucket "), "bucket %*d: %lld bytes", &bytes);
  return static_cast<double>(bytes);
}

void measure_way(Report& report, const Options& options, Lent& lent, SetWire set_wire, const char* way) {
  const int repetitions = options.repetitions(50);
  set_wire(0, 8);
  const Times alone = measure(lent, repetitions);
  ddp_model_stats stats{};
  stats.struct_size = sizeof stats;
  MUST(ddp_model_get_stats(lent.model, &stats));
  const auto bytes = static_cast<double>(stats.gradient_bytes);
  report.add({std::string("overlap.") + way + ".alone", "backward without a wire", alone.backward, "ms", "", -1,
              std::to_string(stats.buckets) + " buckets"});
  for (const double busy : kBusy)
    for (const int32_t blocks : kBlocks) {
      const double wire_ms = busy * alone.backward;
      set_wire(bytes / (wire_ms * 1e6), blocks);
      const Times times = measure(lent, repetitions);
      const double last_ms = wire_ms * last_bucket_bytes(lent) / bytes, hidden = 1 - times.exposed / wire_ms;
      const double limit = 1.05 * last_ms;
      char id[64], note[160];
      std::snprintf(id, sizeof id, "overlap.%s.%.0f.%d", way, 100 * busy, blocks);
      std::snprintf(note, sizeof note, "exposed %.3f ms, the last bucket alone %.3f; %d blocks slow the backward by %.1f %%",
                    times.exposed, last_ms, blocks, 100 * (times.backward / alone.backward - 1));
      report.add({id,
                  "communication hidden, the wire busy for " + std::to_string(static_cast<int>(100 * busy + 0.5)) +
                      " % of the backward",
                  100 * hidden, "%", "90 %; exposed: last bucket + 5 %", hidden >= 0.9 && times.exposed <= limit, note});
    }
}

/// Both ranks do the same passes in the same order.
void run_rank(int32_t rank, const std::string& place, Report& report, const Options& options) {
  const SetWire set_wire = find_wire();
  if (set_wire == nullptr) {
    std::fprintf(stderr, "the module that was found has no wire: DDP_MODULE_PATH must name the folder of the wire module\n");
    std::exit(1);
  }
  ddp_group* const group = join(place, rank);
  const cudaStream_t stream = new_stream();
  const Network net(24, 512);
  for (const Way way : {Way::kView, Way::kCopy}) {
    /* Sums, and libddp's memory on rank 1, so that rank 1 has no kernel at all: kernels of two processes would take
     * turns. */
    Lent lent(group, net, rank == 0 ? way : Way::kView, stream, kBucketBytes, DDP_SUM);
    if (rank == 0)
      measure_way(report, options, lent, set_wire, way == Way::kView ? "view" : "copy");
    else
      mark_all(lent, (kWarmUp + options.repetitions(50)) * static_cast<int>(1 + std::size(kBusy) * std::size(kBlocks)));
    MUST(cudaStreamSynchronize(stream));
  }
  MUST(ddp_group_barrier(group));
  ddp_group_destroy(group);
}

}  // namespace

void measure_overlap(Report& report, const Options& options) {
  char folder[] = "/tmp/ddp-overlap-XXXXXX";
  if (mkdtemp(folder) == nullptr) return;
  const std::string place = std::string("file://") + folder + "/meet";
  const pid_t child = fork(); /* before anything here knows of CUDA */
  if (child == 0) {
    run_rank(1, place, report, options);
    std::_Exit(0);
  }
  run_rank(0, place, report, options);
  int status = 0;
  (void)waitpid(child, &status, 0);
  if (status != 0) std::fprintf(stderr, "rank 1 ended with status %d\n", status);
  (void)unlink((std::string(folder) + "/meet").c_str());
  (void)rmdir(folder);
}

}  // namespace ddp::bench
