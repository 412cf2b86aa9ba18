// SPDX-License-Identifier: Apache-2.0
#include "group/message_requests.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "group/consensus.hpp"
#include "os/thread.hpp"

namespace ddp::group {
namespace {

using bootstrap::CallState;
using bootstrap::UserCall;

constexpr int64_t kSliceMs = 200;  // of a wait without a limit, and of the thread
constexpr int64_t kGpuMs = 1;      // between looks whether a GPU has copied: no bell rings for that
constexpr int32_t kQuickLooks = 100;

}  // namespace

void fail_message(Health& health, const Error& error) {
  const bool is_fault = is_own(error) || breaks_group(error.status());
  if (is_fault && health.fail_alone(error)) return;
  if (is_own(error)) health.give_up(nullptr, error);  // a stream may be in the middle of a message
  health.fail(error);
}

class MessageRequests::Posted final : public Request {
 public:
  Posted(std::shared_ptr<MessageRequests> owner, const Send& what, std::function<bool()> ready)
      : send(what), is_ready(std::move(ready)), patience(owner->messenger_.patience()), owner_(std::move(owner)) {}
  Posted(std::shared_ptr<MessageRequests> owner, messages::RequestPtr of, std::shared_ptr<const void> into)
      : memory(std::move(into)), patience(owner->messenger_.patience()), owner_(std::move(owner)) {
    begun(std::move(of));
  }

  [[nodiscard]] int32_t source() const noexcept override { return ended() && has_begun() ? message_->source : -1; }
  using Request::end;

  /// Once; then it is a message.
  void begun(messages::RequestPtr of) noexcept {
    message_ = std::move(of);
    has_begun_.store(true, std::memory_order_release);
  }
  [[nodiscard]] bool has_begun() const noexcept { return has_begun_.load(std::memory_order_acquire); }
  [[nodiscard]] const messages::RequestPtr& message() const noexcept { return message_; }
  [[nodiscard]] UserCall call() const noexcept { return is_ready ? UserCall::kPostSend : UserCall::kPostReceive; }
  [[nodiscard]] bool is_to(int32_t peer, const messages::Key& key) const noexcept {
    return send.peer == peer && send.key == key;
  }

  const Send send;
  const std::function<bool()> is_ready;      // of a send
  const std::shared_ptr<const void> memory;  // of a receive
  messages::Patience patience;

 private:
  [[nodiscard]] bool look() override {
    const bool done = owner_->look(*this);
    if (!done) owner_->hurry();
    return done;
  }
  [[nodiscard]] bool stay(int64_t ms) override { return owner_->stay(*this, ms); }
  [[nodiscard]] bool withdraw() override {
    if (!has_begun() || message_->sends || !owner_->messenger_.give_up(message_)) return false;
    end(Error(DDP_ERROR_INVALID_STATE, "the receive was withdrawn"));
    return true;
  }

