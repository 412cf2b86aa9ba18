// SPDX-License-Identifier: Apache-2.0
// Stdin for rank 0. A file or a pipe is inherited as it is; a terminal is copied through a pipe, because ranks are
// background process groups and the kernel stops those when they read from the terminal.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "ddprun/fd.hpp"

namespace ddp::ddprun {

class Input {
 public:
  Input();

  /// What rank 0 gets as stdin. Valid until started() is called.
  [[nodiscard]] int for_rank_zero() const noexcept { return child_end_.open() ? child_end_.get() : 0; }
  /// Rank 0 runs: close our copy of its end, or we would never see that it has closed it.
  void started() noexcept { child_end_.reset(); }

  /// Two entries; hand the same to handle().
  void append_poll(std::vector<pollfd>& entries) const;
  /// True if a line has been typed.
  bool handle(const pollfd* entries);

 private:
  Fd child_end_;
  Fd our_end_;
  std::string waiting_;
};

}  // namespace ddp::ddprun
