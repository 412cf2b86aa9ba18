// SPDX-License-Identifier: Apache-2.0
#include "optim/deal.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/bytes.hpp"

namespace ddp::optim {
namespace {

using Hand = Holdings::Hand;

/// One rank's part of a deal, by its rank among those that have met.
struct Holder {
  int32_t rank = 0;
  const Hand* hand = nullptr;
};

const Hand* hand_of(const Holdings& holdings, int64_t number) noexcept {
  for (const Hand& hand : holdings.hands)
    if (hand.number == number) return &hand;
  return nullptr;
}

/// The parts of a deal; none if a rank has parts of others alone. Ranks that are new have none at all.
std::vector<Holder> holders_of(const std::vector<Holdings>& by_rank, int64_t number) {
  std::vector<Holder> holders;
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    const Hand* const hand = hand_of(by_rank[rank], number);
    if (hand != nullptr)
      holders.push_back(Holder{static_cast<int32_t>(rank), hand});
    else if (!by_rank[rank].hands.empty())
      return {};
  }
  return holders;
}

/// Who gives each part of this step; nothing if a part is left nowhere.
std::optional<std::vector<int32_t>> givers_of(const std::vector<Holder>& holders, int64_t version) {
  std::vector<int32_t> givers(holders.front().hand->versions.size(), -1);
  for (const Holder& holder : holders) {
    const auto own = static_cast<size_t>(holder.hand->rank);
    if (!holder.hand->versions[own].has(version)) return std::nullopt;
    givers[own] = holder.rank;
  }
  for (size_t part = 0; part < givers.size(); ++part)
    for (const Holder& holder : holders)
      if (givers[part] < 0 && holder.hand->versions[part].has(version)) givers[part] = holder.rank;
  if (std::find(givers.begin(), givers.end(), -1) != givers.end()) return std::nullopt;
  return givers;
}

/// The newest step that all holders have made and that is left of every part.
Deal deal_out(const std::vector<Holder>& holders) {
  if (holders.empty()) return {};
  int64_t newest = INT64_MAX, oldest = 0;
  for (const Holder& holder : holders) {
    if (holder.hand->versions.size() != holders.front().hand->versions.size()) return {};
    const Versions& own = holder.hand->versions[static_cast<size_t>(holder.hand->rank)];
    newest = std::min(newest, own.last);
    oldest = std::max(oldest, own.first);
  }
  for (int64_t version = newest; version >= oldest; --version)
    if (auto givers = givers_of(holders, version))
      return {Deal::Kind::kParts, holders.front().hand->number, version, holders.front().rank, std::move(*givers)};
  return {};
}

}  // namespace

std::string write_holdings(const Holdings& holdings) {
  ByteWriter writer;
  writer.number(static_cast<uint8_t>(holdings.is_fresh));
  writer.number(static_cast<uint32_t>(holdings.hands.size()));
  for (const Hand& hand : holdings.hands) {
    writer.number(hand.number).number(hand.rank).number(static_cast<uint32_t>(hand.versions.size()));
    for (const Versions& versions : hand.versions) writer.number(versions.first).number(versions.last);
  }
  return std::move(writer).bytes();
}

Holdings read_holdings(std::string_view bytes) {
  ByteReader reader(bytes);
  Holdings holdings;
  holdings.is_fresh = reader.number<uint8_t>() != 0;
  for (auto hands = reader.number<uint32_t>(); hands > 0; --hands) {
    Hand hand;
    hand.number = reader.number<int64_t>();
    hand.rank = reader.number<int32_t>();
    for (auto ranks = reader.number<uint32_t>(); ranks > 0; --ranks) {
      const auto first = reader.number<int64_t>();
      hand.versions.push_back({first, reader.number<int64_t>()});
    }
    if (hand.rank < 0 || static_cast<size_t>(hand.rank) >= hand.versions.size())
      throw Error(DDP_ERROR_INTERNAL, "a rank tells of a part that is nobody's");
    holdings.hands.push_back(std::move(hand));
  }
  return holdings;
}

Deal find_deal(const std::vector<Holdings>& by_rank) {
  int64_t newest = 0;
  bool all_fresh = true;
  for (const Holdings& each : by_rank) {
    for (const Hand& hand : each.hands) newest = std::max(newest, hand.number);
    all_fresh = all_fresh && each.is_fresh;
  }
  for (int64_t number = newest; number > 0 && number >= newest - 1; --number)
    if (Deal deal = deal_out(holders_of(by_rank, number)); deal.kind == Deal::Kind::kParts) return deal;
  Deal none;
  if (newest == 0 && all_fresh) none.kind = Deal::Kind::kFresh;
  return none;
}

}  // namespace ddp::optim
