// SPDX-License-Identifier: Apache-2.0
#include "group/message_requests.hpp"

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

}  // namespace

void fail_message(Health& health, const Error& error) {
  if (is_own(error)) health.give_up(nullptr, error);  // a stream may be in the middle of a message
  const bool has_left = error.status() == DDP_ERROR_ABORTED && !health.has_fault();
  if (has_left && try_to([&] { health.check_usable(); }).has_value()) return;
  health.fail(error);
}

class MessageRequests::Posted final : public Request {
 public:
  Posted(std::shared_ptr<MessageRequests> owner, messages::RequestPtr of, const messages::Patience& time_limit)
      : message(std::move(of)), patience(time_limit), owner_(std::move(owner)) {}

  [[nodiscard]] int32_t source() const noexcept override { return ended() ? message->source : -1; }
  using Request::end;

  const messages::RequestPtr message;
  messages::Patience patience;

 private:
  [[nodiscard]] bool look() override {
    const bool done = owner_->look(*this);
    if (!done) owner_->hurry();
    return done;
  }
  [[nodiscard]] bool stay(int64_t ms) override { return owner_->stay(*this, ms); }
  [[nodiscard]] bool withdraw() override {
    if (message->sends || !owner_->messenger_.give_up(message)) return false;
    end(Error(DDP_ERROR_INVALID_STATE, "the receive was withdrawn"));
    return true;
  }

  const std::shared_ptr<MessageRequests> owner_;
};

MessageRequests::~MessageRequests() { stop(group_destroyed()); }

RequestPtr MessageRequests::post(messages::RequestPtr message) {
  auto posted = std::make_shared<Posted>(shared_from_this(), std::move(message), messenger_.patience());
  if (look(*posted)) return posted;
  const std::lock_guard lock(mutex_);
  if (stopped_.has_value()) throw Error(*stopped_);
  if (!thread_.joinable()) thread_ = os::start_thread("ddp-messages", [this] { run(); });
  open_.erase(std::remove_if(open_.begin(), open_.end(), [](const PostedPtr& each) { return each->ended(); }), open_.end());
  open_.push_back(posted);
  idle_.notify();
  return posted;
}

bool MessageRequests::is_idle() {
  const std::lock_guard lock(mutex_);
  return std::all_of(open_.begin(), open_.end(), [](const PostedPtr& each) { return each->ended(); });
}

void MessageRequests::hurry() noexcept {
  const std::lock_guard lock(mutex_);
  idle_.hurry();
}

// `work` returns whether the message is done. An error that it throws breaks the group; one of the message itself does not.
template <class Work>
void MessageRequests::work_on(Posted& request, Work&& work) noexcept {
  bool done = false;
  const auto run = [&] { on_error([&] { done = work(); }, [&](const Error& error) { fail_message(health_, error); }); };
  const std::optional<Error> error = try_to(run);
  if (error.has_value()) messenger_.drop(request.message);
  if (error.has_value() || done) request.end(error.has_value() ? error : request.message->error);
}

bool MessageRequests::look(Posted& request) {
  if (request.ended()) return true;
  work_on(request, [&] { return messenger_.test(request.message, request.patience); });
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
  const os::Deadline end = os::Deadline::in_ms(ms);
  while (!request.ended()) {
    const int64_t slice = end.is_never() ? kSliceMs : std::clamp<int64_t>(end.left_ms(), 1, kSliceMs);
    work_on(request, [&] { return messenger_.wait_for(request.message, request.patience, slice); });
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
      messenger_.attend(kSliceMs);
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
  for (const PostedPtr& each : open_) {
    messenger_.drop(each->message);
    each->end(cause);
  }
  open_.clear();
}

}  // namespace ddp::group
