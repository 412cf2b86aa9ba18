// SPDX-License-Identifier: Apache-2.0
#include "exchange/messages/messenger.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "control/call_state.hpp"
#include "control/texts.hpp"
#include "core/attempt.hpp"
#include "core/differing_ranks.hpp"
#include "os/cores.hpp"

namespace ddp::messages {
namespace {

constexpr int32_t kLooks = 100;               // without a pause, if every rank has a core
constexpr int64_t kLongestTurnsNs = 100'000;  // then, with turns for others, before the thread sleeps
constexpr int64_t kCrowdedTurnNs = 200'000;   // a turn of another program: a thread that sleeps gets its core back sooner
constexpr int32_t kWithoutTurns = 64;         // waits of this thread that then sleep after one look

std::string tag_of(const Request& request) {
  return request.key.space == Space::kProgram ? " with tag " + std::to_string(request.key.tag) : "";
}

}  // namespace

Messenger::Messenger(std::unique_ptr<Streams> streams, bootstrap::Control& control, bootstrap::Failure& failure,
                     int64_t timeout_ms)
    : control_(control), failure_(failure), timeout_ms_(timeout_ms), streams_(std::move(streams)) {
  links_.reserve(static_cast<size_t>(control.size()));
  for (int32_t peer = 0; peer < control.size(); ++peer) links_.emplace_back(peer, *streams_, queue_);
}

Messenger::~Messenger() { control_.calls().messages.set_look({}); }

void Messenger::let_watch() {
  control_.calls().messages.set_look([this](bootstrap::MessageState& state) { return look(state); });
}

// The thread that holds the lock may wait for the thread that looks.
bool Messenger::look(bootstrap::MessageState& state) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || waiters_ > 1) return false;
  state.reads = waiters_ > 0 || queue_.has_receives();
  for (int32_t peer = 0; peer < control_.size(); ++peer) {
    const Link& at = link(peer);
    state.reads = state.reads || at.is_busy();
    if (at.written() != 0 || at.read() != 0 || at.has_output())
      state.streams.push_back({peer, at.written(), at.read(), at.has_output()});
  }
  if (awaited_ != nullptr && !awaited_->done) state.awaited = {true, awaited_->peer, awaited_->sends, awaited_->key.tag};
  return state.streams.size() <= bootstrap::kMostStreams;
}

