// SPDX-License-Identifier: Apache-2.0
// How one ddprun leads those that it has started on other machines: through their stdin, with the orders of orders.hpp. The
// first has the variables for the ranks: no secret is in a command line. Signals follow, and signal 0 now and then, so that
// silence means that the connection is gone. The end of the stream, or silence (--silence), ends the ranks of that machine.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/fd.hpp"
#include "ddprun/loop.hpp"
#include "ddprun/orders.hpp"
#include "os/clock.hpp"

namespace ddp::ddprun {

/// The leading side: one pipe for each machine.
class Leads {
 public:
  /// A machine takes silence of so many seconds for the end of the connection.
  Leads(Loop& loop, double silence_s) noexcept : loop_(loop), beat_ms_(static_cast<int64_t>(silence_s * 1e3) / 6) {}
  Leads(const Leads&) = delete;
  Leads& operator=(const Leads&) = delete;
  /// What the process of this machine gets as its stdin, with `first` in it. Valid until started() or the next call.
  [[nodiscard]] int open(size_t machine, const std::string& first);
  /// The processes run.
  void started() noexcept { theirs_.reset(); }
  void signal(int number);
  /// To a machine that has started. What a machine does not read is lost with it.
  void give(size_t machine, const Order& order);
  void give_all(const Order& order);
  void close(size_t machine) noexcept { machines_[machine].close(); }
  /// Give a sign of life, if that is due.
  void beat();
  /// The loop waits for machines that have not read everything.
  void wait();

 private:
  struct Machine {
    Fd end{};
    std::string queue{};
    std::optional<Ready> ready{};
    void write_some();
    void close() noexcept;
  };
  void put(Machine& machine, const std::string& line);

  Loop& loop_;
  std::deque<Machine> machines_;  // others point into it
  Fd theirs_;
  int64_t beat_ms_;
  os::Deadline next_ = os::Deadline::in_ms(1);
};

/// The variables that go to every machine, as a line: those of `environment` whose names begin with DDP_, NCCL_, OMP_ or
/// GLOO_, then `assignments`, and the token.
[[nodiscard]] std::string lead_header(const std::vector<std::string>& environment,
                                      const std::vector<std::string>& assignments, const std::string& token);

/// The led side. Not led: nothing ever comes.
class Leash {
 public:
  struct Ears {
    std::function<void(int)> on_signal;
    std::function<void(const Order&)> on_order;
    std::function<void()> on_loss;  // once, when the connection is gone
  };
  /// The connection counts as lost after a silence of so many seconds.
  Leash(Loop& loop, bool led, double silence_s, Ears ears);
  Leash(const Leash&) = delete;
  Leash& operator=(const Leash&) = delete;

  /// Take the variables from stdin into the environment. Throws ExitError.
  static void read_environment();

  /// The loop waits for an order.
  void wait();
  /// Look how long it has been silent. Call now and then.
  void check_silence();

 private:
  void read_some();
  void take(const Order& order);
  void lose();

  bool led_;
  int64_t silence_ms_;
  Ears ears_;
  bool stopped_ = false;  // the whole job, by Ctrl-Z: nothing comes meanwhile
  std::string waiting_;
  os::Deadline silent_ = os::Deadline::never();
  std::optional<Ready> ready_;
};

}  // namespace ddp::ddprun
