// SPDX-License-Identifier: Apache-2.0
// Stdin for rank 0. A file or a pipe is inherited as it is; a terminal is copied through a pipe, because ranks are
// background process groups and the kernel stops those when they read from the terminal.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ddprun/fd.hpp"
#include "ddprun/loop.hpp"

namespace ddp::ddprun {

class Input {
 public:
  /// `reads`: this ddprun's stdin is for rank 0. `on_line`: a line has been typed on the terminal.
  Input(Loop& loop, bool reads, std::function<void()> on_line);
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  /// What rank 0 gets as stdin. Valid until started() is called.
  [[nodiscard]] int for_rank_zero() const noexcept { return child_end_.open() ? child_end_.get() : 0; }
  /// Rank 0 runs: close our copy of its end, or we would never see that it has closed it.
  void started() noexcept { child_end_.reset(); }

  /// The loop waits for what can be read and written next.
  void wait();

 private:
  [[nodiscard]] bool wants_input() const;
  void read_some();
  void write_some();
  void close();

  std::function<void()> on_line_;
  Fd child_end_;
  Fd our_end_;
  std::string waiting_;
  std::optional<Ready> readable_, writable_, closed_;  // the terminal; our end, twice
};

}  // namespace ddp::ddprun
