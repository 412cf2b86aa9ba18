// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/tally_test.cpp.
#include "ddprun/looks.hpp"

#include <bit>

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

/// A value is sent as the bits of its double: JSON has no NaN.
Json program_json(const std::vector<ProgramValue>& program) {
  Json json = Json::array();
  for (const ProgramValue& each : program)
    json.push_back({{"name", each.name}, {"bits", std::bit_cast<int64_t>(each.value)}, {"times", each.times}});
  return json;
}

void read_program(Fields& of_rank, RankLook& rank) {
  for (const Json& each : of_rank.list("program")) {
    Fields of_number(each);
    ProgramValue number{of_number.text("name")};
    number.value = std::bit_cast<double>(of_number.number<int64_t>("bits", INT64_MIN));
    number.times = of_number.number<int64_t>("times");
    of_rank.refuse_unless(of_number.good());
    rank.program.push_back(std::move(number));
  }
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
    if (!rank.group.empty()) json["group"] = rank.group;
    if (!rank.program.empty()) json["program"] = program_json(rank.program);
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
    if (each.contains("group")) rank.group = of_rank.text("group");
    if (each.contains("program")) read_program(of_rank, rank);
    fields.refuse_unless(of_rank.good());
    look.ranks.push_back(std::move(rank));
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
