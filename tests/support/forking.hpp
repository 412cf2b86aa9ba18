// SPDX-License-Identifier: Apache-2.0
// A fork in the middle of things, as a program does it that knows nothing of libddp: the child runs a body and ends in the
// way that is asked for.
#pragma once

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>

namespace ddp::test {

/// What a child inherits it leaves where it is, so the leak checker has nothing to look for in it.
inline bool in_forked_child = false;

enum class Ending { kAtOnce, kByExit };  // _exit(), or exit() with its static objects and handlers

/// The child's result: the text of the body, or "hung" if it has not ended after `limit_ms` (it is killed then).
inline std::string in_fork(Ending ending, const std::function<std::string()>& body, int limit_ms = 20'000) {
  std::fflush(nullptr);
  int pipes[2];
  if (pipe(pipes) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    in_forked_child = true;
    std::string text;
    try {
      text = body();
    } catch (const std::exception& error) {
      text = error.what();
    }
    if (write(pipes[1], text.data(), text.size()) < 0) _exit(2);
    if (ending == Ending::kAtOnce) _exit(0);
    std::exit(0);
  }
  close(pipes[1]);
  std::string text;
  for (bool open = true; open;) {  // the pipe ends with the child
    pollfd look{pipes[0], POLLIN, 0};
    if (poll(&look, 1, limit_ms) == 0) {
      kill(child, SIGKILL);
      text += " hung";
      limit_ms = -1;
      continue;
    }
    char some[512];
    const ssize_t got = read(pipes[0], some, sizeof some);
    if (got > 0) text.append(some, static_cast<size_t>(got));
    open = got > 0;
  }
  close(pipes[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) text += " (status " + std::to_string(status) + ")";
  return text;
}

}  // namespace ddp::test

extern "C" __attribute__((used)) inline int __lsan_is_turned_off() { return ddp::test::in_forked_child ? 1 : 0; }