/// A thread that waits, as long as the object lives. Made and destroyed with the lock held, or taking it.
class Messenger::Waiter {
 public:
  Waiter(Messenger& messenger, std::unique_lock<std::mutex>& lock, const RequestPtr& request) noexcept
      : messenger_(messenger), lock_(lock), request_(request.get()) {
    if (messenger_.waiters_++ == 0) messenger_.awaited_ = request_;
    messenger_.control_.calls().messages.await(request->peer);
  }
  ~Waiter() {
    if (!lock_.owns_lock()) lock_.lock();
    --messenger_.waiters_;
    if (messenger_.awaited_ == request_) messenger_.awaited_ = nullptr;
    messenger_.control_.calls().messages.await(-1);
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

 private:
  Messenger& messenger_;
  std::unique_lock<std::mutex>& lock_;
  const Request* const request_;
};

RequestPtr Messenger::send(int32_t peer, const Key& key, const Content& content, const std::byte* data) {
  auto request = std::make_shared<Request>(Request{true, peer, key, content, const_cast<std::byte*>(data)});
  const std::lock_guard lock(mutex_);
  link(peer).send(request);
  if (link(peer).flush()) streams_->bell().ring();  // it may be what another thread waits for
  return request;
}

RequestPtr Messenger::receive(int32_t source, const Key& key, const Content& content, std::byte* data) {
  auto request = std::make_shared<Request>(Request{false, source, key, content, data});
  const std::lock_guard lock(mutex_);
  if (const ArrivedPtr message = queue_.take(source, key)) {
    link(message->source).hand_over(message, request);
    if (link(message->source).flush()) streams_->bell().ring();
  } else {
    queue_.post(request);
  }
  return request;
}

bool Messenger::progress() {
  bool moved = false;
  for (const int32_t peer : streams_->sources()) moved = link(peer).drain() || moved;
  for (Link& each : links_)
    if (each.has_output()) moved = each.flush() || moved;
  return moved;
}

void Messenger::wait(const RequestPtr& request) {
  Patience patience(timeout_ms_);
  on_error([&] { static_cast<void>(wait(request, patience, os::Deadline::never())); }, [&](const Error&) { drop(request); });
}

bool Messenger::wait_for(const RequestPtr& request, Patience& patience, int64_t ms) {
  return wait(request, patience, os::Deadline::in_ms(std::max<int64_t>(ms, 1)));
}

bool Messenger::wait(const RequestPtr& request, Patience& patience, os::Deadline end) {
  if (look_a_while(request)) return true;
  std::unique_lock lock(mutex_);
  const Waiter waiter(*this, lock, request);
  for (bool again = false; !request->done; again = true) {
    if (progress()) {
      streams_->bell().ring();  // it may be what another thread waits for
      continue;
    }
    check_hope(*request, patience);
    if (again && end.passed()) return false;  // before the group's limit, which breaks it: the caller has one of its own
    check_time(*request, patience);
    lock.unlock();
    sleep(std::clamp<int64_t>(end.left_ms(), 1, Patience::kLookAgainMs), request.get());
    lock.lock();
  }
  return true;
}

// At most `ms`; not if something can move, or this request is done.
void Messenger::sleep(int64_t ms, const Request* request) {
  streams_->bell().sleep(ms, [&] {
    const std::lock_guard lock(mutex_);
    const bool moved = progress();
    if (moved) streams_->bell().ring();
    return moved || (request != nullptr && request->done) || failure_.woken();
  });
}

void Messenger::attend(int64_t ms) { sleep(ms, nullptr); }

bool Messenger::test(const RequestPtr& request, Patience& patience) {
  const std::lock_guard lock(mutex_);
  while (!request->done) {
    if (progress()) {
      streams_->bell().ring();
      continue;
    }
    check_hope(*request, patience);
    return false;
  }
  return true;
}

// As long as every rank has a core. A rank that is late may wait for this very core, so others get their turn.
bool Messenger::look_a_while(const RequestPtr& request) {
  thread_local int32_t without_turns = 0;  // of the machine, not of the group: other programs want this core
  if (without_turns > 0) --without_turns;
  const bool has_core = without_turns == 0 && streams_->is_quick() && control_.size() <= os::usable_cores();
  const int32_t looks = has_core ? kLooks : 1;
  const int64_t end_ns = looks > 1 ? os::now_ns() + kLongestTurnsNs : 0;
  for (int32_t look = 0; look < looks || (looks > 1 && os::now_ns() < end_ns); ++look) {
    {
      const std::lock_guard lock(mutex_);
      if (!request->done && progress()) streams_->bell().ring();
      if (request->done) return true;
    }
    if (look < looks) continue;
    const int64_t begin_ns = os::now_ns();
    sched_yield();
    if (os::now_ns() - begin_ns > kCrowdedTurnNs) without_turns = kWithoutTurns;
  }
  return false;
}

bool Messenger::may_still_come(const Request& request) {
  if (request.peer != kAnySource) return streams_->is_on_its_way(request.peer);
  const std::vector<int32_t>& sources = streams_->sources();
  return std::any_of(sources.begin(), sources.end(), [this](int32_t peer) { return streams_->is_on_its_way(peer); });
}

// A rank left in good order, which is nothing to those that wait for another one.
bool Messenger::has_left(const Request& request) {
  const std::optional<Error> cause = failure_.cause();
  const int32_t first = cause.has_value() ? cause->culprit() : -1;
  const auto left = [&](int32_t peer) {
    return peer == first || streams_->has_ended(peer) || streams_->is_out_of_reach(peer);
  };
  if (request.peer != kAnySource) return left(request.peer);
  for (int32_t peer = 0; peer < control_.size(); ++peer)
    if (peer != control_.rank() && !left(peer)) return false;
  return true;
}

// What is complete completes, so this is asked when nothing could go on.
void Messenger::check_hope(const Request& request, Patience& patience) {
  failure_.check_fault();
  const bool has_ended = request.peer != kAnySource && streams_->has_ended(request.peer);
  if (failure_.broken() && has_left(request) && (has_ended || !may_still_come(request) || !patience.has_grace()))
    throw left(request);
  if (has_ended && !patience.has_grace()) throw gone(request);
}

void Messenger::check_time(const Request& request, Patience& patience) const {
  if (patience.is_late(request)) throw timed_out(request);
}

Error Messenger::timed_out(const Request& request) const {
  const std::string me = control_.member(control_.rank()).name();
  const std::string within = " within " + bootstrap::texts::seconds(timeout_ms_);
  if (request.peer == kAnySource) {
    const std::string kept = queue_.describe_kept(kAnySource, request.key.space);
    return make_error(DDP_ERROR_TIMED_OUT, "no rank sent %s a message%s%s%s%s", me.c_str(), tag_of(request).c_str(),
                      within.c_str(), kept.empty() ? "" : "; messages that nobody receives have come: ", kept.c_str())
        .with(ranks_that_differ(links_.size(), [&](size_t rank) { return static_cast<int32_t>(rank) != control_.rank(); }));
  }
  const std::string peer = control_.member(request.peer).name();
  const std::string waits = bootstrap::texts::waits_behind(control_, request.peer);
  const std::string progress = control_.describe_progress(request.peer) + (waits.empty() ? "" : "; " + waits);
  const Error error = [&] {
    if (request.sends)
      return make_error(DDP_ERROR_TIMED_OUT, "%s did not receive %s%s that %s sends it%s: %s", peer.c_str(),
                        request.content.describe().c_str(), tag_of(request).c_str(), me.c_str(), within.c_str(),
                        progress.c_str());
    const std::string kept = queue_.describe_kept(request.peer, request.key.space);
    return make_error(DDP_ERROR_TIMED_OUT, "%s did not send %s%s that %s receives%s: %s%s%s", peer.c_str(),
                      request.content.describe().c_str(), tag_of(request).c_str(), me.c_str(), within.c_str(),
                      progress.c_str(), kept.empty() ? "" : "; it has sent what nobody receives: ", kept.c_str());
  }();
  return error.about(request.peer);
}

// The first cause names one rank, and others may have left since.
Error Messenger::left(const Request& request) const {
  const Error first = failure_.cause().value_or(Error());
  if (request.peer == kAnySource || request.peer == first.culprit()) return first;
  const std::string peer = control_.member(request.peer).name();
  if (streams_->has_ended(request.peer))
    return Error(DDP_ERROR_ABORTED, peer + " sends and receives no messages any more: it left the group, or has ended")
        .about(request.peer);
  return Error(DDP_ERROR_ABORTED, "there is no connection for messages to " + peer +
                                      ", and none can be made any more (group option connect_all): " + first.text())
      .about(first.culprit());
}

Error Messenger::gone(const Request& request) const {
  return make_error(DDP_ERROR_PEER_FAILED, "the connection for messages to %s has ended: %s",
                    control_.member(request.peer).name().c_str(), control_.describe_progress(request.peer).c_str())
      .about(request.peer);
}

bool Messenger::give_up(const RequestPtr& request) {
  const std::lock_guard lock(mutex_);
  if (request->done) return true;
  if ((request->sends || request->moves) && !failure_.broken()) return false;
  queue_.withdraw(request);
  for (Link& each : links_) each.forget(request);
  request->fail(Error(DDP_ERROR_INVALID_STATE, "the message was given up"));
  return true;
}

void Messenger::drop(const RequestPtr& request) noexcept {
  const std::lock_guard lock(mutex_);
  if (request->done) return;
  queue_.withdraw(request);
  for (Link& each : links_) each.forget(request);
}

void Messenger::finish() noexcept {
  const std::lock_guard lock(mutex_);
  streams_->finish();
}

}  // namespace ddp::messages
