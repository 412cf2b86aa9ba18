// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/restarts_test.cpp.
#include "ddprun/story.hpp"

#include <cstdio>

namespace ddp::ddprun {
namespace {

constexpr size_t kBeginning = 20;
constexpr size_t kEnd = 60;

}  // namespace

void Story::add(double seconds, const std::string& text) {
  char when[32];
  snprintf(when, sizeof when, "%8.1f s  ", seconds);
  if (beginning_.size() < kBeginning) return beginning_.push_back(when + text);
  end_.push_back(when + text);
  if (end_.size() <= kEnd) return;
  end_.pop_front();
  ++left_out_;
}

std::vector<std::string> Story::lines() const {
  std::vector<std::string> lines = beginning_;
  if (left_out_ > 0) lines.push_back("         ... " + std::to_string(left_out_) + " more ...");
  lines.insert(lines.end(), end_.begin(), end_.end());
  return lines;
}

}  // namespace ddp::ddprun
