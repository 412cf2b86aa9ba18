// SPDX-License-Identifier: Apache-2.0
#include "control/local_hub.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "control/deadlock.hpp"
#include "control/gather_rounds.hpp"
#include "control/identity.hpp"
#include "control/limits.hpp"
#include "control/texts.hpp"
#include "core/attempt.hpp"
#include "os/process.hpp"
#include "os/thread.hpp"

namespace ddp::bootstrap {
namespace {

constexpr auto kLookAgain = std::chrono::milliseconds(150);

// A rank's place in the hub. Guarded by the hub's lock, except the atomics.
struct MemberSlot {
  enum class State { kFree, kPresent, kLeft };
  State state = State::kFree;
  bool gone_again = false;  // free, but a member was here
  std::function<void(const Error&)> on_failure;
  bool in_callback = false;
  uint64_t answered = 0;  // the last round with an answer
  std::vector<std::string> blobs;
  std::optional<Error> error;
  std::optional<Error> left;  // the error about this rank when there is no memory for more
  std::atomic<int64_t> pass{-1};
  std::atomic<int32_t> bucket{-1};
  std::atomic<int64_t> heard_ns{0};
  CallState calls;
  CallWatch watch;
  struct {
    Letters* letters = nullptr;                          // of the rank, while its object lives
    int32_t delivering = 0;                              // letters to it
    std::vector<std::pair<int32_t, std::string>> early;  // letters that came before that
  } post;
};

// Wait for `changed` until `deadline`; false when it has passed.
template <class Ready>
bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, const os::Deadline& deadline, Ready ready) {
  if (deadline.is_never()) {
    changed.wait(lock, ready);
    return true;
  }
  return changed.wait_for(lock, std::chrono::nanoseconds(deadline.left_ns()), ready);
}

class Hub {
 public:
  explicit Hub(int32_t size)
      : members_(static_cast<size_t>(size)), slots_(static_cast<size_t>(size)), gathers_(members_), deadlocks_(members_) {}
  ~Hub() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    if (herald_.joinable()) herald_.join();
  }
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  int32_t size() const noexcept { return static_cast<int32_t>(members_.size()); }
  const Member& member(int32_t rank) const noexcept { return members_[static_cast<size_t>(rank)]; }

  /// Returns true if the hub is complete now. Throws if the place is taken.
  bool join(int32_t rank, int32_t size_asked, int32_t world_rank) {
    const std::lock_guard lock(mutex_);
    if (size_asked != size()) throw texts::different_size(rank, size_asked, first_, size());
    MemberSlot& slot = slots_[static_cast<size_t>(rank)];
    if (slot.state != MemberSlot::State::kFree) throw texts::duplicate_rank(member(rank));
    if (present_ == 0) first_ = rank;
    Member me = this_member(rank);
    me.address = "127.0.0.1";
    me.world_rank = world_rank;
    slot.left = texts::left_group(me);
    if (present_ + 1 == size()) herald_ = os::start_thread("ddp-local", [this] { tell_all(); });
    members_[static_cast<size_t>(rank)] = std::move(me);
    slot.state = MemberSlot::State::kPresent;
    slot.heard_ns = os::now_ns();
    ++present_;
    changed_.notify_all();
    return present_ == size();
  }

  bool wait_for_all(const os::Deadline& deadline, const std::function<void()>& check) {
    std::unique_lock lock(mutex_);
    const auto all_here = [this] { return present_ == size(); };
    if (!check) return wait(changed_, lock, deadline, all_here);
    while (!deadline.passed()) {
      if (changed_.wait_for(lock, kLookAgain, all_here)) return true;
      lock.unlock();
      check();
      lock.lock();
    }
    return all_here();
  }

