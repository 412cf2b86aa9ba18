// SPDX-License-Identifier: Apache-2.0
// The signals that the launcher handles, as a descriptor for poll().
#pragma once

#include <signal.h>

#include "ddprun/fd.hpp"

namespace ddp::ddprun {

/// Does it ask a program to stop?
[[nodiscard]] constexpr bool asks_to_stop(int signal) noexcept {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

class Signals {
 public:
  /// From here on these signals are read, not delivered. Those that our parent has set to be ignored (nohup) stay ignored.
  Signals();

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// The next signal that came, 0: none.
  [[nodiscard]] int take() noexcept;
  /// The mask to start the ranks with.
  [[nodiscard]] const sigset_t& original_mask() const noexcept { return original_mask_; }

 private:
  Fd fd_;
  sigset_t original_mask_{};
};

}  // namespace ddp::ddprun
