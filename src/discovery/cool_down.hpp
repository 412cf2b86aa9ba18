// SPDX-License-Identifier: Apache-2.0
// From which hosts no new rank is taken in for a while, because ranks have died there again and again: each of them would
// cost the others a recovery when it comes and one when it dies. Pure; times are os::now_ns(). One thread.
// Tested by unit/discovery/cool_down_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace ddp::bootstrap {

class CoolDown {
 public:
  static constexpr size_t kDeaths = 3;                       // within kWindowMs begin it
  static constexpr int64_t kWindowMs = int64_t{600} * 1000;  // also the longest

  struct Kept {
    std::string host;
    size_t deaths = 0;
    int64_t until_ns = 0;
  };

  /// Ranks of these hosts have died. Those that die together count once.
  void note_deaths(const std::set<std::string>& hosts, int64_t now_ns);
  /// The hosts that are kept out now: for `first_ms` after the third death, and twice as long after each further one. 0:
  /// none.
  [[nodiscard]] std::vector<Kept> kept_out(int64_t first_ms, int64_t now_ns) const;

 private:
  std::map<std::string, std::vector<int64_t>> deaths_;  // by host, when; all within kWindowMs before the last
};

}  // namespace ddp::bootstrap
