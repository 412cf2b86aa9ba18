// SPDX-License-Identifier: Apache-2.0
// The sums of a host between hosts: the nodes of the sum that its ranks form, read and written in their arrays.
#include "hosts/host_reduce_input.hpp"

#include "socket/exchange.hpp"
#include "support/check.hpp"
#include "support/values.hpp"

using hierarchy::HostArray;
using hierarchy::HostReduceInput;

// The pieces of `ranks` ranks, each rank's in one array behind the other.
HostArray array_of(std::vector<Bytes>& arrays, const std::vector<int64_t>& counts, int64_t element) {
  HostArray array;
  array.ranks = static_cast<int32_t>(arrays.size());
  int64_t first = 0;
  for (const int64_t count : counts) {
    array.pieces.push_back({first, count});
    for (Bytes& bytes : arrays) array.bases.push_back(bytes.data() + first * element);
    first += count;
  }
  return array;
}

const std::vector<int64_t> kCounts = {3, 0, 50, 1, 946, 0};
constexpr int64_t kTotal = 1000;

// Two hosts, spans that begin and end anywhere, ranks placed anyhow; rank 2 weighs 0.5 and rank 4 does not count.
ddp_case(the_nodes_of_two_hosts_have_the_bits_of_one_reduction) {
  for (const ddp_dtype dtype : kAllDtypes)
    for (const std::string& placement :
         {std::string("aabbb"), std::string("ababa"), std::string("aaaab"), std::string("bbaaaaaa")}) {
      const auto ranks = static_cast<int32_t>(placement.size());
      const bool floats = dtype == DDP_F32 || dtype == DDP_F64 || dtype == DDP_F16 || dtype == DDP_BF16;
      const auto inputs = random_inputs(ranks, dtype, kTotal, 5);
      std::vector<double> weights(placement.size(), 1.0);
      if (floats) weights[2] = 0.5, weights[4] = 0;
      const LeafMap map = LeafMap::by_rank(ranks);
      std::vector<const void*> in;
      for (size_t r = 0; r < inputs.size(); ++r) in.push_back(weights[r] > 0 ? inputs[r].data() : nullptr);
      cpu::ReduceRule rule{dtype, floats ? DDP_AVERAGE : DDP_SUM, ranks};
      Bytes wanted(inputs[0].size());
      void* out = wanted.data();
      cpu::reduce(rule, in.data(), ranks, &out, 1, kTotal, floats ? weights.data() : nullptr);
      std::vector<int32_t> members[2];
      std::vector<Bytes> arrays[2];
      for (int32_t r = 0; r < ranks; ++r) {
        const size_t host = placement[static_cast<size_t>(r)] == 'a' ? 0 : 1;
        members[host].push_back(r);
        arrays[host].push_back(inputs[static_cast<size_t>(r)]);
      }
      const socket::Shares shares = socket::share_out(map, {members[0], members[1]});
      HostReduceInput hosts[2] = {HostReduceInput(rule, array_of(arrays[0], kCounts, dtype_size(dtype)), map, members[0]),
                                  HostReduceInput(rule, array_of(arrays[1], kCounts, dtype_size(dtype)), map, members[1])};
      std::vector<collective::Participation> participations;
      for (const double weight : weights) participations.push_back(collective::Participation::of(weight));
      for (size_t host = 0; host < 2; ++host)
        for (size_t i = 0; i < members[host].size(); ++i)
          hosts[host].participations()[i] = participations[static_cast<size_t>(members[host][i])];
      socket::TreeSum sum(shares);
      sum.begin(rule, participations);
      for (int64_t at = 0; at < kTotal; at += 100) {
        const socket::Span span{at, std::min<int64_t>(100, kTotal - at)};
        Bytes scratch[2] = {Bytes(8000), Bytes(8000)}, result(800);
        for (int32_t host = 0; host < 2; ++host)
          sum.set(host, socket::nodes_as_they_travel(hosts[host], shares.nodes_of(host), span, scratch[host].data()),
                  span.count);
        sum.sum(result.data(), span.count);
        for (HostReduceInput& host : hosts) host.deliver(result.data(), span);
      }
      for (const auto& host : arrays)
        for (const Bytes& bytes : host) expect(bytes == wanted, placement + " " + dtype_name(dtype));
    }
}

ddp_case(a_piece_that_nobody_uses_is_left_as_it_is) {
  std::vector<Bytes> arrays = random_inputs(2, DDP_F32, kTotal, 6);
  const std::vector<Bytes> before = arrays;
  HostReduceInput mine(cpu::ReduceRule{DDP_F32, DDP_SUM, 2}, array_of(arrays, kCounts, 4), LeafMap::by_rank(2), {0, 1});
  mine.learn(collective::BucketHeader{false, {0b111011}});  // piece 2 has the elements 3 to 52
  mine.deliver(Bytes(4000).data(), socket::Span{0, kTotal});
  for (size_t rank = 0; rank < 2; ++rank)
    for (size_t i = 0; i < 1000; ++i) {
      const bool unused = i >= 3 && i < 53;
      float now = 1, then = 1;
      std::memcpy(&now, arrays[rank].data() + 4 * i, 4);
      std::memcpy(&then, before[rank].data() + 4 * i, 4);
      expect(now == (unused ? then : 0.0F), "element " + std::to_string(i));
    }
}

ddp_case(results_for_an_owner_go_to_it_alone) {
  std::vector<Bytes> arrays = random_inputs(2, DDP_F32, kTotal, 6);
  const std::vector<Bytes> before = arrays;
  HostReduceInput mine(cpu::ReduceRule{DDP_F32, DDP_SUM, 2}, array_of(arrays, kCounts, 4), LeafMap::by_rank(2), {0, 1});
  mine.set_owned({{socket::Span{0, 60}, 1}, {socket::Span{60, 100}, 0}}, true);
  mine.deliver(Bytes(240, std::byte{7}).data(), socket::Span{0, 60});
  mine.deliver(Bytes(40, std::byte{7}).data(), socket::Span{60, 10});
  expect(arrays[0][0] == before[0][0] && arrays[1][0] == std::byte{7} && arrays[1][239] == std::byte{7},
         "the second rank's");
  expect(arrays[0][240] == std::byte{7} && arrays[1][240] == before[1][240], "the first rank's");
}

ddp_case(only_a_lone_rank_lets_results_land_in_its_memory) {
  std::vector<Bytes> one = random_inputs(1, DDP_F32, kTotal, 6), two = random_inputs(2, DDP_F32, kTotal, 6);
  const cpu::ReduceRule rule{DDP_F32, DDP_SUM, 3};
  HostReduceInput lone(rule, array_of(one, kCounts, 4), LeafMap::by_rank(3), {2});
  HostReduceInput pair(rule, array_of(two, kCounts, 4), LeafMap::by_rank(3), {0, 1});
  expect(lone.landing(socket::Span{10, 43}) == one[0].data() + 40, "inside a piece");
  expect(lone.landing(socket::Span{10, 44}) == nullptr, "over two pieces");
  expect(pair.landing(socket::Span{10, 43}) == nullptr, "two ranks need it");
}
