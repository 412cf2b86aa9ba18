// SPDX-License-Identifier: Apache-2.0
#include "control/tcp_control.hpp"

#include <algorithm>
#include <asio/io_context.hpp>
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

constexpr int64_t kGraceMs = 2'000;  // rank 0 names those who are late; this long it may take
constexpr int64_t kWaitStepMs = 250;
constexpr int64_t kLookStepMs = 50;                                         // while the group forms
constexpr size_t kServerBytes = limits::kGatherBytes + (size_t{16} << 20);  // the longest body rank 0 may send

class TcpControl final : public Control {
 public:
  TcpControl(Admission admission, ClientConfig config)
      : rank_(config.me.rank), size_(config.size), still_(config.dead_after_ms), state_(std::move(config)), timer_(io_) {
    set_link_key(admission.link_key);
    letters().set_carrier([this](int32_t to, std::string_view text) {
      asio::post(io_, [this, to, copy = std::string(text)] { state_.write_letter(to, copy), act(); });
    });
    FrameReader reader(kServerBytes);
    if (admission.keys.has_value()) reader.secure(admission.keys->to_client);
    link_ = std::make_shared<Link>(io_, std::move(admission.socket), std::move(reader), admission.writer);
    link_->start({[this](Frame&& frame) {
                    state_.frame(std::move(frame), os::now_ns());
                    act();
                  },
                  [this] {
                    state_.closed(os::now_ns());
                    act();
                    link_gone();
                  },
                  [this](const std::string& how) {
                    state_.broke(how, os::now_ns());
                    act();
                    link_gone();
                  },
                  {}});
    state_.start(os::now_ns(), admission.has_said_first_words);
    act();
    tick();
    thread_ = os::start_thread("ddp-control", [this] { run(); });
  }

  ~TcpControl() override {
    {
      const std::lock_guard lock(mutex_);
      on_failure_ = nullptr;
    }
    io_.stop();
    thread_.join();
    link_->close();  // before the server waits for us
  }
  TcpControl(const TcpControl&) = delete;
  TcpControl& operator=(const TcpControl&) = delete;

  /// True once all are here; false if the connection was lost. Throws the refusal.
  bool wait_joined(int64_t left_ms, int64_t limit_ms, const Check& check) {
    std::unique_lock lock(mutex_);
    const auto decided = [this] { return joined_ || lost_ || refusal_.has_value() || !link_open_; };
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
    if (refusal_.has_value()) throw Error(*refusal_);
    return joined_;
  }

  void own(std::unique_ptr<Server> server) { server_ = std::move(server); }

  int32_t rank() const noexcept override { return rank_; }
  int32_t size() const noexcept override { return size_; }
  const Member& member(int32_t rank) const noexcept override { return members_[static_cast<size_t>(rank)]; }
  std::vector<std::string> gather(std::string_view what, std::string_view mine, os::Deadline deadline) override;
  void abort(const Error& cause) noexcept override;
  std::optional<Error> settle() override;
  void saw_death(int32_t rank) noexcept override;
  void leave(Leaving how) noexcept override;
  void on_failure(std::function<void(const Error&)> fn) override;
  void set_progress(int64_t pass, int32_t bucket) noexcept override {
    pass_.store(pass, std::memory_order_relaxed);
    bucket_.store(bucket, std::memory_order_relaxed);
  }
  Sign last_sign(int32_t rank) const override {
    const std::lock_guard lock(mutex_);
    Sign sign = heard_[static_cast<size_t>(rank)];
    if (rank == rank_) sign.where = whereabouts();
    const int64_t until_ns = still_.until_ns.load();
    const int64_t broke_ns = still_.broke_ns.load();
    if (rank == rank_)
      sign.stood_still = until_ns != 0 && until_ns > broke_ns - still_.dead_after_ns;
    else
      sign.stood_still = sign.at_ns != 0 && broke_ns != INT64_MAX && broke_ns - sign.at_ns > still_.dead_after_ns / 2;
    return sign;
  }

 private:
  void run() {
    while (const std::optional<Error> error = try_to([this] { io_.run(); })) {
      os::log_of(*error, DDP_LOG_ERROR, "the control thread of rank %d: %s", rank_, error->what());
      give_up(*error);
    }
  }

  // The thread's work at the moment when memory ran out is lost, so no rank may wait for it.
  void give_up(const Error& why) noexcept {
    if (last_words_ == nullptr) {
      const std::lock_guard lock(mutex_);
      refusal_ = why;
    } else {
      break_group(*last_error_);
      if (!try_to([this] {
            state_.abort(last_words_);
            act();
            link_->finish_anyhow();
          }))
        return;
    }
    link_->close();
    link_gone();
  }

  // Wait for `ready`, at most `ms`; a step in which this process was stopped counts no longer than another. After each step
  // `look` runs.
  template <class Ready, class Look>
  bool wait_awake(std::unique_lock<std::mutex>& lock, int64_t ms, int64_t step_ms, Ready ready, Look look) {
    for (; ms > 0; ms -= step_ms) {
      if (changed_.wait_for(lock, std::chrono::milliseconds(std::min(ms, step_ms)), ready)) return true;
      look();
    }
    return ready();
  }

