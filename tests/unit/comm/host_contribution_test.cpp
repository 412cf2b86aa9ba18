// What a host adds to a rail: the elements of all its ranks in rank order, read and written where they lie.
#include "comm/hierarchy/contribution.hpp"

#include <cstring>

#include "support/check.hpp"
#include "support/values.hpp"

namespace {

using namespace ddp;
using namespace ddp::test;
using hierarchy::HostArray;
using hierarchy::HostContribution;

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

// Two hosts, spans that begin and end anywhere: host 0 adds, host 1 finishes, both deliver.
void the_sum_over_two_hosts_has_the_bits_of_one_reduction(void**) {
  for (const ddp_dtype dtype : kAllDtypes)
    for (const ddp_reduce op : kAllOps)
      for (const int first_host : {1, 2, 3}) {
        const auto inputs = random_inputs(4, dtype, kTotal, 5);
        const Bytes wanted = reduced(inputs, dtype, op, kTotal);
        std::vector<Bytes> low(inputs.begin(), inputs.begin() + first_host), high(inputs.begin() + first_host, inputs.end());
        const int64_t element = dtype_size(dtype);
        const cpu::ReduceRule rule{dtype, op, 4};
        for (const Span slice : {Span{0, 337}, Span{337, 663}}) {
          HostContribution below(rule, array_of(low, kCounts, element), slice);
          HostContribution above(rule, array_of(high, kCounts, element), slice);
          for (int64_t at = 0; at < slice.count; at += 100) {
            const Span span{at, std::min<int64_t>(100, slice.count - at)};
            std::vector<double> carry(100), scratch(100);
            Bytes result(800);
            const bool raw = first_host == 1;
            if (raw)
              std::memcpy(carry.data(), below.own(span, scratch.data()), static_cast<size_t>(span.count * element));
            else
              below.add(Incoming{}, carry.data(), span);
            above.finish(Incoming{carry.data(), raw}, result.data(), span);
            below.deliver(result.data(), span);
            above.deliver(result.data(), span);
          }
        }
        for (const auto* host : {&low, &high})
          for (const Bytes& bytes : *host) expect(bytes == wanted, std::string(dtype_name(dtype)) + " op " + std::to_string(op));
      }
}

void a_piece_that_nobody_uses_is_left_as_it_is(void**) {
  std::vector<Bytes> arrays = random_inputs(2, DDP_F32, kTotal, 6);
  const std::vector<Bytes> before = arrays;
  HostContribution mine(cpu::ReduceRule{DDP_F32, DDP_SUM, 2}, array_of(arrays, kCounts, 4), Span{0, kTotal});
  mine.learn(Note{false, {0b111011}});  // piece 2 has the elements 3 to 52
  mine.deliver(Bytes(4000).data(), Span{0, kTotal});
  for (size_t rank = 0; rank < 2; ++rank)
    for (size_t i = 0; i < 1000; ++i) {
      const bool unused = i >= 3 && i < 53;
      float now = 1, then = 1;
      std::memcpy(&now, arrays[rank].data() + 4 * i, 4);
      std::memcpy(&then, before[rank].data() + 4 * i, 4);
      expect(now == (unused ? then : 0.0F), "element " + std::to_string(i));
    }
}

void only_a_lone_rank_lets_results_land_in_its_memory(void**) {
  std::vector<Bytes> one = random_inputs(1, DDP_F32, kTotal, 6), two = random_inputs(2, DDP_F32, kTotal, 6);
  const cpu::ReduceRule rule{DDP_F32, DDP_SUM, 3};
  HostContribution lone(rule, array_of(one, kCounts, 4), Span{10, 500});
  HostContribution pair(rule, array_of(two, kCounts, 4), Span{10, 500});
  expect(lone.landing(Span{0, 43}) == one[0].data() + 40, "inside a piece");
  expect(lone.landing(Span{0, 44}) == nullptr, "over two pieces");
  expect(pair.landing(Span{0, 43}) == nullptr, "two ranks need it");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      ddp_test(the_sum_over_two_hosts_has_the_bits_of_one_reduction),
      ddp_test(a_piece_that_nobody_uses_is_left_as_it_is),
      ddp_test(only_a_lone_rank_lets_results_land_in_its_memory),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
