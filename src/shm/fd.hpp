// SPDX-License-Identifier: Apache-2.0
// A file descriptor that closes itself.
// Tested by conformance/pass_test.cpp.
#pragma once

#include <unistd.h>

#include <utility>

namespace ddp::shm {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace ddp::shm