  Whereabouts whereabouts() const {
    return {pass_.load(std::memory_order_relaxed),
            bucket_.load(std::memory_order_relaxed),
            own_calls().last(),
            own_calls().inside() > 0,
            own_calls().awaits(),
            own_calls().moved()};
  }

  // All below on the control thread (or before it runs).
  void tick() {
    state_.tick(os::now_ns(), whereabouts());
    still_.until_ns.store(state_.stood_still_until_ns());
    if (const auto news = call_watch_.look(calls(), os::now_ns())) state_.blocked(news->blocked);
    act();
    timer_.expires_after(std::chrono::milliseconds(state_.tick_ms()));
    timer_.async_wait([this](const asio::error_code& error) {
      if (!error) tick();
    });
  }
  void act();
  void break_group(const Error& cause);
  void rank0_died();
  void note_progress(const std::vector<messages::Progress>& ranks);
  [[nodiscard]] bool has_left() const noexcept { return posts_.going == Leaving::kGroup; }
  void link_gone() {
    const std::lock_guard lock(mutex_);
    link_open_ = false;
    changed_.notify_all();
  }

  int32_t rank_, size_;  // fixed before wait_joined() returns, as members_
  struct Still {
    explicit Still(int64_t dead_after_ms) : dead_after_ns(dead_after_ms * 1'000'000) {}
    const int64_t dead_after_ns;
    std::atomic<int64_t> broke_ns{INT64_MAX};  // when the first cause came
    std::atomic<int64_t> until_ns{0};          // when this process last resumed after a pause
  } still_;
  struct Posts {
    HandlerMemory abort, leave;
    std::optional<Leaving> going{};  // guarded by mutex_
  } posts_;                          // before io_
  std::vector<Member> members_;      // fixed before wait_joined() returns
  std::atomic<int64_t> pass_{-1};
  std::atomic<int32_t> bucket_{-1};

  asio::io_context io_{1};
  ClientState state_;
  CallWatch call_watch_;
  asio::steady_timer timer_;
  std::shared_ptr<Link> link_;

  mutable std::mutex mutex_;  // guards all below but the server and the thread
  std::condition_variable changed_;
  bool joined_ = false, lost_ = false, link_open_ = true, in_callback_ = false;
  std::optional<Error> refusal_;
  std::optional<Error> cause_;
  SharedBody told_;                  // the cause for the others
  std::optional<Error> last_error_;  // "rank 1 (...) could not go on: out of memory", made in time
  SharedBody last_words_;
  std::optional<Error> settled_;  // rank 0's word, if this rank had a cause of its own
  std::function<void(const Error&)> on_failure_;
  uint64_t asked_ = 0, answered_ = 0;  // gathers
  std::vector<std::string> blobs_;
  std::optional<Error> answer_error_;
  std::vector<Sign> heard_;

  std::unique_ptr<Server> server_;  // on rank 0
  std::thread thread_;
};

void TcpControl::act() {
  const auto note = [this](const auto& body) {
    const std::lock_guard lock(mutex_);
    body();
  };
  for (ClientAction& action : state_.take()) {
    switch (action.kind) {
      case ClientAction::Kind::kSend: link_->send(action.type, std::move(action.body)); break;
      case ClientAction::Kind::kFinish: link_->finish(); break;
      case ClientAction::Kind::kProgress: note_progress(action.ranks); break;
      case ClientAction::Kind::kFailed: break_group(*action.error); break;
      case ClientAction::Kind::kLetter: letters().deliver(action.rank, action.blobs.front()); break;
      case ClientAction::Kind::kSettled: note([&] { settled_ = std::move(action.error); }); break;
      case ClientAction::Kind::kJoined: {
        const std::lock_guard lock(mutex_);
        last_error_ = texts::gave_up(action.members[static_cast<size_t>(action.rank)], nullptr, Error().text());
        last_words_ = words(*last_error_);
        rank_ = action.rank;
        members_ = std::move(action.members);
        size_ = static_cast<int32_t>(members_.size());
        heard_.assign(members_.size(), Sign{os::now_ns(), {}, false});
        joined_ = true;
        break;
      }
      case ClientAction::Kind::kRefused: note([&] { refusal_ = std::move(action.error); }); break;
      case ClientAction::Kind::kLost: note([&] { lost_ = true; }); break;
      case ClientAction::Kind::kAnswer: {
        const std::lock_guard lock(mutex_);
        answered_ = action.sequence;
        blobs_ = std::move(action.blobs);
        answer_error_ = std::move(action.error);
        break;
      }
    }
    changed_.notify_all();
  }
}

void TcpControl::note_progress(const std::vector<messages::Progress>& ranks) {
  const std::lock_guard lock(mutex_);
  for (const messages::Progress& at : ranks)
    heard_[static_cast<size_t>(at.rank)] = {os::now_ns() - at.silent_ms * 1'000'000, at.where, false};
}