  /// The wait is over: give the place up and name the missing ranks; nothing if all came at the last moment.
  std::optional<Error> stand_up(int32_t rank, int64_t limit_ms, bool& empty) {
    const std::lock_guard lock(mutex_);
    if (present_ == size()) return std::nullopt;
    texts::Absent absent;
    for (int32_t r = 0; r < size(); ++r) {
      const MemberSlot& slot = slots_[static_cast<size_t>(r)];
      if (slot.state == MemberSlot::State::kFree) (slot.gone_again ? absent.gone_again : absent.never_came).push_back(r);
    }
    slots_[static_cast<size_t>(rank)].state = MemberSlot::State::kFree;
    slots_[static_cast<size_t>(rank)].gone_again = true;
    empty = --present_ == 0;
    return texts::never_came(absent, size(), limit_ms, "");
  }

  std::vector<std::string> gather(int32_t rank, std::string_view what, std::string_view mine, const os::Deadline& deadline) {
    if (mine.size() > limits::kBlobBytes) throw texts::gather_too_large(what, mine.size());
    std::unique_lock lock(mutex_);
    MemberSlot& slot = slots_[static_cast<size_t>(rank)];
    if (slot.state == MemberSlot::State::kLeft) throw texts::already_left();
    if (cause_.has_value()) throw Error(*cause_);
    slot.heard_ns = os::now_ns();
    const int64_t left_ms = deadline.left_ms();
    const int64_t at_ns = deadline.is_never() ? INT64_MAX : os::now_ns() + deadline.left_ns();
    const uint64_t sequence = gathers_.next_sequence(rank);
    slot.calls.join_gather(sequence);
    hand_out(gathers_.add(rank, what, std::string(mine), at_ns, left_ms, slot.calls.call()));
    const CallState::Waiting waiting(slot.calls, BlockedCall::Exchange::kGather, sequence);
    const auto answered = [&] { return slot.answered >= sequence; };
    if (!wait(changed_, lock, deadline, [&] { return answered() || cause_.has_value(); })) {
      time_out(at_ns);
      if (!cause_.has_value()) throw make_error(DDP_ERROR_INTERNAL, "a gather timed out but nobody is missing");
    }
    if (!answered()) throw Error(*cause_);
    if (slot.error.has_value()) throw Error(*slot.error);
    return std::move(slot.blobs);
  }

  void abort(const Error& cause, int32_t by) noexcept {
    const std::lock_guard lock(mutex_);
    if (slots_[static_cast<size_t>(by)].state == MemberSlot::State::kPresent) declare([&] { return cause; }, by);
  }

  void leave(int32_t rank, bool said_goodbye) noexcept {
    std::unique_lock lock(mutex_);
    MemberSlot& slot = slots_[static_cast<size_t>(rank)];
    if (slot.state == MemberSlot::State::kPresent) {
      slot.state = MemberSlot::State::kLeft;
      declare([&] { return said_goodbye ? texts::left_group(member(rank)) : texts::gone(member(rank)); }, rank);
    }
    slot.on_failure = nullptr;
    changed_.wait(lock, [&slot] { return !slot.in_callback; });
  }

  void on_failure(int32_t rank, std::function<void(const Error&)> fn) {
    std::unique_lock lock(mutex_);
    if (!cause_.has_value()) {
      slots_[static_cast<size_t>(rank)].on_failure = std::move(fn);
      return;
    }
    const Error cause = *cause_;
    lock.unlock();
    fn(cause);
  }

  /// NULL: when this returns, none is being delivered any more.
  void set_letters(int32_t rank, Letters* letters) {
    std::unique_lock lock(mutex_);
    MemberSlot& slot = slots_[static_cast<size_t>(rank)];
    slot.post.letters = letters;
    if (letters != nullptr)  // it has no reader yet
      for (const auto& [from, text] : std::exchange(slot.post.early, {})) letters->deliver(from, text);
    if (letters == nullptr) changed_.wait(lock, [&slot] { return slot.post.delivering == 0; });
  }

