// What the user asked for: a plain value, made from the command line in main.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::ddprun {

struct Options {
  int32_t ranks = 1;
  int32_t port = 0;                      // 0: a free one
  std::vector<std::string> environment;  // K=V
  std::string output_dir;                // "": no files
  std::string show;                      // as typed; "": all ranks, or none with output_dir
  std::vector<bool> shown;               // by rank: its output goes to our own stdout and stderr
  double timeout_s = 0;                  // 0: none
  double grace_s = 5;
  bool keep_going = false;
  int32_t max_restarts = 0;
  int32_t min_ranks = 0;  // 0: not given
  bool terminals = true;  // a pseudo-terminal for each output of a rank, else a pipe
  bool prefix = true;
  bool verbose = false;
  std::vector<std::string> command;  // program and its arguments

  /// Do ranks go on when one has died?
  [[nodiscard]] bool survives() const { return max_restarts > 0 || min_ranks > 0; }
  [[nodiscard]] bool shows(int32_t rank) const { return shown[static_cast<size_t>(rank)]; }
  /// Columns of the longest prefix.
  [[nodiscard]] int prefix_width() const { return prefix ? static_cast<int>(std::to_string(ranks - 1).size()) + 3 : 0; }
};

// Exit codes of ddprun itself, as env, nohup and timeout have them; otherwise the code is the first failing rank's.
inline constexpr int kExitUsage = 2;
inline constexpr int kExitTimeout = 124;
inline constexpr int kExitInternal = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitSignalBase = 128;

}  // namespace ddp::ddprun
