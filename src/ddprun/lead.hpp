// SPDX-License-Identifier: Apache-2.0
// How one ddprun leads those that it has started on other machines: through their stdin. First variables for the ranks, a
// line each, and an empty line: no secret is in a command line. Then a line with a number for each signal, the orders of
// orders.hpp, and 0 at intervals, so that silence means that the connection is lost. The end of the stream, or silence
// (--silence), ends the ranks of that machine.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ddprun/fd.hpp"
#include "os/clock.hpp"

namespace ddp::ddprun {

/// The leading side: one pipe for each machine.
class Leads {
 public:
  /// A machine treats silence of this many seconds as the end of the connection.
  explicit Leads(double silence_s) noexcept : beat_ms_(static_cast<int64_t>(silence_s * 1e3) / 6) {}
  /// What the process of this machine gets as its stdin, with `header` in it. Valid until started() or the next call.
  [[nodiscard]] int open(size_t machine, const std::string& header);
  /// The processes run.
  void started() noexcept { theirs_.reset(); }
  void signal(int number) noexcept { say_to_all(std::to_string(number)); }
  /// A line. One that does not get through is lost with its machine.
  void say(size_t machine, const std::string& line) noexcept;
  void say_to_all(const std::string& line) noexcept;
  void close(size_t machine) noexcept { ours_[machine].reset(); }
  /// Say that we are there, if that is due.
  void beat() noexcept;

 private:
  std::vector<Fd> ours_;
  Fd theirs_;
  int64_t beat_ms_;
  os::Deadline next_ = os::Deadline::in_ms(1);
};

/// The variables that go to every machine: those of `environment` whose names begin with DDP_, NCCL_, OMP_ or GLOO_,
/// then `assignments`, and the token. A variable with a newline cannot be sent, and is left out.
[[nodiscard]] std::string lead_header(const std::vector<std::string>& environment,
                                      const std::vector<std::string>& assignments, const std::string& token);

/// The led side. Not led: nothing ever comes.
class Leash {
 public:
  /// The connection counts as lost after a silence of this many seconds.
  Leash(bool led, double silence_s) noexcept : led_(led), silence_ms_(static_cast<int64_t>(silence_s * 1e3)) {}

  /// Take the variables from stdin into the environment. Throws ExitError.
  static void read_environment();

  /// One entry; hand the same to handle().
  void append_poll(std::vector<pollfd>& entries) const;
  struct Ears {
    std::function<void(int)> on_signal;
    std::function<void(const std::string&)> on_order;
    std::function<void()> on_loss;  // once, when the connection is lost
  };
  void handle(const pollfd& entry, const Ears& ears);

 private:
  void hear(const std::string& line, const Ears& ears);
  void lose(const Ears& ears);

  bool led_;
  int64_t silence_ms_;
  bool stopped_ = false;  // the whole job, by Ctrl-Z: nothing is sent meanwhile
  std::string waiting_;
  os::Deadline silent_ = os::Deadline::never();
};

}  // namespace ddp::ddprun
