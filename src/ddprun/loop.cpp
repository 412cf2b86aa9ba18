// SPDX-License-Identifier: Apache-2.0
// Asio makes every descriptor non-blocking before it waits for it, and that flag belongs to all processes that share the
// descriptor. So a shared one is in an epoll set of its own, and Asio waits for that set.
// Tested by unit/ddprun/loop_test.cpp and process/ddprun_*_test.sh.
#include "ddprun/loop.hpp"

#include <sys/epoll.h>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "ddprun/fd.hpp"

namespace ddp::ddprun {
namespace {

using Wait = asio::posix::stream_descriptor::wait_type;

Wait wait_of(Ready::For what) {
  return what == Ready::For::kReading ? Wait::wait_read : what == Ready::For::kWriting ? Wait::wait_write : Wait::wait_error;
}

uint32_t events_of(Ready::For what) {
  if (what == Ready::For::kReading) return EPOLLIN;
  return what == Ready::For::kWriting ? uint32_t{EPOLLOUT} : 0;  // errors come unasked
}

/// A set with this descriptor; closed if the descriptor cannot be in one.
Fd make_set(int fd, Ready::For what) {
  Fd set(epoll_create1(EPOLL_CLOEXEC));
  if (!set.open()) throw make_error(DDP_ERROR_OUT_OF_MEMORY, "No descriptor could be made: %s.", strerror(errno));
  epoll_event event{};
  event.events = events_of(what);
  if (epoll_ctl(set.get(), EPOLL_CTL_ADD, fd, &event) != 0) set.reset();
  return set;
}

}  // namespace

struct Loop::Impl {
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
};

Loop::Loop() : impl_(std::make_unique<Impl>()) {}
Loop::~Loop() = default;

void Loop::wait(int64_t most_ms) {
  impl_->io.restart();
  if (most_ms > 0) impl_->io.run_one_for(std::chrono::milliseconds(most_ms));  // for 0 it would not even look
  impl_->io.poll();
}

struct Ready::State {
  State(asio::io_context& with, std::function<void()> then) : io(with), descriptor(with), handler(std::move(then)) {}

  asio::io_context& io;
  Fd set;                                     // of a shared descriptor
  asio::posix::stream_descriptor descriptor;  // of the set, or ours; none: it is always ready
  Wait what = Wait::wait_read;
  std::function<void()> handler;
  bool waits = false;
  bool over = false;
};

Ready::Ready(Loop& loop, int fd, Whose whose, For what, std::function<void()> handler)
    : state_(std::make_shared<State>(loop.impl_->io, std::move(handler))) {
  int waited_for = fd;
  if (whose == Whose::kOurs) {
    state_->what = wait_of(what);
  } else {
    state_->set = make_set(fd, what);
    waited_for = state_->set.get();
  }
  asio::error_code refused;  // a wait then ends at once, and the handler finds out
  if (waited_for >= 0) state_->descriptor.assign(waited_for, refused);
}

Ready::~Ready() {
  state_->over = true;
  if (state_->descriptor.is_open()) state_->descriptor.release();
}

void Ready::wait() {
  if (std::exchange(state_->waits, true)) return;
  const auto call = [state = state_] {
    state->waits = false;
    if (!state->over) state->handler();
  };
  if (!state_->descriptor.is_open()) return asio::post(state_->io, call);
  state_->descriptor.async_wait(state_->what, [call](const asio::error_code&) { call(); });
}

}  // namespace ddp::ddprun
