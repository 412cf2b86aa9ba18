// SPDX-License-Identifier: Apache-2.0
#include "control/client_control.hpp"

#include <algorithm>
#include <asio/post.hpp>

#include "control/limits.hpp"
#include "control/texts.hpp"
#include "core/attempt.hpp"
#include "os/log.hpp"
#include "trace/watch.hpp"

namespace ddp::bootstrap {
namespace {

SharedBody words(const Error& cause) { return std::make_shared<const Body>(messages::write(cause)); }

constexpr int64_t kGraceMs = 2'000;  // the server names those who are late; this long it may take
constexpr int64_t kWaitStepMs = 250;
constexpr int64_t kLookStepMs = 50;  // while the group forms

}  // namespace

ClientControl::ClientControl(asio::io_context& io, ClientConfig config)
    : io_(io), who_{config.me.rank, config.size}, still_(config.dead_after_ms), state_(std::move(config)) {
  letters().set_carrier([this](int32_t to, std::string_view text) {
    asio::post(io_, [this, to, copy = std::string(text)] { state_.write_letter(to, copy), act(); });
  });
}

// Wait for `ready`, at most `ms`; a step in which this process was stopped counts no longer than another. After each step
// `look` runs.
template <class Ready, class Look>
bool ClientControl::wait_awake(std::unique_lock<std::mutex>& lock, int64_t ms, int64_t step_ms, Ready ready, Look look) {
  for (; ms > 0; ms -= step_ms) {
    if (changed_.wait_for(lock, std::chrono::milliseconds(std::min(ms, step_ms)), ready)) return true;
    look();
  }
  return ready();
}

bool ClientControl::wait_joined(int64_t left_ms, int64_t limit_ms, const Check& check) {
  std::unique_lock lock(mutex_);
  const auto decided = [this] {
    return meeting_.joined || meeting_.lost || meeting_.refusal.has_value() || !meeting_.link_open;
  };
  const auto look = [&] {
    lock.unlock();
    if (check)
      check([this](int32_t id) {
        asio::post(io_, [this, id] {
          state_.witness(id);
          act();
        });
      });
    lock.lock();
  };
  if (!wait_awake(lock, left_ms <= 0 ? INT64_MAX : left_ms + kGraceMs, kLookStepMs, decided, look))
    throw texts::rank0_never_came("the meeting", limit_ms, "it admitted this rank and then fell silent");
  if (meeting_.refusal.has_value()) throw Error(*meeting_.refusal);
  return meeting_.joined;
}

Control::Sign ClientControl::last_sign(int32_t rank) const {
  const std::lock_guard lock(mutex_);
  Sign sign = heard_[static_cast<size_t>(rank)];
  if (rank == who_.rank) sign.where = whereabouts();
  const int64_t until_ns = still_.until_ns.load();
  const int64_t broke_ns = still_.broke_ns.load();
  if (rank == who_.rank)
    sign.stood_still = until_ns != 0 && until_ns > broke_ns - still_.dead_after_ns;
  else
    sign.stood_still = sign.at_ns != 0 && broke_ns != INT64_MAX && broke_ns - sign.at_ns > still_.dead_after_ns / 2;
  return sign;
}

Whereabouts ClientControl::whereabouts() const {
  return {where_.pass.load(std::memory_order_relaxed),
          where_.bucket.load(std::memory_order_relaxed),
          own_calls().last(),
          own_calls().inside() > 0,
          own_calls().awaits(),
          own_calls().moved()};
}

// ---- the control thread

void ClientControl::start(bool said) {
  state_.start(os::now_ns(), said);
  act();
}

void ClientControl::frame(Frame&& frame) {
  state_.frame(std::move(frame), os::now_ns());
  act();
}

void ClientControl::closed() {
  state_.closed(os::now_ns());
  act();
  link_gone();
}

void ClientControl::broke(const std::string& how) {
  state_.broke(how, os::now_ns());
  act();
  link_gone();
}

void ClientControl::link_gone() {
  const std::lock_guard lock(mutex_);
  meeting_.link_open = false;
  changed_.notify_all();
}

void ClientControl::tick() {
  state_.tick(os::now_ns(), whereabouts());
  still_.until_ns.store(state_.stood_still_until_ns());
  if (const auto news = call_watch_.look(calls(), os::now_ns())) state_.blocked(news->blocked);
  act();
}

void ClientControl::act() {
  for (ClientAction& action : state_.take()) {
    switch (action.kind) {
      case ClientAction::Kind::kSend: send(action.type, std::move(action.body)); break;
      case ClientAction::Kind::kFinish: finish(); break;
      case ClientAction::Kind::kFailed: break_group(*action.error); break;
      case ClientAction::Kind::kLetter: letters().deliver(action.rank, action.blobs.front()); break;
      default: note(action);
    }
  }
}

// What threads of the program wait for, or ask for.
void ClientControl::note(ClientAction& action) {
  const std::lock_guard lock(mutex_);
  switch (action.kind) {
    case ClientAction::Kind::kJoined:
      last_words_.error = texts::gave_up(action.members[static_cast<size_t>(action.rank)], nullptr, Error().text());
      last_words_.body = words(*last_words_.error);
      who_.rank = action.rank;
      who_.members = std::move(action.members);
      who_.size = static_cast<int32_t>(who_.members.size());
      heard_.assign(who_.members.size(), Sign{os::now_ns(), {}, false});
      meeting_.joined = true;
      break;
    case ClientAction::Kind::kRefused: meeting_.refusal = std::move(action.error); break;
    case ClientAction::Kind::kLost: meeting_.lost = true; break;
    case ClientAction::Kind::kSettled: break_.settled = std::move(action.error); break;
    case ClientAction::Kind::kAnswer:
      gathers_ = {gathers_.asked, action.sequence, std::move(action.blobs), std::move(action.error)};
      break;
    case ClientAction::Kind::kProgress:
      for (const messages::Progress& at : action.ranks)
        heard_[static_cast<size_t>(at.rank)] = {os::now_ns() - at.silent_ms * 1'000'000, at.where, false};
      break;
    default: break;
  }
  if (action.kind != ClientAction::Kind::kProgress) changed_.notify_all();
}

void ClientControl::break_group(const Error& cause) {
  std::unique_lock lock(mutex_);
  break_.settled = cause;
  changed_.notify_all();
  if (break_.cause.has_value()) return;
  break_.cause = cause;
  still_.broke_ns.store(os::now_ns());
  const auto fn = std::exchange(break_.callback, nullptr);
  if (!fn || posts_.going) return;
  break_.in_callback = true;
  lock.unlock();
  fn(cause);
  lock.lock();
  break_.in_callback = false;
  changed_.notify_all();
}

// Its messages from before its end come first.
void ClientControl::server_died() {
  read_all();
  state_.closed(os::now_ns());
  act();
}

// ---- the threads of the program

std::vector<std::string> ClientControl::gather(std::string_view what, std::string_view mine, os::Deadline deadline) {
  if (mine.size() > limits::kBlobBytes) throw texts::gather_too_large(what, mine.size());
  std::unique_lock lock(mutex_);
  if (has_left()) throw texts::already_left();
  if (break_.cause.has_value() && gathers_.answered <= gathers_.asked)
    throw Error(*break_.cause);  // the answer to an opening may be here
  const uint64_t sequence = ++gathers_.asked;
  const int64_t begin_ns = os::now_ns(), left_ms = deadline.is_never() ? 0 : std::max<int64_t>(deadline.left_ms(), 1);
  const UserCall call = calls().call();
  calls().join_gather(sequence);
  auto body = std::make_shared<const Body>(
      messages::write(messages::Gather{sequence, left_ms, left_ms, call, std::string(what), std::string(mine)}));
  asio::post(io_, [this, body = std::move(body)] {
    state_.gather(body);
    act();
  });
  const CallState::Waiting waiting(calls(), BlockedCall::Exchange::kGather, sequence);
  const auto decided = [&] { return gathers_.answered >= sequence || break_.cause.has_value() || has_left(); };
  if (deadline.is_never())
    changed_.wait(lock, decided);
  else if (!wait_awake(lock, left_ms + kGraceMs, kWaitStepMs, decided, [] {}))
    throw texts::gather_timed_out({who_.members.front()}, describe_call(call, what), left_ms, "it does not answer");
  if (gathers_.answered < sequence) throw break_.cause.has_value() ? Error(*break_.cause) : texts::already_left();
  if (gathers_.error.has_value()) throw Error(*gathers_.error);
  if (trace::Watch* const watch = calls().watch()) watch->end_gather(sequence, begin_ns, member(who_.rank).world_rank < 0);
  return std::move(gathers_.blobs);
}

void ClientControl::abort(const Error& cause) noexcept {
  const std::lock_guard lock(mutex_);
  if (break_.cause.has_value() || posts_.going) return;
  break_.cause = cause;
  still_.broke_ns.store(os::now_ns());
  if (try_to([&] { break_.told = words(cause); })) break_.told = last_words_.body;  // without memory for this cause
  break_.callback = nullptr;                                                        // the breaking rank knows
  changed_.notify_all();
  post_in_place(io_, posts_.abort, [this] {
    state_.abort(break_.told);
    act();
  });
}

std::optional<Error> ClientControl::settle() {
  std::unique_lock lock(mutex_);
  const auto decided = [this] { return break_.settled.has_value() || !meeting_.link_open || has_left(); };
  changed_.wait_for(lock, std::chrono::milliseconds(limits::kFirstCauseMs), decided);
  return break_.settled;
}

void ClientControl::saw_death(int32_t rank) noexcept {
  const auto tell = [this, rank] {
    if (rank == 0) return server_died();
    state_.saw_death(rank);
    act();
  };
  if (const std::optional<Error> error = try_to([&] { asio::post(io_, tell); }))  // no memory: its connection will say it
    os::log_of(*error, DDP_LOG_ERROR, "rank %d cannot tell the others of a death: %s", who_.rank, error->what());
}

void ClientControl::say_goodbye(Leaving how) {
  state_.leave(messages::Bye{how, whereabouts()});
  act();
}

// A process that ends does not wake its threads: they must not start anything new.
bool ClientControl::depart(Leaving how) noexcept {
  std::unique_lock lock(mutex_);
  const bool is_first = !posts_.going.has_value();
  if (is_first || how == Leaving::kGroup) posts_.going = how;
  break_.callback = nullptr;
  changed_.notify_all();
  if (!is_first) return false;
  post_in_place(io_, posts_.leave, [this, how] { say_goodbye(how); });
  if (io_.get_executor().running_in_this_thread()) return false;  // from the failure callback
  // Half of the time for our own goodbye; the server needs the rest for the others'.
  changed_.wait_for(lock, std::chrono::milliseconds(limits::kLeaveMs / 2),
                    [this] { return !meeting_.link_open && !break_.in_callback; });
  return true;
}

void ClientControl::on_failure(std::function<void(const Error&)> fn) {
  std::unique_lock lock(mutex_);
  if (!break_.cause.has_value()) {
    break_.callback = std::move(fn);
    return;
  }
  const Error cause = *break_.cause;
  lock.unlock();
  fn(cause);
}

}  // namespace ddp::bootstrap