  const std::shared_ptr<MessageRequests> owner_;
  std::atomic<bool> has_begun_{false};
  messages::RequestPtr message_;
};

MessageRequests::~MessageRequests() { stop(group_destroyed()); }

RequestPtr MessageRequests::post_send(const Send& send, std::function<bool()> is_ready) {
  const auto posted = std::make_shared<Posted>(shared_from_this(), send, std::move(is_ready));
  {
    const std::lock_guard lock(turns_);
    sends_.push_back(posted);
    count_sends();
  }
  return watch(posted);
}

RequestPtr MessageRequests::post_receive(messages::RequestPtr message, std::shared_ptr<const void> memory) {
  return on_error([&] { return watch(std::make_shared<Posted>(shared_from_this(), message, std::move(memory))); },
                  [&](const Error&) { messenger_.drop(message); });
}

/// It ends by itself from now on.
RequestPtr MessageRequests::watch(const PostedPtr& posted) {
  const auto begin = [&]() -> RequestPtr {
    if (look(*posted)) return posted;
    const std::lock_guard lock(mutex_);
    if (stopped_.has_value()) throw Error(*stopped_);
    if (!thread_.joinable()) thread_ = os::start_thread("ddp-messages", [this] { run(); });
    open_.erase(std::remove_if(open_.begin(), open_.end(), [](const PostedPtr& each) { return each->ended(); }),
                open_.end());
    open_.push_back(posted);
    idle_.notify();
    return posted;
  };
  return on_error(begin, [&](const Error& error) { close(*posted, error); });
}

void MessageRequests::count_sends() noexcept {
  not_begun_.store(sends_.size());
  calls_.messages.set_unsent(sends_.size());
}

/// Those whose turn it is, and whose tensors are ready.
void MessageRequests::begin_sends() {
  if (not_begun_.load() == 0) return;
  const std::lock_guard lock(turns_);
  for (size_t at = 0; at < sends_.size();) {
    Posted& each = *sends_[at];
    const auto end = sends_.begin() + static_cast<std::ptrdiff_t>(at);
    const bool is_first = std::none_of(
        sends_.begin(), end, [&](const PostedPtr& before) { return before->is_to(each.send.peer, each.send.key); });
    bool is_ready = false;  // an error is that request's, and its own look has it
    if (!each.ended() && is_first) static_cast<void>(try_to([&] { is_ready = each.is_ready(); }));
    if (is_ready) each.begun(messenger_.send(each.send.peer, each.send.key, each.send.content, each.send.data));
    if (is_ready || each.ended())
      sends_.erase(end);
    else
      ++at;
  }
  count_sends();
}

void MessageRequests::await_turn(int32_t peer, const messages::Key& key) {
  const auto is_free = [&] {
    const std::lock_guard lock(turns_);
    return std::none_of(sends_.begin(), sends_.end(), [&](const PostedPtr& each) { return each->is_to(peer, key); });
  };
  while (not_begun_.load() != 0) {
    begin_sends();
    if (is_free()) return;
    health_.check_no_fault();
    messenger_.attend(kGpuMs);
  }
}

bool MessageRequests::is_idle() {
  const std::lock_guard lock(mutex_);
  return std::all_of(open_.begin(), open_.end(), [](const PostedPtr& each) { return each->ended(); });
}

void MessageRequests::hurry() noexcept {
  const std::lock_guard lock(mutex_);
  idle_.hurry();
}

/// Is it a message by now? Throws why it never will be.
bool MessageRequests::has_begun(Posted& request) {
  begin_sends();
  if (request.has_begun()) return true;
  health_.check_no_fault();
  const std::optional<Error> error = try_to([&] { static_cast<void>(request.is_ready()); });
  const bool is_in_capture = error.has_value() && error->status() == DDP_ERROR_INVALID_STATE;  // of this thread alone
  if (error.has_value() && !is_in_capture) throw Error(*error);
  return false;
}

/// No thread begins it any more, or reads or writes its memory.
void MessageRequests::close(Posted& request, const std::optional<Error>& error) noexcept {
  const std::lock_guard lock(turns_);
  if (request.has_begun()) messenger_.drop(request.message());
  request.end(error);
}

// `work` returns whether the message is done. An error that it throws breaks the group; one of the message itself does not.
template <class Work>
void MessageRequests::work_on(Posted& request, Work&& work) noexcept {
  bool done = false;
  const auto run = [&] { on_error([&] { done = work(); }, [&](const Error& error) { fail_message(health_, error); }); };
  const std::optional<Error> error = try_to(run);
  if (error.has_value()) return close(request, error);
  if (done) request.end(request.message()->error);
}

bool MessageRequests::look(Posted& request) {
  if (request.ended()) return true;
  work_on(request, [&] { return has_begun(request) && messenger_.test(request.message(), request.patience); });
  return request.ended();
}

bool MessageRequests::stay(Posted& request, int64_t ms) {
  const CallState::InMessage inside(calls_, UserCall::kRequestWait);
  struct Waits {
    std::atomic<int32_t>& threads;
    explicit Waits(std::atomic<int32_t>& of) : threads(of) { threads.fetch_add(1); }
    ~Waits() { threads.fetch_sub(1); }
    Waits(const Waits&) = delete;
    Waits& operator=(const Waits&) = delete;
  } const waits(waiting_);
  if (ms == 0) return look(request);
  std::optional<bootstrap::MessageWaits::Waiting> waiting;  // with a limit this rank continues by itself
  if (ms < 0) waiting.emplace(calls_.messages, request.call());
  const os::Deadline end = os::Deadline::in_ms(ms);
  for (int32_t looks = 0; !request.ended(); ++looks) {
    const int64_t slice = end.is_never() ? kSliceMs : std::clamp<int64_t>(end.left_ms(), 1, kSliceMs);
    work_on(request, [&] {
      if (has_begun(request)) return messenger_.wait_for(request.message(), request.patience, slice);
      looks < kQuickLooks ? static_cast<void>(sched_yield()) : messenger_.attend(kGpuMs);
      return false;
    });
    if (!request.ended() && end.passed()) return false;
  }
  return true;
}

void MessageRequests::run() {
  Lock lock(mutex_);
  while (!stopped_.has_value()) {
    open_.erase(std::remove_if(open_.begin(), open_.end(), [](const PostedPtr& each) { return each->ended(); }),
                open_.end());
    const bool is_mine = !open_.empty() && (waiting_.load() == 0 || idle_.is_hurried());
    if (!is_mine || !(seen_ || idle_.is_hurried())) {
      if (!open_.empty()) idle_.found();
      seen_ = is_mine;
      idle_.sleep(lock, true);
      continue;
    }
    idle_.calm_down();
    std::vector<PostedPtr> open;
    const std::optional<Error> no_memory = try_to([&] { open = open_; });
    lock.unlock();
    work_on_all(open, no_memory);
    lock.lock();
  }
}

/// What it throws breaks the group, which ends all that is open.
void MessageRequests::work_on_all(const std::vector<PostedPtr>& open, const std::optional<Error>& problem) noexcept {
  const auto work = [&] {
    if (problem.has_value()) throw Error(*problem);
    for (const PostedPtr& each : open) static_cast<void>(look(*each));
    if (std::none_of(open.begin(), open.end(), [](const PostedPtr& each) { return each->ended(); }))
      messenger_.attend(not_begun_.load() != 0 ? kGpuMs : kSliceMs);
  };
  static_cast<void>(try_to([&] { on_error(work, [&](const Error& error) { fail_message(health_, error); }); }));
}

void MessageRequests::stop(const Error& cause) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!stopped_.has_value()) stopped_ = cause;
    idle_.wake();
  }
  if (!thread_.joinable()) return;
  messenger_.wake();
  thread_.join();
  for (const PostedPtr& each : open_) close(*each, cause);
  open_.clear();
  const std::lock_guard lock(turns_);
  sends_.clear();
}

}  // namespace ddp::group
