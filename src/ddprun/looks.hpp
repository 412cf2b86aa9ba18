// SPDX-License-Identifier: Apache-2.0
// What some ranks have done since the last look at them, and its JSON, which one ddprun sends to another: a plain value and
// pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/run.hpp"

namespace ddp::ddprun {

struct RankLook {
  int32_t rank = 0;          // as the launcher counts
  int32_t place = -1;        // its number in its group now; -1: it has none
  int64_t resident_kib = 0;  // 0: it does not run
  int32_t cores = 0;         // of its host
  int32_t transports = -1;   // as in RankRun
  Counts since{};
  Buckets buckets{};
  int64_t waited_ns = 0;  // since the last look
  std::string group{};
  std::vector<ProgramValue> program{};  // that were logged since the last look, and how often
};

struct Look {
  std::vector<RankLook> ranks{};
  std::vector<int64_t> awaited_ns{};  // by place in the group: how long these ranks have waited for it since the last look
};

/// Counts that are 0 are left out.
[[nodiscard]] nlohmann::ordered_json look_json(const Look& look);
[[nodiscard]] std::optional<Look> read_look(const nlohmann::ordered_json& json);

}  // namespace ddp::ddprun
