// SPDX-License-Identifier: Apache-2.0
// One place where output goes: a queue that is written when the place can take more, so that a slow reader
// (a pager, a stopped terminal) never stops the launcher from watching its ranks.
#pragma once

#include <string>
#include <string_view>

#include "ddprun/fd.hpp"

namespace ddp::ddprun {

class Sink {
 public:
  enum class State { kOpen, kBroken, kBrokenReported };

  /// `fd` stays the caller's.
  Sink(int fd, std::string name);
  /// Owns the file.
  Sink(Fd file, std::string name);

  void put(std::string_view text);
  [[nodiscard]] bool pending() const noexcept { return state_ == State::kOpen && done_ < queue_.size(); }
  /// So much is waiting that no more should be read.
  [[nodiscard]] bool full() const noexcept { return pending() && queue_.size() - done_ > kFullBytes; }
  [[nodiscard]] bool terminal() const noexcept { return terminal_; }
  [[nodiscard]] int fd() const noexcept { return fd_; }
  /// Call when the place takes more; does not block.
  void write_some();
  /// What went wrong, once; "" otherwise.
  [[nodiscard]] std::string take_complaint();

 private:
  static constexpr size_t kFullBytes = 1 << 20;

  Fd file_;
  int fd_;
  std::string name_;
  bool regular_;
  bool terminal_;
  State state_ = State::kOpen;
  int cause_ = 0;
  std::string queue_;
  size_t done_ = 0;
};

}  // namespace ddp::ddprun
