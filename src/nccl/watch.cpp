// SPDX-License-Identifier: Apache-2.0
#include "nccl/watch.hpp"

#include <optional>
#include <utility>
#include <vector>

#include "bootstrap/failure.hpp"
#include "control/breaking.hpp"
#include "core/attempt.hpp"
#include "core/error.hpp"
#include "os/clock.hpp"
#include "os/thread.hpp"

namespace ddp::nccl {
namespace {

constexpr int64_t kPauseMs = 100;
constexpr int64_t kGraceNs = 500'000'000;  // for a better cause
constexpr int64_t kLeaveMs = 1500;
constexpr size_t kMostExpected = 16;  // older work ends before newer, so a few points are enough

}  // namespace

/// The thread may outlive the group if NCCL never returns, so all that it touches then belongs to it. The group it reaches
/// through `group` alone, which is NULL once the group has left it behind.
struct Watch::Shared {
  Shared(const collective::TransportContext& of, std::shared_ptr<const gpu::Device> own, std::shared_ptr<Communicator> one)
      : self(of.control->member(of.control->rank()).name()),
        timeout_ms(of.options.timeout_ms),
        device(std::move(own)),
        communicator(std::move(one)),
        group(Group{of.control, of.failure}) {}

  struct Expected {
    gpu::Event event;
    int64_t since_ns;
  };

  struct Group {
    bootstrap::Control* control;
    bootstrap::Failure* failure;
  };

  const std::string self;
  const int64_t timeout_ms;
  const std::shared_ptr<const gpu::Device> device;  // of what comes below it
  const std::shared_ptr<Communicator> communicator;
  int64_t trouble_since = 0;  // of the thread

  std::mutex telling;  // guards `group`; held while the group is notified, which is quick
  std::optional<Group> group;

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool stop = false;
  bool broken = false;
  bool ended = false;
  std::deque<Expected> expected;  // only the thread takes out; the first may be looked at without the lock
  std::vector<gpu::Event> spare;

  void run();
  void look();
  [[nodiscard]] std::string late_work();
  void report(const Error& error) {
    const std::lock_guard lock(telling);
    if (!group) return;
    bootstrap::abort_settled(*group->control, *group->failure, error);
  }
  /// A rank has left in good order, and no enqueued work has to finish: a failure of NCCL then does not matter.
  [[nodiscard]] bool is_left_in_order() {
    const std::lock_guard lock(telling);
    if (!group || !group->failure->broken() || group->failure->woken()) return false;
    const std::lock_guard looking(mutex);
    return expected.empty();
  }
  void leave_behind() {
    const std::lock_guard lock(telling);
    group.reset();
  }
};

/// Text about work that does not end; empty: none. Throws what a lost GPU throws.
std::string Watch::Shared::late_work() {
  const auto first = [this]() -> const Expected* {
    const std::lock_guard lock(mutex);
    return expected.empty() ? nullptr : &expected.front();
  };
  const Expected* oldest = first();
  while (oldest != nullptr && oldest->event.is_done()) {  // without the lock: a runtime may block while NCCL does
    {
      const std::lock_guard lock(mutex);
      spare.push_back(std::move(expected.front().event));
      expected.pop_front();
    }
    oldest = first();
  }
  if (oldest == nullptr || timeout_ms <= 0) return "";
  const int64_t waited_ms = (os::now_ns() - oldest->since_ns) / 1'000'000;
  if (waited_ms < timeout_ms) return "";
  return self + ": " + device->name() + " has not finished what was enqueued " + std::to_string(waited_ms) +
         " ms ago (timeout_ms); a kernel of this or another rank does not end, or the ranks made different calls";
}

void Watch::Shared::look() {
  if (const std::string late = late_work(); !late.empty()) report(Error(DDP_ERROR_TIMED_OUT, late));
  const std::string trouble = is_left_in_order() ? "" : communicator->trouble();
  if (!trouble.empty() && trouble_since == 0) trouble_since = os::now_ns();
  if (!trouble.empty() && os::now_ns() - trouble_since >= kGraceNs)
    report(Error(DDP_ERROR_PEER_FAILED, self + ": NCCL lost a connection to another rank: " + trouble));
}

void Watch::Shared::run() {
  static_cast<void>(device->table().set_device(device->index()));
  static_cast<void>(device->table().relax_capture());
  std::unique_lock lock(mutex);
  while (!stop && !broken) {
    changed.wait_for(lock, std::chrono::milliseconds(kPauseMs), [this] { return stop || broken; });
    if (stop || broken) break;
    lock.unlock();
    // Without memory for the text: the next look reports it.
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

Watch::Watch(const collective::TransportContext& context, std::shared_ptr<const gpu::Device> device,
             std::shared_ptr<Communicator> communicator)
    : shared_(std::make_shared<Shared>(context, std::move(device), std::move(communicator))) {
  thread_ = os::start_thread("ddp-nccl-watch", [shared = shared_] { shared->run(); });
}

bool Watch::stop() noexcept {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stop = true;
  }
  shared_->changed.notify_all();
  left_behind_ = !await_end(kLeaveMs);
  return !left_behind_;
}

Watch::~Watch() {
  const bool ended = stop();
  shared_->leave_behind();
  if (ended)
    thread_.join();
  else
    thread_.detach();  // inside NCCL, and it owns what it uses
}

void Watch::expect_end_of(void* stream) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->expected.size() >= kMostExpected) return;
  if (shared_->spare.empty()) shared_->spare.emplace_back(*shared_->device);
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

bool Watch::await_end(int64_t limit_ms) noexcept {
  if (left_behind_) return false;  // once is enough
  std::unique_lock lock(shared_->mutex);
  return shared_->changed.wait_for(lock, std::chrono::milliseconds(limit_ms), [this] { return shared_->ended; });
}

}  // namespace ddp::nccl
