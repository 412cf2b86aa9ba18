// SPDX-License-Identifier: Apache-2.0
// Any bytes as the messages of ranks that meet again: the versions of their replicas, one after the other.
// What is understood is written the same, and the rank whose state all get is one that has it.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "discovery/quorum.hpp"
#include "fuzz/must.hpp"
#include "model/replica_source.hpp"

namespace {

using namespace ddp;

void as_versions(std::string_view bytes) {
  std::vector<model::ReplicaVersion> all;
  try {
    while (all.size() < 16) {
      const model::ReplicaVersion version = model::read_version(bytes);
      const std::string again = model::write_version(version);
      must(model::write_version(model::read_version(again)) == again, "what was read is written the same");
      all.push_back(version);
      bytes.remove_prefix(again.size());
    }
  } catch (const Error& error) {
    must(error.status() == DDP_ERROR_INTERNAL, "refusals are INTERNAL");
  }
  if (all.empty()) return;
  using Sends = model::ReplicaSource::Sends;
  const model::ReplicaSource found = model::find_source(all);
  must(found.rank >= 0 && static_cast<size_t>(found.rank) < all.size(), "one of the ranks");
  if (!found.is_recovery || found.sends == Sends::kNoneIsWhole) return;
  const model::ReplicaVersion& source = all[static_cast<size_t>(found.rank)];
  must(!source.is_new && source.is_whole, "the source has a state, and it is whole");
  for (const model::ReplicaVersion& each : all)
    must(each.is_new || !each.is_whole || each.final_passes >= source.final_passes, "nobody is behind it");
}

/// Each rank of a group of up to eight has a standing; a second membership may have been formed and not confirmed.
void as_standings(std::string_view bytes) {
  using bootstrap::Standing;
  std::vector<Standing> standing;
  bootstrap::Membership all, some;
  for (const char byte : bytes.substr(0, 8)) {
    const auto bits = static_cast<uint8_t>(byte);
    if ((bits & 128) != 0) some.push_back(static_cast<int32_t>(standing.size()));
    all.push_back(static_cast<int32_t>(standing.size()));
    standing.push_back(static_cast<Standing>(bits % 5));
  }
  if (all.empty()) return;
  bootstrap::RecoveryRule rule;
  rule.allow_half = (bytes[0] & 64) != 0;
  std::vector<bootstrap::Membership> memberships{all};
  if (!some.empty()) memberships.push_back(some);
  if (bootstrap::judge(standing, memberships, rule) != bootstrap::Verdict::kForm) return;
  std::vector<Standing> other_side;  // as the silent ones see it, if they live
  for (const Standing each : standing)
    other_side.push_back(each == Standing::kHere ? Standing::kSilent : each == Standing::kDead ? each : Standing::kHere);
  must(bootstrap::judge(other_side, memberships, rule) != bootstrap::Verdict::kForm, "only one side goes on");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  as_versions(bytes);
  as_standings(bytes);
  return 0;
}
