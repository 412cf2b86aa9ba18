// SPDX-License-Identifier: Apache-2.0
// Ranks as processes: fork, talk back, kill, and collect, always within a limit.
//
//   Procs procs(4, [](int rank, Reporter& report) {   // runs in the child; may throw
//     ...; report.say("joined"); ...; return std::string("the text of the result"); or nothing
//   });
//   procs.wait_for(2, "joined"); procs.signal(2, SIGKILL);
//   std::vector<ProcResult> results = procs.wait();     // exit codes, texts, times
//
// A thrown ddp::Error gives exit code 1 and the text "DDP_ERROR_...: sentence". Children never outlive the object, nor the
// test program. Fork from a test program that has no other threads at that moment.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ddp::test {

struct ProcResult {
  int exit_code = -1;      // -1: ended by a signal
  int signal = 0;          // that signal
  bool timed_out = false;  // was killed by us because the limit had passed
  std::string said;        // texts of report.say(), one line each
  std::string text;        // what the body returned, or the error
  double seconds = 0;      // from the fork until the body was done (or the process was reaped)

  /// "exit code 1, DDP_ERROR_TIMED_OUT: ..." for failure messages.
  [[nodiscard]] std::string describe() const;
};

/// With it a child sends lines to the test before it ends.
class Reporter {
 public:
  explicit Reporter(int fd) noexcept : fd_(fd) {}
  /// One line, at once.
  void say(std::string_view line);

 private:
  friend class Procs;
  void send(char kind, std::string_view text);
  int fd_;
};

class Procs {
 public:
  /// Gives the text of the result, or nothing.
  struct Body : std::function<std::string(int rank, Reporter& report)> {
    using function::function;
    template <class Given>
    requires std::is_void_v<std::invoke_result_t<const Given&, int, Reporter&>> Body(const Given& given)
        : function([given](int rank, Reporter& report) {
            given(rank, report);
            return std::string();
          }) {}
  };

  /// Fork `size` children; they run at once.
  Procs(int size, const Body& body);
  /// Kills and reaps what is left.
  ~Procs();
  Procs(const Procs&) = delete;
  Procs& operator=(const Procs&) = delete;

  [[nodiscard]] pid_t pid(int rank) const { return children_.at(static_cast<size_t>(rank)).pid; }
  void signal(int rank, int number);
  /// Wait until the child has sent a line that contains `part`. Throws if it ends first or the limit passes.
  void wait_for(int rank, std::string_view part, int64_t limit_ms = 20'000);
  /// Has this child ended? Takes the lines that it has sent.
  bool ended(int rank);
  /// Wait until this child has ended.
  const ProcResult& wait_one(int rank, int64_t limit_ms = 20'000);
  /// Wait until all have ended; those that have not after `limit_ms` are killed and marked timed_out.
  std::vector<ProcResult> wait(int64_t limit_ms = 30'000);

 private:
  struct Child {
    pid_t pid = -1;
    int fd = -1;  // read end of its pipe; -1 once it was closed
    bool reaped = false;
    std::string bytes;  // not yet understood
    double started = 0;
    ProcResult result;
  };
  void pump(int timeout_ms);
  static void read_from(Child& child);
  static void reap(Child& child, bool block);
  static void understand(Child& child);

  std::vector<Child> children_;
};

/// All children end well; throws what is known of the first that did not.
void expect_success(Procs& procs, int64_t limit_ms = 30'000);
void expect_success_of(Procs& procs, const std::vector<int>& ranks, int64_t limit_ms = 20'000);

}  // namespace ddp::test
