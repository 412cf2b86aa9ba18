// SPDX-License-Identifier: Apache-2.0
// Descriptors that we did not open keep their flags (O_NONBLOCK is shared with the shell that started us), so the loop says
// when to write, and how much is safe: a pipe or a terminal that is writable takes PIPE_BUF bytes without blocking, a file
// takes anything.
// Tested by process/ddprun_output_test.sh.
#include "ddprun/sink.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace ddp::ddprun {
namespace {

bool is_regular(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

Sink::Sink(int fd, std::string name)
    : fd_(fd), name_(std::move(name)), regular_(is_regular(fd)), terminal_(isatty(fd) == 1) {}

Sink::Sink(Fd file, std::string name) : Sink(file.get(), std::move(name)) { file_ = std::move(file); }

void Sink::put(std::string_view text) {
  if (state_ != State::kOpen) return;
  queue_.append(text);
}

void Sink::write_some() {
  if (!pending()) return;
  const size_t left = queue_.size() - done_;
  const ssize_t written = write(fd_, queue_.data() + done_, regular_ ? left : std::min<size_t>(left, PIPE_BUF));
  if (written < 0) {
    if (errno == EINTR || errno == EAGAIN) return;
    cause_ = errno;
    state_ = State::kBroken;
    queue_.clear();
    done_ = 0;
    return;
  }
  done_ += static_cast<size_t>(written);
  if (done_ == queue_.size()) {
    queue_.clear();
    done_ = 0;
  } else if (done_ > kFullBytes) {
    queue_.erase(0, done_);  // seldom, so that a long queue costs no quadratic time
    done_ = 0;
  }
}

std::string Sink::take_complaint() {
  if (state_ != State::kBroken) return "";
  state_ = State::kBrokenReported;
  return name_ + " takes no more output (" + strerror(cause_) + "); the ranks go on and their output is dropped";
}

}  // namespace ddp::ddprun
