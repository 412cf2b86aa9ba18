// SPDX-License-Identifier: Apache-2.0
// Vector clocks (Mattern, "Virtual time and global states of distributed systems", 1989): for each stream, how many of its
// operations are known to have happened. Values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::test::fake_gpu {

class Clock {
 public:
  [[nodiscard]] uint64_t at(size_t actor) const noexcept { return actor < times_.size() ? times_[actor] : 0; }
  void tick(size_t actor) {
    if (times_.size() <= actor) times_.resize(actor + 1);
    ++times_[actor];
  }
  [[nodiscard]] bool covers(const Clock& other) const noexcept {
    for (size_t i = 0; i < other.times_.size(); ++i)
      if (at(i) < other.times_[i]) return false;
    return true;
  }
  void join(const Clock& other) {
    if (times_.size() < other.times_.size()) times_.resize(other.times_.size());
    for (size_t i = 0; i < other.times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
  }

 private:
  std::vector<uint64_t> times_;
};

}  // namespace ddp::test::fake_gpu
