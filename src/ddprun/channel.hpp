// SPDX-License-Identifier: Apache-2.0
// The way of one output stream of a rank to us: a pseudo-terminal or a pipe.
#pragma once

#include <sys/ioctl.h>

#include "ddprun/fd.hpp"

namespace ddp::ddprun {

struct Channel {
  Fd ours;    // to read from; both ends are closed on exec
  Fd theirs;  // to write to
};

/// Throws OUT_OF_MEMORY.
[[nodiscard]] Channel make_pipe();

/// A pseudo-terminal that passes bytes unchanged, or a pipe where the system gives no pseudo-terminal.
[[nodiscard]] Channel make_terminal(const winsize& size);

/// The size of the terminal that one of our own outputs is, or 24 rows of 80 columns; less `margin` columns.
[[nodiscard]] winsize terminal_size(int margin);

}  // namespace ddp::ddprun
