// SPDX-License-Identifier: Apache-2.0
#include "model/replica_source.hpp"

#include <algorithm>
#include <tuple>

#include "core/bytes.hpp"

namespace ddp::model {
namespace {

/// At the first commit parameters are sent anyway; the optimizers' state only where a rank may have loaded another one.
ReplicaSource at_first_commit(const std::vector<ReplicaVersion>& by_rank) {
  const bool loaded = std::any_of(by_rank.begin(), by_rank.end(), [](const ReplicaVersion& each) { return each.loaded; });
  return {loaded ? ReplicaSource::Sends::kValuesAndStates : ReplicaSource::Sends::kValues, 0, false, false};
}

bool all_reopened(const std::vector<ReplicaVersion>& by_rank) noexcept {
  return std::all_of(by_rank.begin(), by_rank.end(),
                     [](const ReplicaVersion& each) { return each.is_reopened && each.is_whole; });
}

/// As at the first commit, but what stays is not sent, because it is equal, or differs as the program wants it.
ReplicaSource at_later_commit(const std::vector<ReplicaVersion>& by_rank) {
  const bool loaded = std::any_of(by_rank.begin(), by_rank.end(), [](const ReplicaVersion& each) { return each.loaded; });
  return {loaded ? ReplicaSource::Sends::kValuesAndStates : ReplicaSource::Sends::kAdded, 0, false, false};
}

/// Are they at the same step, with the same parameters?
bool are_level(const ReplicaVersion& a, const ReplicaVersion& b) noexcept {
  return !a.is_new && !b.is_new && a.is_whole && b.is_whole && a.final_passes == b.final_passes && a.steps == b.steps &&
         a.hash == b.hash;
}

/// `source`, or if that is between the steps of two optimizers, a rank that has made both: what it lacks comes with the
/// state, and a step of which one optimizer has made its part cannot be repeated.
int32_t whole_step(const std::vector<ReplicaVersion>& by_rank, int32_t source) {
  const ReplicaVersion& chosen = by_rank[static_cast<size_t>(source)];
  if (!chosen.is_between) return source;
  const auto found = std::find_if(by_rank.begin(), by_rank.end(), [&](const ReplicaVersion& each) {
    return !each.is_new && each.is_whole && !each.is_between && each.final_passes == chosen.final_passes;
  });
  return found == by_rank.end() ? source : static_cast<int32_t>(found - by_rank.begin());
}

}  // namespace

bool are_alike(const ReplicaVersion& a, const ReplicaVersion& b) noexcept { return are_level(a, b) && a.rest == b.rest; }

std::string write_version(const ReplicaVersion& version) {
  ByteWriter writer;
  writer.number(static_cast<uint8_t>(version.is_new)).number(static_cast<uint8_t>(version.loaded));
  writer.number(static_cast<uint8_t>(version.is_whole)).number(version.final_passes).number(version.steps);
  writer.number(version.hash).number(version.rest).number(version.rank).number(version.size);
  writer.number(static_cast<uint8_t>(version.is_between)).number(static_cast<uint8_t>(version.is_reopened));
  return std::move(writer).bytes();
}

ReplicaVersion read_version(std::string_view bytes) {
  ByteReader reader(bytes);
  ReplicaVersion version;
  version.is_new = reader.number<uint8_t>() != 0;
  version.loaded = reader.number<uint8_t>() != 0;
  version.is_whole = reader.number<uint8_t>() != 0;
  version.final_passes = reader.number<int64_t>();
  version.steps = reader.number<int64_t>();
  version.hash = reader.number<uint64_t>();
  version.rest = reader.number<uint64_t>();
  version.rank = reader.number<int32_t>();
  version.size = reader.number<int32_t>();
  version.is_between = reader.number<uint8_t>() != 0;
  version.is_reopened = reader.number<uint8_t>() != 0;
  return version;
}

ReplicaSource find_source(const std::vector<ReplicaVersion>& by_rank) {
  if (std::all_of(by_rank.begin(), by_rank.end(), [](const ReplicaVersion& each) { return each.is_new; }))
    return at_first_commit(by_rank);
  if (all_reopened(by_rank)) return at_later_commit(by_rank);
  int32_t source = -1;
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    const ReplicaVersion& each = by_rank[rank];
    if (each.is_new || !each.is_whole) continue;
    const auto age = [](const ReplicaVersion& of) { return std::tie(of.final_passes, of.steps); };
    if (source < 0 || age(each) < age(by_rank[static_cast<size_t>(source)])) source = static_cast<int32_t>(rank);
  }
  if (source < 0) return {ReplicaSource::Sends::kNoneIsWhole, 0, true, false};
  source = whole_step(by_rank, source);
  const ReplicaVersion& chosen = by_rank[static_cast<size_t>(source)];
  bool same_ranks =
      std::all_of(by_rank.begin(), by_rank.end(), [&](const ReplicaVersion& each) { return are_level(each, chosen); });
  const bool same = same_ranks && std::all_of(by_rank.begin(), by_rank.end(),
                                              [&](const ReplicaVersion& each) { return each.rest == chosen.rest; });
  for (size_t rank = 0; rank < by_rank.size(); ++rank)
    same_ranks = same_ranks && by_rank[rank].rank == static_cast<int32_t>(rank) &&
                 by_rank[rank].size == static_cast<int32_t>(by_rank.size());
  return {same ? ReplicaSource::Sends::kNothing : ReplicaSource::Sends::kValuesAndStates, source, true, same_ranks};
}

}  // namespace ddp::model
