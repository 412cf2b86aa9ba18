// SPDX-License-Identifier: Apache-2.0
// Why a pseudo-terminal: a C, C++ or Fortran program that writes into a pipe keeps some kilobytes in its own memory, so its
// lines come late, and the last ones not at all when it is killed. On a terminal it writes each line when it has ended.
// The bytes are already in the kernel when the rank dies, and stay readable until we close our end.
// It is no process's controlling terminal: Ctrl-C, job control and /dev/tty stay those of the terminal that ddprun runs on.
// Tested by process/ddprun_pty_test.sh.
#include "ddprun/channel.hpp"

#include <fcntl.h>
#include <termios.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/error.hpp"

namespace ddp::ddprun {
namespace {

constexpr int kLeastColumns = 20;

}  // namespace

Channel make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw make_error(DDP_ERROR_OUT_OF_MEMORY, "No pipe could be made (%s): use fewer ranks or raise ulimit -n.",
                     strerror(errno));
  }
  return {Fd(ends[0]), Fd(ends[1])};
}

Channel make_terminal(const winsize& size) {
  Channel channel{Fd(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)), Fd()};
  char path[64];
  termios mode{};
  if (!channel.ours.open() || unlockpt(channel.ours.get()) != 0 || ptsname_r(channel.ours.get(), path, sizeof path) != 0) {
    return make_pipe();
  }
  channel.theirs = Fd(open(path, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!channel.theirs.open() || tcgetattr(channel.theirs.get(), &mode) != 0) return make_pipe();
  cfmakeraw(&mode);  // no \n to \r\n, no echo
  if (tcsetattr(channel.theirs.get(), TCSANOW, &mode) != 0) return make_pipe();
  ioctl(channel.ours.get(), TIOCSWINSZ, &size);
  return channel;
}

winsize terminal_size(int margin) {
  winsize size{};
  for (const int fd : {1, 2}) {
    if (size.ws_col == 0 && ioctl(fd, TIOCGWINSZ, &size) != 0) size = {};
  }
  if (size.ws_col == 0) size.ws_col = 80;
  if (size.ws_row == 0) size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(std::max(size.ws_col - margin, kLeastColumns));
  return size;
}

}  // namespace ddp::ddprun
