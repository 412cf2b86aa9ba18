// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/tally_test.cpp.
#include "ddprun/looks.hpp"

#include <sstream>

namespace ddp::ddprun {
namespace {

constexpr int64_t kMostRanks = 1 << 20;

template <class Take>
void each_number(RankLook& rank, const Take& take) {
  take(rank.resident_kib);
  for (const NamedCount& each : kCounts) take(rank.since.*each.count);
  take(rank.buckets.gradient_bytes);
  take(rank.buckets.count);
  take(rank.buckets.largest);
  take(rank.buckets.smallest);
  take(rank.waited_ns);
}

/// A number from 0 to the most.
bool read_count(std::istringstream& words, int64_t& count) {
  return static_cast<bool>(words >> count) && count >= 0 && count <= kMostRanks;
}

}  // namespace

std::string write_look(const Look& look) {
  std::ostringstream text;
  text << look.ranks.size();
  for (RankLook rank : look.ranks) {
    text << ' ' << rank.rank << ' ' << rank.place;
    each_number(rank, [&](int64_t number) { text << ' ' << number; });
  }
  text << ' ' << look.awaited_ns.size();
  for (const int64_t waited : look.awaited_ns) text << ' ' << waited;
  return text.str();
}

std::optional<Look> read_look(std::string_view text) {
  std::istringstream words{std::string(text)};
  Look look;
  int64_t count = 0;
  if (!read_count(words, count)) return std::nullopt;
  for (int64_t i = 0; i < count && words; ++i) {
    RankLook rank;
    words >> rank.rank >> rank.place;
    each_number(rank, [&](int64_t& number) { words >> number; });
    if (words && rank.rank >= 0) look.ranks.push_back(rank);
  }
  if (!read_count(words, count)) return std::nullopt;
  for (int64_t i = 0; i < count && words; ++i) {
    int64_t waited = 0;
    if (words >> waited) look.awaited_ns.push_back(waited);
  }
  std::string rest;
  return words && !(words >> rest) ? std::optional(look) : std::nullopt;
}

}  // namespace ddp::ddprun
