// SPDX-License-Identifier: Apache-2.0
#include "support/procs.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <stdexcept>

#include "core/error.hpp"

// Present in programs built with the address sanitizer.
extern "C" __attribute__((weak)) int __lsan_do_recoverable_leak_check();
// Present in programs that count which lines they execute (tests/coverage.sh).
extern "C" __attribute__((weak)) void __gcov_dump();

namespace ddp::test {
namespace {

constexpr char kSaid = 's';
constexpr char kResult = 'r';
constexpr char kError = 'e';
constexpr int kLeakExitCode = 23;

double now_seconds() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

int run_body(const Procs::Body& body, int rank, std::string& text, char& kind, Reporter& report) {
  try {
    text = body(rank, report);
    kind = kResult;
    return 0;
  } catch (const Error& error) {
    text = std::string(status_name(error.status())) + ": " + error.text();
  } catch (const std::exception& error) {
    text = error.what();
  }
  kind = kError;
  return 1;
}

}  // namespace

std::string ProcResult::describe() const {
  std::string how = timed_out ? "had not ended in time" : "exit code " + std::to_string(exit_code);
  if (signal != 0 && !timed_out) how = std::string("ended by signal ") + strsignal(signal);
  return how + ", \"" + text + "\", after " + std::to_string(seconds) + " s; said: " + said;
}

void Reporter::say(std::string_view line) { send(kSaid, line); }

void Reporter::send(char kind, std::string_view text) {
  // kind, length, bytes; smaller than PIPE_BUF where it matters, and there is one writer anyway
  std::string message(1, kind);
  const auto size = static_cast<uint32_t>(text.size());
  message.append(reinterpret_cast<const char*>(&size), sizeof size);
  message.append(text);
  size_t done = 0;
  while (done < message.size()) {
    const ssize_t n = ::write(fd_, message.data() + done, message.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

Procs::Procs(int size, const Body& body) {
  std::fflush(nullptr);
  const pid_t parent = getpid();
  for (int rank = 0; rank < size; ++rank) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
    Child child;
    child.started = now_seconds();
    child.pid = fork();
    if (child.pid < 0) throw std::runtime_error("fork failed");
    if (child.pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(99);
      close(ends[0]);
      for (const Child& sibling : children_) close(sibling.fd);
      Reporter report(ends[1]);
      std::string text;
      char kind = kResult;
      int code = run_body(body, rank, text, kind, report);
      report.send(kind, text);
      if (code == 0 && __lsan_do_recoverable_leak_check != nullptr && __lsan_do_recoverable_leak_check() != 0)
        code = kLeakExitCode;
      std::fflush(nullptr);
      if (__gcov_dump != nullptr) exit(code);  // tests/coverage.sh: that writes the counts of the shared library too
      _exit(code);
    }
    close(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    child.fd = ends[0];
    children_.push_back(child);
  }
}

Procs::~Procs() {
  for (Child& child : children_) {
    if (!child.reaped) {
      ::kill(child.pid, SIGKILL);
      reap(child, true);
    }
    if (child.fd >= 0) close(child.fd);
  }
}

void Procs::signal(int rank, int number) {
  Child& child = children_.at(static_cast<size_t>(rank));
  if (!child.reaped) ::kill(child.pid, number);
}

void Procs::understand(Child& child) {
  constexpr size_t kHead = 1 + sizeof(uint32_t);
  while (child.bytes.size() >= kHead) {
    uint32_t size = 0;
    std::memcpy(&size, child.bytes.data() + 1, sizeof size);
    if (child.bytes.size() < kHead + size) return;
    const char kind = child.bytes[0];
    const std::string text = child.bytes.substr(kHead, size);
    child.bytes.erase(0, kHead + size);
    if (kind == kSaid) {
      child.result.said += text + "\n";
    } else {
      child.result.text = text;
      child.result.seconds = now_seconds() - child.started;
    }
  }
}

void Procs::read_from(Child& child) {
  char buffer[4096];
  while (child.fd >= 0) {
    const ssize_t n = ::read(child.fd, buffer, sizeof buffer);
    if (n > 0) {
      child.bytes.append(buffer, static_cast<size_t>(n));
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && errno == EAGAIN) {
      break;
    } else {
      close(child.fd);
      child.fd = -1;
    }
  }
  understand(child);
}

void Procs::reap(Child& child, bool block) {
  if (child.reaped) return;
  int status = 0;
  pid_t got = 0;
  do {
    got = waitpid(child.pid, &status, block ? 0 : WNOHANG);
  } while (got < 0 && errno == EINTR);
  if (got != child.pid) return;
  child.reaped = true;
  if (child.result.seconds == 0) child.result.seconds = now_seconds() - child.started;
  if (WIFEXITED(status)) child.result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) child.result.signal = WTERMSIG(status);
}

void Procs::pump(int timeout_ms) {
  std::vector<pollfd> fds;
  for (const Child& child : children_)
    if (child.fd >= 0) fds.push_back({child.fd, POLLIN, 0});
  ::poll(fds.data(), fds.size(), timeout_ms);
  for (Child& child : children_) {
    reap(child, false);  // before reading, so that the text of an ended child is read whole
    read_from(child);
  }
}

void Procs::wait_for(int rank, std::string_view part, int64_t limit_ms) {
  Child& child = children_.at(static_cast<size_t>(rank));
  const double limit = now_seconds() + static_cast<double>(limit_ms) * 1e-3;
  while (child.result.said.find(part) == std::string::npos) {
    if (child.reaped)
      throw std::runtime_error("rank " + std::to_string(rank) + " ended before it said \"" + std::string(part) +
                               "\": " + child.result.describe());
    if (now_seconds() > limit)
      throw std::runtime_error("rank " + std::to_string(rank) + " did not say \"" + std::string(part) + "\" in time");
    pump(5);
  }
}

bool Procs::ended(int rank) {
  pump(0);
  return children_.at(static_cast<size_t>(rank)).reaped;
}

const ProcResult& Procs::wait_one(int rank, int64_t limit_ms) {
  Child& child = children_.at(static_cast<size_t>(rank));
  const double limit = now_seconds() + static_cast<double>(limit_ms) * 1e-3;
  while (!child.reaped && now_seconds() < limit) pump(5);
  if (!child.reaped) throw std::runtime_error("rank " + std::to_string(rank) + " did not end in time");
  return child.result;
}

std::vector<ProcResult> Procs::wait(int64_t limit_ms) {
  const double limit = now_seconds() + static_cast<double>(limit_ms) * 1e-3;
  const auto all_reaped = [this] {
    for (const Child& child : children_)
      if (!child.reaped) return false;
    return true;
  };
  while (!all_reaped() && now_seconds() < limit) pump(5);
  std::vector<ProcResult> results;
  for (Child& child : children_) {
    if (!child.reaped) {
      child.result.timed_out = true;
      ::kill(child.pid, SIGKILL);
      reap(child, true);
    }
    read_from(child);
    results.push_back(child.result);
  }
  return results;
}

namespace {

void expect_success(int rank, const ProcResult& result) {
  if (result.exit_code != 0 || result.timed_out)
    throw std::runtime_error("rank " + std::to_string(rank) + ": " + result.describe());
}

}  // namespace

void expect_success(Procs& procs, int64_t limit_ms) {
  int rank = 0;
  for (const ProcResult& result : procs.wait(limit_ms)) expect_success(rank++, result);
}

void expect_success_of(Procs& procs, const std::vector<int>& ranks, int64_t limit_ms) {
  for (const int rank : ranks) expect_success(rank, procs.wait_one(rank, limit_ms));
}

}  // namespace ddp::test
