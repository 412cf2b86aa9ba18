// SPDX-License-Identifier: Apache-2.0
// The terminal is read only while we are its foreground job, else the kernel would stop us too.
// Tested by process/ddprun_test.sh (files and pipes).
#include "ddprun/input.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "core/error.hpp"

namespace ddp::ddprun {

Input::Input() {
  if (isatty(0) != 1) return;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw make_error(DDP_ERROR_OUT_OF_MEMORY, "No pipe could be made: %s.", strerror(errno));
  child_end_ = Fd(ends[0]);
  our_end_ = Fd(ends[1]);
  fcntl(our_end_.get(), F_SETFL, O_NONBLOCK);
}

void Input::append_poll(std::vector<pollfd>& entries) const {
  const bool want = our_end_.open() && waiting_.empty() && tcgetpgrp(0) == getpgrp();
  entries.push_back({want ? 0 : -1, POLLIN, 0});
  entries.push_back({our_end_.get(), static_cast<short>(waiting_.empty() ? 0 : POLLOUT), 0});
}

bool Input::handle(const pollfd* entries) {
  bool typed = false;
  if (entries[0].revents != 0) {
    char buffer[4096];
    const ssize_t got = read(0, buffer, sizeof buffer);
    if (got > 0) waiting_.assign(buffer, static_cast<size_t>(got));
    typed = waiting_.find('\n') != std::string::npos;
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) our_end_.reset();  // Ctrl-D, or the terminal was closed
  }
  if (our_end_.open() && (entries[1].revents & (POLLERR | POLLHUP)) != 0) our_end_.reset();  // rank 0 closed its stdin
  if (our_end_.open() && (entries[1].revents & POLLOUT) != 0) {
    const ssize_t written = write(our_end_.get(), waiting_.data(), waiting_.size());
    if (written > 0) waiting_.erase(0, static_cast<size_t>(written));
  }
  return typed;
}

}  // namespace ddp::ddprun
