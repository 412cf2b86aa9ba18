// SPDX-License-Identifier: Apache-2.0
// What some ranks have done since the last look at them, and how it is sent from one ddprun to another: a plain value and
// pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/run.hpp"

namespace ddp::ddprun {

struct RankLook {
  int32_t rank = 0;          // as the launcher counts
  int32_t place = -1;        // its number in its group now; -1: it has none
  int64_t resident_kib = 0;  // 0: it does not run
  Counts since{};
  Buckets buckets{};
  int64_t waited_ns = 0;  // since the last look
};

struct Look {
  std::vector<RankLook> ranks{};
  std::vector<int64_t> awaited_ns{};  // by place in the group: how long these ranks have waited for it since the last look
};

/// One line of numbers.
[[nodiscard]] std::string write_look(const Look& look);
[[nodiscard]] std::optional<Look> read_look(std::string_view text);

}  // namespace ddp::ddprun
