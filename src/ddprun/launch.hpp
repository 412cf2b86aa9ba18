// SPDX-License-Identifier: Apache-2.0
// From options to running ranks: the program's path, the environment of each rank, fork and exec.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/fd.hpp"
#include "ddprun/options.hpp"
#include "ddprun/report.hpp"

namespace ddp::ddprun {

// A folder that is removed with its owner.
class OwnFolder {
 public:
  OwnFolder() = default;  // none
  explicit OwnFolder(std::string path) noexcept : path_(std::move(path)) {}
  ~OwnFolder() { remove(); }
  OwnFolder(OwnFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  OwnFolder& operator=(OwnFolder&& other) noexcept {
    path_.swap(other.path_);
    return *this;
  }

  /// "": no folder.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  void remove() noexcept {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    path_.clear();
  }

 private:
  std::string path_;
};

/// The messages to the user about a job.
struct Said {
  std::string allocation;  // about machines that were found; "": none were
  std::string notes;       // by --verbose
  std::string threads;     // about OMP_NUM_THREADS; "": it was set, or there is one rank
};

/// Everything that all ranks share.
struct Job {
  std::string program;                 // path of the executable
  std::string folder;                  // where it starts; "": here
  std::vector<std::string> arguments;  // with the program's name as the user wrote it
  std::vector<std::string> environment;
  int32_t ranks = 1;  // that are started here; of several machines: the machines
  Names names{};
  std::vector<std::vector<std::string>> commands;  // by machine, instead of `program` and `arguments`
  std::string header;                              // the first message to each machine (lead.hpp)
  std::string mark;                                // of their reports (orders.hpp); "": they send none
  sigset_t signal_mask{};                          // ranks start with it
  std::optional<int> prefix_width;                 // columns that the ranks' terminals lack; none: they write to pipes
  OwnFolder join_folder;                           // where new ranks find the others; "": the job does not survive failures
  OwnFolder watch_folder;                          // where ranks write how they are getting on, or what hosts send of it
  std::vector<Processors> placed;                  // by rank that is started here; empty: not bound
  Said said{};
};

/// A rank that has been started, in a process group of its own, and our ends of its stdout and stderr (non-blocking).
struct Rank {
  pid_t pid = -1;
  Fd out;
  Fd err;
};

/// A job of options.machines.hosts: ssh is started for each of them, and there ddprun.
[[nodiscard]] Job prepare_hosts(const Options& options, const sigset_t& signal_mask);

/// The environment of the ranks: ours, the user's --env, the meeting point, the token, OpenMP threads, and
/// what tells programs whether colours make sense.
[[nodiscard]] Job prepare_job(const Options& options, const sigset_t& signal_mask);

/// Start one rank; returns when its program runs. `input` becomes its stdin, -1: /dev/null. Throws if it cannot be started.
/// `extra`: variables of this start alone.
[[nodiscard]] Rank launch_rank(const Job& job, int32_t rank, int input, const std::vector<std::string>& extra = {});

/// Does ddprun set this variable for every rank, so that --env cannot? Then a sentence with this reason, else "".
[[nodiscard]] std::string refuse_variable(const std::string& name);

/// An error with the exit code that tells it apart.
struct ExitError {
  int code;
  std::string text;
};

}  // namespace ddp::ddprun
