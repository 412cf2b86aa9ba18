// SPDX-License-Identifier: Apache-2.0
// Looks at ranks of this machine from outside: at the pages that libddp writes (trace/live.hpp) and at their processes.
// One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ddprun/looks.hpp"
#include "ddprun/machine.hpp"
#include "trace/live.hpp"

namespace ddp::ddprun {

class Lookout {
 public:
  /// `folder`: the ranks' DDP_WATCH_DIR.
  explicit Lookout(std::string folder) : folder_(std::move(folder)) {}

  struct Watched {
    int32_t rank = 0;
    pid_t pid = -1;  // of the process that was started; -1: none
  };
  /// What they have done since the last look. A restarted rank continues its counts.
  [[nodiscard]] Look look(const std::vector<Watched>& ranks);

 private:
  [[nodiscard]] RankLook look_at(const Watched& rank, Look& look);

  std::string folder_;
  int32_t cores_ = usable_cores();
  std::map<int32_t, trace::LiveNumbers> last_;
};

/// Of a process of this machine; 0: it is not there, or has ended.
[[nodiscard]] int64_t resident_kib(pid_t pid);

}  // namespace ddp::ddprun