void TcpControl::break_group(const Error& cause) {
  std::unique_lock lock(mutex_);
  settled_ = cause;
  if (cause_.has_value()) return;
  cause_ = cause;
  still_.broke_ns.store(os::now_ns());
  const auto fn = std::exchange(on_failure_, nullptr);
  changed_.notify_all();
  if (!fn || posts_.going) return;
  in_callback_ = true;
  lock.unlock();
  fn(cause);
  lock.lock();
  in_callback_ = false;
  changed_.notify_all();
}

std::vector<std::string> TcpControl::gather(std::string_view what, std::string_view mine, os::Deadline deadline) {
  if (mine.size() > limits::kBlobBytes) throw texts::gather_too_large(what, mine.size());
  std::unique_lock lock(mutex_);
  if (has_left()) throw texts::already_left();
  if (cause_.has_value() && answered_ <= asked_) throw Error(*cause_);  // the answer to an opening may be here
  const uint64_t sequence = ++asked_;
  const int64_t begin_ns = os::now_ns(), left_ms = deadline.is_never() ? 0 : std::max<int64_t>(deadline.left_ms(), 1);
  const UserCall call = calls().call();
  calls().join_gather(sequence);
  auto body = std::make_shared<const Body>(messages::write(sequence, left_ms, left_ms, call, what, mine));
  asio::post(io_, [this, body = std::move(body)] {
    state_.gather(body);
    act();
  });
  const CallState::Waiting waiting(calls(), BlockedCall::Exchange::kGather, sequence);
  const auto decided = [&] { return answered_ >= sequence || cause_.has_value() || has_left(); };
  if (deadline.is_never())
    changed_.wait(lock, decided);
  else if (!wait_awake(lock, left_ms + kGraceMs, kWaitStepMs, decided, [] {}))
    throw texts::gather_timed_out({members_.front()}, describe_call(call, what), left_ms, "it does not answer");
  if (answered_ < sequence) throw cause_.has_value() ? Error(*cause_) : texts::already_left();
  if (answer_error_.has_value()) throw Error(*answer_error_);
  if (trace::Watch* const watch = calls().watch()) watch->end_gather(sequence, begin_ns, member(rank_).world_rank < 0);
  return std::move(blobs_);
}

void TcpControl::abort(const Error& cause) noexcept {
  const std::lock_guard lock(mutex_);
  if (cause_.has_value() || posts_.going) return;
  cause_ = cause;
  still_.broke_ns.store(os::now_ns());
  if (try_to([&] { told_ = words(cause); })) told_ = last_words_;  // without memory for this cause
  on_failure_ = nullptr;                                           // the breaking rank knows
  changed_.notify_all();
  post_in_place(io_, posts_.abort, [this] {
    state_.abort(told_);
    act();
  });
}

std::optional<Error> TcpControl::settle() {
  std::unique_lock lock(mutex_);
  const auto decided = [this] { return settled_.has_value() || !link_open_ || has_left(); };
  changed_.wait_for(lock, std::chrono::milliseconds(limits::kFirstCauseMs), decided);
  return settled_;
}

void TcpControl::saw_death(int32_t rank) noexcept {
  const auto tell = [this, rank] {
    if (rank == 0) return rank0_died();
    state_.saw_death(rank);
    act();
  };
  if (const std::optional<Error> error = try_to([&] { asio::post(io_, tell); }))  // no memory: its connection will say it
    os::log_of(*error, DDP_LOG_ERROR, "rank %d cannot tell the others of a death: %s", rank_, error->what());
}

// Its messages from before its end come first.
void TcpControl::rank0_died() {
  link_->read_all();
  state_.closed(os::now_ns());
  act();
}

// A process that ends does not wake its threads: they must not start anything new.
void TcpControl::leave(Leaving how) noexcept {
  const os::Deadline deadline = os::Deadline::in_ms(limits::kLeaveMs);
  std::unique_lock lock(mutex_);
  const bool is_first = !posts_.going.has_value();
  if (is_first || how == Leaving::kGroup) posts_.going = how;
  on_failure_ = nullptr;
  changed_.notify_all();
  if (!is_first) return;
  post_in_place(io_, posts_.leave, [this, how] {
    state_.leave(messages::Bye{how, whereabouts()});
    act();
  });
  if (std::this_thread::get_id() == thread_.get_id()) return;  // from the failure callback
  // Half of the time for our own goodbye; rank 0 needs the rest for the others'.
  changed_.wait_for(lock, std::chrono::milliseconds(limits::kLeaveMs / 2), [this] { return !link_open_ && !in_callback_; });
  lock.unlock();
  if (server_) server_->stop(deadline);
}

void TcpControl::on_failure(std::function<void(const Error&)> fn) {
  std::unique_lock lock(mutex_);
  if (!cause_.has_value()) {
    on_failure_ = std::move(fn);
    return;
  }
  const Error cause = *cause_;
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
