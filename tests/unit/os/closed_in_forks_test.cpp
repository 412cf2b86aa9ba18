// SPDX-License-Identifier: Apache-2.0
// The other side of a connection sees the end of a process although a fork of it lives on.
#include "os/closed_in_forks.hpp"

#include <sys/socket.h>

#include "support/check.hpp"
#include "support/forking.hpp"

struct Pair {
  std::array<int, 2> fds{-1, -1};
  Pair() { expect(socketpair(AF_UNIX, SOCK_STREAM, 0, fds.data()) == 0, "a pair of sockets"); }
  ~Pair() {
    for (const int fd : fds) ::close(fd);
  }
  Pair(const Pair&) = delete;
};

std::string open_ones(const std::vector<int>& fds) {
  std::string text;
  for (const int fd : fds) text += fcntl(fd, F_GETFD) >= 0 ? "open " : "closed ";
  return text;
}

ddp_case(a_fork_closes_what_is_noted_and_nothing_else) {
  const Pair a, b, c;
  const os::ClosedInForks first(a.fds[0]);
  auto middle = std::make_unique<os::ClosedInForks>(b.fds[0]);
  const os::ClosedInForks last(c.fds[0]);
  const std::vector<int> fds = {a.fds[0], b.fds[0], c.fds[0], a.fds[1]};
  expect_equal(in_fork(Ending::kAtOnce, [&] { return open_ones(fds); }), std::string("closed closed closed open "),
               "all noted");
  middle->forget();
  middle->forget();
  expect_equal(in_fork(Ending::kAtOnce, [&] { return open_ones(fds); }), std::string("closed open closed open "),
               "the middle one forgotten");
  middle.reset();
  expect_equal(open_ones(fds), std::string("open open open open "), "in the parent");
}

/// A fork has a list of its own, and forgetting what the parent noted does no harm.
ddp_case(a_fork_notes_its_own) {
  const Pair a;
  auto noted = std::make_unique<os::ClosedInForks>(a.fds[0]);
  const std::string said = in_fork(Ending::kAtOnce, [] {
    const Pair own;
    const os::ClosedInForks kept(own.fds[0]);
    return open_ones({own.fds[0]}) + in_fork(Ending::kAtOnce, [&] { return open_ones({own.fds[0], own.fds[1]}); });
  });
  expect_equal(said, std::string("open closed open "), "the fork and its fork");
}
