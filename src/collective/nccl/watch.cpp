#include "collective/nccl/watch.hpp"

#include <utility>
#include <vector>

#include "core/attempt.hpp"
#include "core/error.hpp"
#include "os/clock.hpp"
#include "os/thread.hpp"

namespace ddp::nccl {
namespace {

constexpr int64_t kLookMs = 100;
constexpr int64_t kGraceNs = 500'000'000;  // for a better cause
constexpr int64_t kLeaveMs = 1500;
constexpr size_t kMostExpected = 16;  // older work ends before newer, so a few points are enough

}  // namespace

/// The thread may outlive the group if NCCL never returns, so what it touches then is here.
struct Watch::Shared {
  Shared(const collective::TransportContext& group, const gpu::Device& own, std::shared_ptr<Communicator> one)
      : context(group), device(own), communicator(std::move(one)) {}

  struct Expected {
    gpu::Event event;
    int64_t since_ns;
  };

  collective::TransportContext context;
  const gpu::Device& device;
  std::shared_ptr<Communicator> communicator;
  int64_t trouble_since = 0;  // of the thread

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool stop = false;
  bool broken = false;
  bool ended = false;
  std::deque<Expected> expected;
  std::vector<gpu::Event> spare;

  void run();
  void look();
  [[nodiscard]] std::string late_work();
  void report(const Error& error) {
    context.control->abort(error);
    context.failure->set(error);
  }
  [[nodiscard]] std::string self() const { return context.control->member(context.control->rank()).name(); }
};

/// Text about work that does not end; empty: none. Throws what a lost GPU throws.
std::string Watch::Shared::late_work() {
  const std::lock_guard lock(mutex);
  while (!expected.empty() && expected.front().event.is_done()) {
    spare.push_back(std::move(expected.front().event));
    expected.pop_front();
  }
  if (expected.empty() || context.options.timeout_ms <= 0) return "";
  const int64_t waited_ms = (os::now_ns() - expected.front().since_ns) / 1'000'000;
  if (waited_ms < context.options.timeout_ms) return "";
  return self() + ": " + device.name() + " has not finished what was enqueued " + std::to_string(waited_ms) +
         " ms ago (timeout_ms); a kernel of this or another rank does not end, or the ranks made different calls";
}

void Watch::Shared::look() {
  if (const std::string late = late_work(); !late.empty()) report(Error(DDP_ERROR_TIMED_OUT, late));
  const std::string trouble = communicator->trouble();
  if (!trouble.empty() && trouble_since == 0) trouble_since = os::now_ns();
  if (!trouble.empty() && os::now_ns() - trouble_since >= kGraceNs)
    report(Error(DDP_ERROR_PEER_FAILED, self() + ": NCCL lost a connection to another rank: " + trouble));
}

void Watch::Shared::run() {
  static_cast<void>(device.table().set_device(device.index()));
  static_cast<void>(device.table().relax_capture());
  std::unique_lock lock(mutex);
  while (!stop && !broken) {
    changed.wait_for(lock, std::chrono::milliseconds(kLookMs), [this] { return stop || broken; });
    if (stop || broken) break;
    lock.unlock();
    // Without memory for the sentence: the next look says it.
    static_cast<void>(
        try_to([this] { on_error<Error>([this] { look(); }, [this](const Error& error) { report(error); }); }));
    lock.lock();
  }
  if (broken) {
    lock.unlock();
    communicator->abort();
    lock.lock();
  }
  ended = true;
  lock.unlock();
  changed.notify_all();
}

Watch::Watch(const collective::TransportContext& context, const gpu::Device& device,
             std::shared_ptr<Communicator> communicator)
    : shared_(std::make_shared<Shared>(context, device, std::move(communicator))) {
  thread_ = os::start_thread("ddp-nccl-watch", [shared = shared_] { shared->run(); });
}

void Watch::stop() noexcept {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stop = true;
  }
  shared_->changed.notify_all();
  await_end(kLeaveMs);
}

Watch::~Watch() {
  stop();
  bool ended = false;
  {
    const std::lock_guard lock(shared_->mutex);
    ended = shared_->ended;
  }
  if (ended)
    thread_.join();
  else
    thread_.detach();  // inside NCCL, and it owns what it uses
}

void Watch::expect_end_of(void* stream) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->expected.size() >= kMostExpected) return;
  if (shared_->spare.empty()) shared_->spare.emplace_back(shared_->device);
  shared_->spare.back().record(stream);
  shared_->expected.push_back(Shared::Expected{std::move(shared_->spare.back()), os::now_ns()});
  shared_->spare.pop_back();
}

void Watch::wake() noexcept {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->broken = true;
  }
  shared_->changed.notify_all();
}

void Watch::await_end(int64_t limit_ms) noexcept {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait_for(lock, std::chrono::milliseconds(limit_ms), [this] { return shared_->ended; });
}

}  // namespace ddp::nccl
