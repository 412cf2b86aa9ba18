// SPDX-License-Identifier: Apache-2.0
// What the user asked for: a plain value, made from the command line in main.cpp.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "ddprun/binding.hpp"

namespace ddp::ddprun {

/// A machine, as ssh knows it.
struct Host {
  std::string name;
  int32_t ranks = 0;
};

/// Where the ranks of a job run that has several machines.
struct Machines {
  std::vector<Host> hosts;         // this ddprun starts one on each of them; empty: it starts ranks
  std::string found;               // the batch system that has named them, and its variable; "": not from a batch system
  std::string ssh = "ssh";         // what starts a command there
  std::string ddprun;              // its path there; "": as here
  std::string folder;              // in which the ranks start; "": where ddprun was called
  std::vector<int32_t> placement;  // ranks of each machine; one: all ranks are here
  int32_t node = 0;                // which of them this is
  std::string rendezvous;          // host:port where the ranks meet; "": on this machine
  bool led = false;                // by a ddprun on another machine, through stdin (lead.hpp)
  bool obeys = false;              // and starts ranks on its orders (orders.hpp)
  double silence_s = 30;           // after which a led one takes the connection for lost
  std::string show;                // ranks of all machines, as typed; "": all, or none with files

  [[nodiscard]] int32_t world_size() const { return std::accumulate(placement.begin(), placement.end(), 0); }
  /// The number of the first rank here.
  [[nodiscard]] int32_t first_rank() const { return std::accumulate(placement.begin(), placement.begin() + node, 0); }
};

struct Limits {
  double timeout_s = 0;  // of the job; 0: none
  double grace_s = 5;    // for ranks that are to exit
};

/// Reports about the job, in addition to the output of its ranks.
struct Telling {
  bool verbose = false;
  std::string report;           // the file of a report; "": none
  std::string metrics;          // the file of the newest numbers; "": none
  std::string trace;            // the file of a trace of all ranks; "": none
  bool shows_progress = false;  // in a line on the terminal
  bool watched = false;         // to the ddprun that leads this one
  bool traced = false;          // what its ranks did goes there too
};

struct Options {
  int32_t ranks = 1;                     // that this ddprun starts
  int32_t port = 0;                      // 0: a free one
  std::vector<std::string> environment;  // K=V
  std::string output_dir;                // "": no files
  std::vector<bool> shown;               // by process here: its output goes to our own stdout and stderr
  Limits limits;
  bool keep_going = false;
  int32_t max_restarts = 0;
  int32_t min_ranks = 0;  // 0: not given
  bool terminals = true;  // a pseudo-terminal for each output of a rank, else a pipe
  bool prefix = true;
  Telling telling;
  Bind bind = Bind::kAuto;
  std::vector<std::string> command;  // program and its arguments

  Machines machines;

  /// Do ranks continue when one has died?
  [[nodiscard]] bool survives() const { return max_restarts > 0 || min_ranks > 0 || machines.obeys; }
  /// Is the progress of the ranks needed?
  [[nodiscard]] bool watches() const { return needs_watching() || telling.shows_progress || telling.watched; }
  /// Must it be known, or is it only shown?
  [[nodiscard]] bool needs_watching() const { return !telling.report.empty() || !telling.metrics.empty() || traces(); }
  [[nodiscard]] bool traces() const { return !telling.trace.empty() || telling.traced; }
  /// Are machines led rank by rank?
  [[nodiscard]] bool leads_ranks() const { return !machines.hosts.empty() && (survives() || keep_going); }
  /// Does the output of a process that this ddprun has started go to our own?
  [[nodiscard]] bool shows(int32_t local) const { return shown[static_cast<size_t>(local)]; }
  /// What hosts send has its prefixes, and their ranks' files are there.
  [[nodiscard]] bool has_prefix() const { return prefix && machines.hosts.empty(); }
  [[nodiscard]] bool writes_files() const { return !output_dir.empty() && machines.hosts.empty(); }
  /// Columns of the longest prefix.
  [[nodiscard]] int prefix_width() const {
    return prefix ? static_cast<int>(std::to_string(machines.world_size() - 1).size()) + 3 : 0;
  }
};

// Exit codes of ddprun itself, as env, nohup and timeout have them; otherwise the code is the first failing rank's.
inline constexpr int kExitUsage = 2;
inline constexpr int kExitTimeout = 124;
inline constexpr int kExitInternal = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitSignalBase = 128;

}  // namespace ddp::ddprun
