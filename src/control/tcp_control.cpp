// SPDX-License-Identifier: Apache-2.0
#include "control/tcp_control.hpp"

#include <algorithm>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "control/limits.hpp"
#include "control/link.hpp"
#include "control/post_in_place.hpp"
#include "control/texts.hpp"
#include "core/attempt.hpp"
#include "os/log.hpp"
#include "os/thread.hpp"
#include "trace/watch.hpp"

namespace ddp::bootstrap {
namespace {

SharedBody words(const Error& cause) { return std::make_shared<const Body>(messages::write(cause)); }

constexpr int64_t kGraceMs = 2'000;  // the server names those who are late; this long it may take
constexpr int64_t kWaitStepMs = 250;
constexpr int64_t kLookStepMs = 50;  // while the group forms

class TcpControl final : public Control {
 public:
  TcpControl(Admission admission, ClientConfig config);
  ~TcpControl() override {
    {
      const std::lock_guard lock(mutex_);
      break_.callback = nullptr;
    }
    wire_.io.stop();
    wire_.thread.join();
    wire_.link->close();  // before the server waits for us
  }
  TcpControl(const TcpControl&) = delete;
  TcpControl& operator=(const TcpControl&) = delete;

  bool wait_joined(int64_t left_ms, int64_t limit_ms, const Check& check);
  void own(std::unique_ptr<Server> server) { wire_.server = std::move(server); }

  int32_t rank() const noexcept override { return who_.rank; }
  int32_t size() const noexcept override { return who_.size; }
  const Member& member(int32_t rank) const noexcept override { return who_.members[static_cast<size_t>(rank)]; }
  std::vector<std::string> gather(std::string_view what, std::string_view mine, os::Deadline deadline) override;
  void abort(const Error& cause) noexcept override;
  std::optional<Error> settle() override;
  void saw_death(int32_t rank) noexcept override;
  void leave(Leaving how) noexcept override;
  void on_failure(std::function<void(const Error&)> fn) override;
  void set_progress(int64_t pass, int32_t bucket) noexcept override {
    where_.pass.store(pass, std::memory_order_relaxed);
    where_.bucket.store(bucket, std::memory_order_relaxed);
  }
  Sign last_sign(int32_t rank) const override;

 private:
  template <class Ready, class Look>
  bool wait_awake(std::unique_lock<std::mutex>& lock, int64_t ms, int64_t step_ms, Ready ready, Look look);
  [[nodiscard]] Whereabouts whereabouts() const;
  [[nodiscard]] bool has_left() const noexcept { return posts_.going == Leaving::kGroup; }
  // The control thread: `body` there, and what the state machine wants done.
  template <class Body>
  void on_thread(Body body) {
    asio::post(wire_.io, [this, body = std::move(body)] { body(), act(); });
  }
  void run();
  void tick();
  void act();
  void note(ClientAction& action);
  void link_gone();
  void break_group(const Error& cause);
  void give_up(const Error& why) noexcept;

  struct Posts {
    HandlerMemory abort, leave;
    std::optional<Leaving> going{};  // guarded by mutex_
  } posts_;
  struct Who {
    int32_t rank, size;
    std::vector<Member> members{};
  } who_;  // fixed before wait_joined() returns, as the last words
  struct Still {
    explicit Still(int64_t dead_after_ms) : dead_after_ns(dead_after_ms * 1'000'000) {}
    const int64_t dead_after_ns;
    std::atomic<int64_t> broke_ns{INT64_MAX};  // when the first cause came
    std::atomic<int64_t> until_ns{0};          // when this process last resumed after a pause
  } still_;
  struct Where {
    std::atomic<int64_t> pass{-1};
    std::atomic<int32_t> bucket{-1};
  } where_;
  ClientState state_;
  CallWatch call_watch_;
  // "rank 1 (...) could not go on: out of memory", made in time: when memory runs out a message is lost, and no rank may
  // wait for it.
  struct LastWords {
    std::optional<Error> error{};  // nothing: the group has not formed
    SharedBody body{};
  } last_words_;

  mutable std::mutex mutex_;  // guards all below but the wire
  std::condition_variable changed_;
  struct Meeting {
    bool joined = false, lost = false, link_open = true;
    std::optional<Error> refusal{};
  } meeting_;
  struct Break {
    std::optional<Error> cause{};
    SharedBody told{};               // the cause for the others
    std::optional<Error> settled{};  // the server's word, if this rank had a cause of its own
    std::function<void(const Error&)> callback{};
    bool in_callback = false;
  } break_;
  struct Gathers {
    uint64_t asked = 0, answered = 0;
    std::vector<std::string> blobs{};
    std::optional<Error> error{};
  } gathers_;
  std::vector<Sign> heard_;