  // Whoever reads it may break the group, so it is read without the lock.
  void write_letter(int32_t from, int32_t to, const std::string& text) {
    std::unique_lock lock(mutex_);
    MemberSlot& slot = slots_[static_cast<size_t>(to)];
    Letters* const letters = slot.post.letters;
    if (letters == nullptr && slot.state == MemberSlot::State::kPresent) slot.post.early.emplace_back(from, text);
    if (letters == nullptr) return;
    ++slot.post.delivering;
    lock.unlock();
    const std::optional<Error> failed = try_to([&] { letters->deliver(from, text); });
    lock.lock();
    --slot.post.delivering;
    changed_.notify_all();
    if (failed.has_value()) throw Error(*failed);
  }

  void set_progress(int32_t rank, int64_t pass, int32_t bucket) noexcept {
    MemberSlot& slot = slots_[static_cast<size_t>(rank)];
    slot.pass.store(pass, std::memory_order_relaxed);
    slot.bucket.store(bucket, std::memory_order_relaxed);
    slot.heard_ns.store(os::now_ns(), std::memory_order_relaxed);
  }

  CallState& calls(int32_t rank) noexcept { return slots_[static_cast<size_t>(rank)].calls; }

  Whereabouts whereabouts(int32_t rank) const {
    const MemberSlot& slot = slots_[static_cast<size_t>(rank)];
    return {slot.pass.load(),    slot.bucket.load(), slot.calls.last(),           slot.calls.inside() > 0,
            slot.calls.awaits(), slot.calls.moved(), slot.calls.messages.awaits()};
  }

  std::string describe_progress(int32_t rank) const {
    const MemberSlot& slot = slots_[static_cast<size_t>(rank)];
    return texts::progress((os::now_ns() - slot.heard_ns.load()) / 1'000'000, whereabouts(rank));
  }

 private:
  // All with the lock held.
  template <class Cause>
  void declare(Cause cause, int32_t by) noexcept {
    if (cause_.has_value()) return;
    if (try_to([&] { cause_.emplace(cause()); })) cause_ = slots_[static_cast<size_t>(by)].left;
    slots_[static_cast<size_t>(by)].on_failure = nullptr;  // the breaking rank knows
    changed_.notify_all();
  }

  void hand_out(const GatherRounds::Answer& answer) {
    for (const int32_t rank : answer.to) {
      MemberSlot& slot = slots_[static_cast<size_t>(rank)];
      slot.answered = answer.sequence;
      slot.error = answer.error;
      slot.blobs = answer.blobs;
    }
    if (!answer.to.empty()) changed_.notify_all();
  }

  void time_out(int64_t at_ns) {
    const auto late = gathers_.overdue(at_ns);
    if (!late.has_value() || cause_.has_value()) return;
    std::vector<Member> missing;
    for (const int32_t rank : late->missing) missing.push_back(member(rank));
    cause_ = texts::gather_timed_out(missing, late->call, late->limit_ms, describe_progress(late->missing.front()));
    changed_.notify_all();
  }

  // What ranks wait for now.
  void look_for_deadlock() {
    for (int32_t rank = 0; rank < size(); ++rank) {
      MemberSlot& slot = slots_[static_cast<size_t>(rank)];
      if (auto news = slot.watch.look(slot.calls, os::now_ns())) deadlocks_.report(rank, std::move(news->blocked));
    }
    cause_ = deadlocks_.verdict();
    if (cause_.has_value()) changed_.notify_all();
  }

  // The hub's thread: looks for ranks that wait for each other, waits for the first cause and passes it on.
  void tell_all() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kLookAgain, [this] { return closing_ || cause_.has_value(); })) look_for_deadlock();
    if (!cause_.has_value()) return;
    const Error cause = *cause_;
    for (MemberSlot& slot : slots_) {
      const auto fn = std::exchange(slot.on_failure, nullptr);
      if (!fn) continue;
      slot.in_callback = true;
      lock.unlock();
      fn(cause);
      lock.lock();
      slot.in_callback = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<Member> members_;  // fixed once all are present
  std::vector<MemberSlot> slots_;
  GatherRounds gathers_;
  DeadlockWatch deadlocks_;
  int32_t present_ = 0;
  int32_t first_ = 0;  // the rank that made the hub
  bool closing_ = false;
  std::optional<Error> cause_;
  std::thread herald_;
};

