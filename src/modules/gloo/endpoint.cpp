// SPDX-License-Identifier: Apache-2.0
#include "modules/gloo/endpoint.hpp"

#include <signal.h>
#include <unistd.h>

#include <ctime>
#include <stdexcept>

#include "modules/gloo/pairs.hpp"

namespace ddp::gloo {
namespace {

// Signals around calls into Gloo, which knows nothing of them: it writes to sockets without MSG_NOSIGNAL, on its own thread
// and on the caller's, and its thread takes whatever signals its creator took. The process's dispositions are never changed.
/// No signal reaches this thread, nor threads that are made meanwhile and keep their creator's mask.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() noexcept;
  ~AllSignalsBlocked();
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

/// A SIGPIPE that this thread causes meanwhile vanishes; one that was pending before stays.
class NoSigpipe {
 public:
  NoSigpipe() noexcept;
  ~NoSigpipe();
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t before_{};
  bool was_pending_ = false;
};

sigset_t only_sigpipe() noexcept {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

bool sigpipe_is_pending() noexcept {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

AllSignalsBlocked::AllSignalsBlocked() noexcept {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before_);
}

AllSignalsBlocked::~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

NoSigpipe::NoSigpipe() noexcept {
  const sigset_t set = only_sigpipe();
  was_pending_ = sigpipe_is_pending();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

NoSigpipe::~NoSigpipe() {
  if (!was_pending_ && sigpipe_is_pending()) {
    const sigset_t set = only_sigpipe();
    const timespec at_once{};
    sigtimedwait(&set, nullptr, &at_once);
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace

Endpoint::Endpoint(int32_t index, int32_t size) : index_(index) {
  const AllSignalsBlocked blocked;  // the device's thread inherits it
  const auto device = make_unreachable_device();
  for (auto& context : contexts_) context = std::make_shared<AdmittedPairs>(device, index, size);
}

Endpoint::~Endpoint() = default;

bool Endpoint::is_aborted() {
  const std::lock_guard lock(mutex_);
  return aborted_;
}

ddp_socket_result Endpoint::attach(int32_t peer, const int32_t (&descriptors)[kLanes],
                                   std::unique_ptr<Seal> (&seals)[kLanes]) {
  const AllSignalsBlocked blocked;
  try {
    peers_.reserve(peers_.size() + 1);
    contexts_[0]->attach(peer, descriptors[0], std::move(seals[0]));
  } catch (const std::exception&) {
    ::close(descriptors[1]);
    throw;
  }
  contexts_[1]->attach(peer, descriptors[1], std::move(seals[1]));
  peers_.push_back(peer);
  return is_aborted() ? DDP_SOCKET_ABORTED : DDP_SOCKET_DONE;
}

// Before a message is posted, which cannot be taken back when memory runs out.
void Endpoint::make_room() {
  if (!unused_.empty()) return;
  unused_.reserve(messages_.size() + 1);  // so that giving a ticket back never fails
  messages_.emplace_back();
  unused_.push_back(static_cast<int64_t>(messages_.size()));
}

int64_t Endpoint::keep(std::unique_ptr<Transfer> buffer, bool is_send) noexcept {
  const int64_t ticket = unused_.back();
  unused_.pop_back();
  messages_[static_cast<size_t>(ticket - 1)] = Message{std::move(buffer), is_send};
  return ticket;
}

ddp_socket_result Endpoint::post_send(int32_t peer, uint64_t slot, const void* data, size_t bytes, int64_t& ticket) {
  if (is_aborted()) return DDP_SOCKET_ABORTED;
  if (closed_ || bytes == 0) throw std::logic_error("the connections are closed");
  const NoSigpipe guard;  // Gloo writes at once, on this thread, if the peer is ready
  make_room();
  auto buffer = std::make_unique<Transfer>(context(peer > index_), const_cast<void*>(data), bytes);
  buffer->send(peer, slot, 0, bytes);
  ticket = keep(std::move(buffer), true);
  return DDP_SOCKET_DONE;
}

ddp_socket_result Endpoint::post_receive(int32_t peer, uint64_t slot, void* data, size_t bytes, int64_t& ticket) {
  if (is_aborted()) return DDP_SOCKET_ABORTED;
  if (closed_ || bytes == 0) throw std::logic_error("the connections are closed");
  const NoSigpipe guard;  // a receive tells the peer that it is ready
  make_room();
  auto buffer = std::make_unique<Transfer>(context(peer < index_), data, bytes);
  buffer->recv(peer, slot, 0, bytes);
  ticket = keep(std::move(buffer), false);
  return DDP_SOCKET_DONE;
}

ddp_socket_result Endpoint::wait(int64_t ticket, std::chrono::milliseconds timeout) {
  if (ticket < 1 || ticket > static_cast<int64_t>(messages_.size())) throw std::logic_error("no such message");
  Message& message = messages_[static_cast<size_t>(ticket - 1)];
  if (message.buffer == nullptr) throw std::logic_error("the connections are closed");
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return DDP_SOCKET_ABORTED;
    waiting_ = &message;
  }
  const auto over = [this] {
    const std::lock_guard lock(mutex_);
    waiting_ = nullptr;
    return aborted_;
  };
  Transfer::Wait result;
  try {
    result = message.is_send ? message.buffer->wait_sent(timeout) : message.buffer->wait_received(timeout);
  } catch (const std::exception&) {
    if (over()) return DDP_SOCKET_ABORTED;
    throw;
  }
  if (over() || result == Transfer::Wait::kAborted) return DDP_SOCKET_ABORTED;
  if (result == Transfer::Wait::kTimedOut) return DDP_SOCKET_TIMED_OUT;
  message.buffer.reset();
  unused_.push_back(ticket);
  return DDP_SOCKET_DONE;
}

template <class Fn>
void Endpoint::each_open(const Fn& fn) noexcept {
  for (const auto& context : contexts_)
    for (const int32_t peer : peers_)
      if (!closed_) fn(*context, peer);
}

uint64_t Endpoint::moved() noexcept {
  uint64_t sum = 0;
  each_open([&](AdmittedPairs& pairs, int32_t peer) { sum += pairs.moved(peer); });
  return sum;
}

int64_t Endpoint::gaps() noexcept {
  int64_t sum = 0;
  each_open([&](AdmittedPairs& pairs, int32_t peer) { sum += pairs.gaps(peer); });
  return sum;
}

std::pair<int32_t, const char*> Endpoint::changed() noexcept {
  for (const auto& pairs : contexts_)
    for (const int32_t peer : peers_)
      if (const char* why = pairs->changed(peer); why != nullptr) return {peer, why};
  return {-1, nullptr};
}

// An abort that comes just before Gloo's wait begins is kept by the buffer, so none is lost.
void Endpoint::abort() noexcept {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  if (waiting_ != nullptr && waiting_->is_send) waiting_->buffer->abortWaitSend();
  if (waiting_ != nullptr && !waiting_->is_send) waiting_->buffer->abortWaitRecv();
}

// Pairs first: a buffer that is freed while its bytes still arrive keeps Gloo's thread spinning.
void Endpoint::close() {
  closed_ = true;
  for (const auto& context : contexts_)
    for (const int32_t peer : peers_) context->getPair(peer)->close();
  messages_.clear();
  unused_.clear();
}

}  // namespace ddp::gloo
