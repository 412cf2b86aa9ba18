// SPDX-License-Identifier: Apache-2.0
// The line with the progress of a job.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "ddprun/run.hpp"

namespace ddp::ddprun {

/// Of the last seconds.
class Progress {
 public:
  void add(const Sample& sample);
  /// "48.2 steps/s, 84 % hidden, waiting for rank 2 (7 %), 5,577 steps in 2:00 min, loss 0.44"; "": nothing was done yet.
  /// `slowest`: the rank that others wait for, -1: none is conspicuous; `share`: of their time; `names`: of the program's
  /// numbers, of which the line has the first.
  [[nodiscard]] std::string line(int32_t slowest, double share, const std::vector<std::string>& names) const;

 private:
  std::deque<Sample> samples_;  // without the memory of ranks
};

}  // namespace ddp::ddprun
