// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/tally_test.cpp.
#include "ddprun/looks.hpp"

#include "ddprun/fields.hpp"

namespace ddp::ddprun {
namespace {

/// The numbers that are 0 in most looks.
template <class Take>
void each_count(RankLook& rank, const Take& take) {
  for (const NamedCount& each : kCounts) take(each.name, rank.since.*each.count);
  take("gradient_bytes", rank.buckets.gradient_bytes);
  take("buckets", rank.buckets.count);
  take("largest", rank.buckets.largest);
  take("smallest", rank.buckets.smallest);
  take("waited_ns", rank.waited_ns);
}

}  // namespace

Json look_json(const Look& look) {
  Json ranks = Json::array();
  for (RankLook rank : look.ranks) {
    Json json{{"rank", rank.rank},
              {"place", rank.place},
              {"resident_kib", rank.resident_kib},
              {"cores", rank.cores},
              {"transports", rank.transports}};
    each_count(rank, [&](const char* name, int64_t count) {
      if (count != 0) json[name] = count;
    });
    ranks.push_back(std::move(json));
  }
  return {{"ranks", std::move(ranks)}, {"awaited_ns", look.awaited_ns}};
}

std::optional<Look> read_look(const Json& json) {
  Fields fields(json);
  Look look;
  for (const Json& each : fields.list("ranks")) {
    Fields of_rank(each);
    RankLook rank;
    rank.rank = of_rank.number<int32_t>("rank");
    rank.place = of_rank.number<int32_t>("place", -1);
    rank.resident_kib = of_rank.number<int64_t>("resident_kib");
    rank.cores = of_rank.number<int32_t>("cores");
    rank.transports = of_rank.number<int32_t>("transports", -1);
    each_count(rank, [&](const char* name, int64_t& count) { count = of_rank.count(name); });
    fields.refuse_unless(of_rank.good());
    look.ranks.push_back(rank);
  }
  for (const Json& waited : fields.list("awaited_ns")) {
    const Json one{{"ns", waited}};
    Fields of_place(one);
    look.awaited_ns.push_back(of_place.number<int64_t>("ns"));
    fields.refuse_unless(of_place.good());
  }
  return fields.good() ? std::optional(look) : std::nullopt;
}

}  // namespace ddp::ddprun
