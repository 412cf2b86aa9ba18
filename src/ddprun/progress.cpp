// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/tally_test.cpp and process/ddprun_report_test.sh.
#include "ddprun/progress.hpp"

#include <algorithm>
#include <cmath>

#include "ddprun/figures.hpp"
#include "ddprun/numbers.hpp"

namespace ddp::ddprun {
namespace {

constexpr double kWindow = 3;   // seconds
constexpr size_t kMostOwn = 3;  // numbers of the program

}  // namespace

void Progress::add(const Sample& sample) {
  samples_.push_back(sample);
  samples_.back().resident_kib.clear();
  while (samples_.size() > 2 && sample.seconds - samples_[1].seconds >= kWindow) samples_.pop_front();
}

std::string Progress::line(int32_t slowest, double share, const std::vector<std::string>& names) const {
  if (samples_.size() < 2) return "";
  const Sample &before = samples_.front(), &now = samples_.back();
  if (now.passes == 0 && now.steps == 0) return "";
  const bool steps = now.steps > 0;
  const int64_t done = steps ? now.steps : now.passes, since = done - (steps ? before.steps : before.passes);
  const std::string unit = steps ? "steps" : "passes";
  std::string line =
      format_number(static_cast<double>(since) / std::max(now.seconds - before.seconds, 1e-3)) + " " + unit + "/s";
  const double hidden = share_hidden(now.all - before.all);
  if (hidden >= 0) line += ", " + format_share(hidden) + " hidden";
  if (slowest >= 0) line += ", waiting for rank " + std::to_string(slowest) + " (" + format_share(share) + ")";
  line += ", " + format_number(static_cast<double>(done)) + " " + unit + " in " +
          format_time(std::max(std::floor(now.seconds), 1.0));
  for (size_t i = 0; i < std::min(now.program.size(), kMostOwn); ++i)
    line += ", " + names[i] + " " + format_value(now.program[i]);
  return line;
}

}  // namespace ddp::ddprun