  struct Wire {  // the control thread's
    asio::io_context io{1};
    asio::steady_timer timer{io};
    std::shared_ptr<Link> link{};
    std::unique_ptr<Server> server{};  // on rank 0
    std::thread thread{};
  } wire_;  // ends first: its handlers use all above
};

TcpControl::TcpControl(Admission admission, ClientConfig config)
    : who_{config.me.rank, config.size}, still_(config.dead_after_ms), state_(std::move(config)) {
  letters().set_carrier([this](int32_t to, std::string_view text) {
    on_thread([this, to, copy = std::string(text)] { state_.write_letter(to, copy); });
  });
  set_link_key(admission.link_key);
  FrameReader reader(messages::longest<messages::Reply>());
  if (admission.keys.has_value()) reader.secure(admission.keys->to_client);
  wire_.link = std::make_shared<Link>(wire_.io, std::move(admission.socket), std::move(reader), admission.writer);
  wire_.link->start({[this](Frame&& frame) { state_.frame(std::move(frame), os::now_ns()), act(); },
                     [this] { state_.closed(os::now_ns()), act(), link_gone(); },
                     [this](const std::string& how) { state_.broke(how, os::now_ns()), act(), link_gone(); },
                     {}});
  state_.start(os::now_ns(), admission.has_said_first_words);
  act();
  tick();
  wire_.thread = os::start_thread("ddp-control", [this] { run(); });
}

// Wait for `ready`, at most `ms`; a step in which this process was stopped counts no longer than another. After each step
// `look` runs.
template <class Ready, class Look>
bool TcpControl::wait_awake(std::unique_lock<std::mutex>& lock, int64_t ms, int64_t step_ms, Ready ready, Look look) {
  for (; ms > 0; ms -= step_ms) {
    if (changed_.wait_for(lock, std::chrono::milliseconds(std::min(ms, step_ms)), ready)) return true;
    look();
  }
  return ready();
}

bool TcpControl::wait_joined(int64_t left_ms, int64_t limit_ms, const Check& check) {
  std::unique_lock lock(mutex_);
  const auto decided = [this] { return meeting_.joined || meeting_.lost || meeting_.refusal || !meeting_.link_open; };
  const auto look = [&] {
    lock.unlock();
    if (check) check([this](int32_t id) { on_thread([this, id] { state_.witness(id); }); });
    lock.lock();
  };
  if (!wait_awake(lock, left_ms <= 0 ? INT64_MAX : left_ms + kGraceMs, kLookStepMs, decided, look))
    throw texts::rank0_never_came("the meeting", limit_ms, "it admitted this rank and then fell silent");
  if (meeting_.refusal.has_value()) throw Error(*meeting_.refusal);
  return meeting_.joined;
}

Control::Sign TcpControl::last_sign(int32_t rank) const {
  const std::lock_guard lock(mutex_);
  Sign sign = heard_[static_cast<size_t>(rank)];
  if (rank == who_.rank) sign.where = whereabouts();
  const int64_t until_ns = still_.until_ns.load(), broke_ns = still_.broke_ns.load();
  if (rank == who_.rank)
    sign.stood_still = until_ns != 0 && until_ns > broke_ns - still_.dead_after_ns;
  else
    sign.stood_still = sign.at_ns != 0 && broke_ns != INT64_MAX && broke_ns - sign.at_ns > still_.dead_after_ns / 2;
  return sign;
}

Whereabouts TcpControl::whereabouts() const {
  return {where_.pass.load(std::memory_order_relaxed),
          where_.bucket.load(std::memory_order_relaxed),
          own_calls().last(),
          own_calls().inside() > 0,
          own_calls().awaits(),
          own_calls().moved(),
          own_calls().messages.awaits()};
}

// ---- the control thread

void TcpControl::run() {
  while (const std::optional<Error> error = try_to([this] { wire_.io.run(); })) {
    os::log_of(*error, DDP_LOG_ERROR, "the control thread of rank %d: %s", rank(), error->what());
    give_up(*error);
  }
}

void TcpControl::give_up(const Error& why) noexcept {
  if (!last_words_.error.has_value()) {
    const std::lock_guard lock(mutex_);
    meeting_.refusal = why;
  } else {
    break_group(*last_words_.error);
    if (!try_to([this] {
          state_.abort(last_words_.body), act();
          wire_.link->finish_anyhow();
        }))
      return;
  }
  wire_.link->close();
  link_gone();
}

void TcpControl::link_gone() {
  const std::lock_guard lock(mutex_);
  meeting_.link_open = false;
  changed_.notify_all();
}

void TcpControl::tick() {
  state_.tick(os::now_ns(), whereabouts());
  still_.until_ns.store(state_.stood_still_until_ns());
  if (const auto news = call_watch_.look(calls(), os::now_ns())) state_.blocked(news->blocked);
  act();
  wire_.timer.expires_after(std::chrono::milliseconds(state_.tick_ms()));
  wire_.timer.async_wait([this](const asio::error_code& error) {
    if (!error) tick();
  });
}

void TcpControl::act() {
  for (ClientAction& action : state_.take()) {
    switch (action.kind) {
      case ClientAction::Kind::kSend: wire_.link->send(action.type, std::move(action.body)); break;
      case ClientAction::Kind::kFinish: wire_.link->finish(); break;
      case ClientAction::Kind::kFailed: break_group(*action.error); break;
      case ClientAction::Kind::kLetter: letters().deliver(action.rank, action.letter); break;
      default: note(action);
    }
  }
}

// What threads of the program wait for, or ask for.
void TcpControl::note(ClientAction& action) {
  const std::lock_guard lock(mutex_);
  switch (action.kind) {
    case ClientAction::Kind::kJoined: {
      LastWords last{texts::gave_up(action.members[static_cast<size_t>(action.rank)], nullptr, Error().text()), nullptr};
      last.body = words(*last.error);
      heard_.assign(action.members.size(), Sign{os::now_ns(), {}, false});
      last_words_ = std::move(last);  // nothing below needs memory: who has last words has joined
      who_.rank = action.rank;
      who_.members = std::move(action.members);
      who_.size = static_cast<int32_t>(who_.members.size());
      meeting_.joined = true;
      break;
    }
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

void TcpControl::break_group(const Error& cause) {
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

// ---- the threads of the program

std::vector<std::string> TcpControl::gather(std::string_view what, std::string_view mine, os::Deadline deadline) {
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
  on_thread([this, body = std::move(body)] { state_.gather(body); });
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

void TcpControl::abort(const Error& cause) noexcept {
  const std::lock_guard lock(mutex_);
  if (break_.cause.has_value() || posts_.going) return;
  break_.cause = cause;
  still_.broke_ns.store(os::now_ns());
  if (try_to([&] { break_.told = words(cause); })) break_.told = last_words_.body;  // without memory for this cause
  break_.callback = nullptr;                                                        // the breaking rank knows
  changed_.notify_all();
  post_in_place(wire_.io, posts_.abort, [this] { state_.abort(break_.told), act(); });
}

std::optional<Error> TcpControl::settle() {
  std::unique_lock lock(mutex_);
  const auto decided = [this] { return break_.settled.has_value() || !meeting_.link_open || has_left(); };
  changed_.wait_for(lock, std::chrono::milliseconds(limits::kFirstCauseMs), decided);
  return break_.settled;
}

void TcpControl::saw_death(int32_t rank) noexcept {
  const auto tell = [this, rank] {
    if (rank != 0) return state_.saw_death(rank);
    wire_.link->read_all();  // its messages from before its end come first
    state_.closed(os::now_ns());
  };
  if (const std::optional<Error> error = try_to([&] { on_thread(tell); }))  // no memory: its connection will say it
    os::log_of(*error, DDP_LOG_ERROR, "rank %d cannot tell the others of a death: %s", who_.rank, error->what());
}

// A process that ends does not wake its threads: they must not start anything new.
void TcpControl::leave(Leaving how) noexcept {
  const os::Deadline deadline = os::Deadline::in_ms(limits::kLeaveMs);
  std::unique_lock lock(mutex_);
  const bool is_first = !posts_.going.has_value();
  if (is_first || how == Leaving::kGroup) posts_.going = how;
  break_.callback = nullptr;
  changed_.notify_all();
  if (!is_first) return;
  post_in_place(wire_.io, posts_.leave, [this, how] { state_.leave(messages::Bye{how, whereabouts()}), act(); });
  if (wire_.io.get_executor().running_in_this_thread()) return;  // from the failure callback
  // Half of the time for our own goodbye; the server needs the rest for the others'.
  changed_.wait_for(lock, std::chrono::milliseconds(limits::kLeaveMs / 2),
                    [this] { return !meeting_.link_open && !break_.in_callback; });
  lock.unlock();
  if (wire_.server) wire_.server->stop(deadline);
}

void TcpControl::on_failure(std::function<void(const Error&)> fn) {
  std::unique_lock lock(mutex_);
  if (!break_.cause.has_value()) {
    break_.callback = std::move(fn);
    return;
  }
  const Error cause = *break_.cause;
  lock.unlock();
  fn(cause);
}

}  // namespace

std::unique_ptr<Control> join_over_tcp(Admission admission, ClientConfig config, std::unique_ptr<Server>& server,
                                       const Check& check) {
  const int64_t left_ms = config.left_ms, limit_ms = config.limit_ms;
  auto control = std::make_unique<TcpControl>(std::move(admission), std::move(config));
  if (!control->wait_joined(left_ms, limit_ms, check)) return nullptr;
  control->own(std::move(server));
  return control;
}

}  // namespace ddp::bootstrap
