// SPDX-License-Identifier: Apache-2.0
// The terminal is read only while we are its foreground job, else the kernel would stop us too.
// Tested by process/ddprun_test.sh (files and pipes).
#include "ddprun/input.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.hpp"

namespace ddp::ddprun {

Input::Input(Loop& loop, bool reads, std::function<void()> on_line) : on_line_(std::move(on_line)) {
  if (!reads || isatty(0) != 1) return;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw make_error(DDP_ERROR_OUT_OF_MEMORY, "No pipe could be made: %s.", strerror(errno));
  child_end_ = Fd(ends[0]);
  our_end_ = Fd(ends[1]);
  fcntl(our_end_.get(), F_SETFL, O_NONBLOCK);
  const auto when = [&](std::optional<Ready>& ready, int fd, Ready::For what, void (Input::*then)()) {
    ready.emplace(loop, fd, Ready::Whose::kShared, what, [this, then] { (this->*then)(); });
  };
  when(readable_, 0, Ready::For::kReading, &Input::read_some);
  when(writable_, our_end_.get(), Ready::For::kWriting, &Input::write_some);
  when(closed_, our_end_.get(), Ready::For::kEnd, &Input::close);  // rank 0 closed its stdin
}

bool Input::wants_input() const { return our_end_.open() && waiting_.empty() && tcgetpgrp(0) == getpgrp(); }

void Input::wait() {
  if (!our_end_.open()) return;
  closed_->wait();
  if (!waiting_.empty()) writable_->wait();
  if (wants_input()) readable_->wait();
}

void Input::read_some() {
  if (!wants_input()) return;
  char buffer[4096];
  const ssize_t got = read(0, buffer, sizeof buffer);
  if (got > 0) waiting_.assign(buffer, static_cast<size_t>(got));
  if (waiting_.find('\n') != std::string::npos) on_line_();
  if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) close();  // Ctrl-D, or the terminal has gone
}

void Input::write_some() {
  if (!our_end_.open()) return;
  const ssize_t written = write(our_end_.get(), waiting_.data(), waiting_.size());
  if (written > 0) waiting_.erase(0, static_cast<size_t>(written));
}

void Input::close() {
  readable_.reset();
  writable_.reset();
  closed_.reset();
  our_end_.reset();
}

}  // namespace ddp::ddprun