// The hubs that still wait for ranks, by name. Never destroyed, so that threads that end late stay safe. A fork begins with
// none: those who wait are threads of its parent.
struct Registry {
  os::PerProcess process;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Hub>> forming;
};

Registry& registry() {
  static Registry& instance = *new Registry;
  instance.process.enter([] {
    new (static_cast<void*>(&instance.mutex)) std::mutex;
    new (static_cast<void*>(&instance.forming)) std::map<std::string, std::shared_ptr<Hub>>;
  });
  return instance;
}

class LocalControl final : public Control {
 public:
  LocalControl(std::shared_ptr<Hub> hub, int32_t rank) : hub_(std::move(hub)), rank_(rank) {
    letters().set_carrier([this](int32_t to, std::string_view text) { hub_->write_letter(rank_, to, std::string(text)); });
    hub_->set_letters(rank, &letters());
  }
  ~LocalControl() override {
    hub_->set_letters(rank_, nullptr);
    hub_->leave(rank_, false);
  }
  LocalControl(const LocalControl&) = delete;
  LocalControl& operator=(const LocalControl&) = delete;

  int32_t rank() const noexcept override { return rank_; }
  int32_t size() const noexcept override { return hub_->size(); }
  const Member& member(int32_t rank) const noexcept override { return hub_->member(rank); }
  std::vector<std::string> gather(std::string_view what, std::string_view mine, os::Deadline deadline) override {
    return hub_->gather(rank_, what, mine, deadline);
  }
  void abort(const Error& cause) noexcept override { hub_->abort(cause, rank_); }
  void leave(Leaving how) noexcept override {
    if (how == Leaving::kGroup) hub_->leave(rank_, true);
  }
  void on_failure(std::function<void(const Error&)> fn) override { hub_->on_failure(rank_, std::move(fn)); }
  void set_progress(int64_t pass, int32_t bucket) noexcept override { hub_->set_progress(rank_, pass, bucket); }
  CallState& calls() noexcept override { return hub_->calls(rank_); }
  Sign last_sign(int32_t rank) const override { return {0, hub_->whereabouts(rank), false}; }
  std::string describe_progress(int32_t rank) const override { return hub_->describe_progress(rank); }

 private:
  std::shared_ptr<Hub> hub_;
  int32_t rank_;
};

}  // namespace

std::unique_ptr<Control> join_local_hub(const std::string& name, int32_t rank, int32_t size, os::Deadline deadline,
                                        int64_t limit_ms, int32_t world_rank, const std::function<void()>& check) {
  if (rank < 0 || rank >= size) throw texts::rank_out_of_range(rank, size);
  Registry& all = registry();
  std::shared_ptr<Hub> hub;
  {
    const std::lock_guard lock(all.mutex);
    std::shared_ptr<Hub>& entry = all.forming[name];
    if (!entry) entry = std::make_shared<Hub>(size);
    hub = entry;
    if (hub->join(rank, size, world_rank)) all.forming.erase(name);
  }
  bool complete = false;
  const auto interrupted = try_to([&] { complete = hub->wait_for_all(deadline, check); });
  if (!complete) {
    const std::lock_guard lock(all.mutex);
    bool empty = false;
    const auto failure = hub->stand_up(rank, limit_ms, empty);
    if (empty) all.forming.erase(name);
    if (failure.has_value()) throw Error(interrupted.has_value() ? *interrupted : *failure);
  }
  return std::make_unique<LocalControl>(std::move(hub), rank);
}

}  // namespace ddp::bootstrap
