// The direct exchange, with ranks as threads over the in-process rail: the bits of sums in rank order, what is written where, and failures
// in its middle.
#include "comm/rail/exchange.hpp"

#include <cstring>
#include <random>
#include <thread>

#include "base/clock.hpp"
#include "support/check.hpp"
#include "support/rail_world.hpp"
#include "support/values.hpp"

namespace {

using namespace ddp;
using namespace ddp::test;

constexpr int kSizes[] = {2, 3, 4, 7};

struct DirectWorld : RailWorld {
  explicit DirectWorld(int size, int64_t segment_bytes = 0, int64_t timeout_ms = 20'000)
      : RailWorld(size, segment_bytes, timeout_ms, Route::kDirect) {}
};

BucketSpec::Piece piece_of(std::vector<float>& data) {
  return {reinterpret_cast<std::byte*>(data.data()), static_cast<int64_t>(data.size()), false};
}

void slices_and_segments_cover_every_element_once(void**) {
  for (const int32_t members : {2, 3, 5, 16})
    for (const bool exact : {false, true})
      for (const int64_t bytes : {int64_t{0}, int64_t{64}, int64_t{1} << 30})
        for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{240}, int64_t{241}, int64_t{30'000}, int64_t{20'000'000}}) {
          const int64_t whole = exact ? count / members * members : count;
          const Slicing slicing(whole, 4, members, exact, ChainOptions{bytes, true, Route::kDirect});
          if (slicing.number() > 100'000) continue;
          int64_t next = 0;
          for (int32_t owner = 0; owner < members; ++owner)
            for (int64_t t = 0; t < slicing.number(); ++t) {
              const Span span = slicing.span(owner, t);
              if (span.count == 0) continue;
              expect_equal(span.first, next, "first element of a segment");
              expect(span.count > 0 && slicing.bytes(span) <= Slicing::largest_segment(members), "a segment fits its slot");
              next += span.count;
            }
          expect_equal(next, whole, "elements in all");
          if (exact && whole > 0) expect_equal(slicing.span(1, 0).first, whole / members, "an exact part");
        }
}

void the_way_depends_on_size_and_members_alone(void**) {
  const ChainOptions options;
  expect(goes_direct(kLeastDirect, 2, options) && goes_direct(kLeastDirect, kMostDirect, options), "large, few");
  expect(!goes_direct(kLeastDirect - 1, 4, options), "small");
  expect(!goes_direct(kLeastDirect, kMostDirect + 1, options) && !links_all(kMostDirect + 1, options), "many");
  expect(!goes_direct(kLeastDirect, 1, options), "nobody to exchange with");
  expect(!goes_direct(kLeastDirect, 4, ChainOptions{0, true, Route::kChain}), "not where it is not wanted");
}

void sums_have_the_bits_of_one_reduction_for_every_type(void**) {
  for (const int ranks : kSizes)
    for (const int64_t segment : {int64_t{0}, int64_t{256}}) {
      DirectWorld world(ranks, segment);
      world.run([&](int rank, Transport& transport) {
        for (const ddp_dtype dtype : kAllDtypes)
          for (const ddp_reduce op : kAllOps)
            for (const int64_t count : {0, 1, 2, 3, 1000, 10'007}) {
              const auto inputs = random_inputs(ranks, dtype, count, 7);
              Bytes mine = inputs[static_cast<size_t>(rank)];
              transport.all_reduce(flat_tensor(mine.data(), dtype, count), op);
              expect(mine == reduced(inputs, dtype, op, count), std::to_string(count) + " " + dtype_name(dtype));
            }
      });
    }
}

// Not the library's own arithmetic: one addition after the other.
void a_large_sum_is_that_of_a_loop_over_the_ranks(void**) {
  constexpr int64_t kCount = 3'000'001;
  const auto inputs = random_inputs(3, DDP_F32, kCount, 21);
  std::vector<float> wanted(static_cast<size_t>(kCount));
  std::memcpy(wanted.data(), inputs[0].data(), inputs[0].size());
  for (size_t r = 1; r < inputs.size(); ++r)
    for (size_t i = 0; i < wanted.size(); ++i) {
      float next = 0;
      std::memcpy(&next, inputs[r].data() + 4 * i, 4);
      wanted[i] += next;
    }
  DirectWorld world(3);
  world.run([&](int rank, Transport& transport) {
    Bytes mine = inputs[static_cast<size_t>(rank)];
    const int64_t sent = transport.sent_bytes();
    transport.all_reduce(flat_tensor(mine.data(), DDP_F32, kCount), DDP_SUM);
    expect(std::memcmp(mine.data(), wanted.data(), mine.size()) == 0, "the bits");
    const int64_t slice = kCount * 4 / 3;
    expect(std::abs(transport.sent_bytes() - sent - 4 * slice) < 400, "two slices as parts, its own to two others");
  });
}

// Pieces of which some touch, some do not and some are empty; weights; terms of 16 bits: bit for bit what the chain gives.
std::vector<Bytes> passes_of_a_bucket(Route route, int64_t segment, ddp_dtype wire) {
  constexpr int kRanks = 3;
  const std::vector<int64_t> lengths{5, 0, 1000, 3, 1, 20'000, 0, 77, 4096};
  std::vector<Bytes> memories(kRanks);
  RailWorld world(kRanks, segment, 20'000, route);
  world.run([&](int rank, Transport& transport) {
    Bytes memory = random_values(DDP_F32, 26'000, static_cast<uint64_t>(rank) + 50);
    std::vector<BucketSpec::Piece> pieces;
    int64_t at = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      pieces.push_back({memory.data() + at * 4, lengths[i], false});
      at += lengths[i] + (i % 2 == 1 ? 11 : 0);
    }
    BucketSpec spec = spec_of(pieces, DDP_F32, kRanks);
    spec.rule.by_weight = true;
    spec.rule.wire = wire;
    const auto bucket = transport.prepare(spec);
    const double weights[3][kRanks] = {{1, 1, 1}, {2, 0, 0.5}, {0, 3, 0}};
    for (const auto& weight : weights) {
      Note note{false, {uint64_t{0b101111101}}, Tally::of(weight[rank])};
      bucket->start(note);
      bucket->finish();
      expect_equal(bucket->note().tally.weight, weight[0] + weight[1] + weight[2], "weights of all");
      memories[static_cast<size_t>(rank)].insert(memories[static_cast<size_t>(rank)].end(), memory.begin(), memory.end());
    }
  });
  return memories;
}

void buckets_have_the_bits_of_the_chain_with_weights_and_two_bytes_on_the_wire(void**) {
  for (const ddp_dtype wire : {cpu::ReduceRule::kAsItIs, DDP_BF16, DDP_F16}) {
    const auto wanted = passes_of_a_bucket(Route::kChain, 0, wire);
    for (const int64_t segment : {int64_t{0}, int64_t{1024}})
      expect(passes_of_a_bucket(Route::kDirect, segment, wire) == wanted, "memory of all ranks after every pass");
  }
}

// Terms of two bytes are added over each other; the own one lies where the result will.
void sums_that_are_rounded_at_every_step_have_the_bits_of_the_chain(void**) {
  const auto inputs = random_inputs(4, DDP_BF16, 10'007, 8);
  Bytes results[2];
  for (const Route route : {Route::kChain, Route::kDirect}) {
    RailWorld world(4, 0, 20'000, route);
    world.run([&](int rank, Transport& transport) {
      Bytes mine = inputs[static_cast<size_t>(rank)];
      transport.all_reduce(flat_tensor(mine.data(), DDP_BF16, 10'007), DDP_SUM, Rounding::kEveryStep);
      if (rank == 3) results[route == Route::kDirect] = mine;
    });
  }
  expect(results[0] == results[1], "the bits");
}

void a_piece_that_no_rank_uses_is_left_untouched(void**) {
  DirectWorld world(3, 4096);
  world.run([&](int rank, Transport& transport) {
    std::vector<float> used(40'000, static_cast<float>(rank)), unused = used, partly = used;
    const auto bucket = transport.prepare(spec_of({piece_of(used), piece_of(unused), piece_of(partly)}, DDP_F32, 3));
    bucket->start(Note{false, {rank == 2 ? uint64_t{0b101} : uint64_t{0b001}}});
    bucket->finish();
    for (size_t i = 0; i < used.size(); ++i)
      expect(used[i] == 1.0F && partly[i] == 1.0F && unused[i] == static_cast<float>(rank), "element " + std::to_string(i));
  });
}

void an_incomplete_rank_voids_the_bucket_and_nothing_is_written(void**) {
  for (int guilty = 0; guilty < 3; ++guilty) {
    DirectWorld world(3, 4096);
    world.run([&](int rank, Transport& transport) {
      std::vector<float> data(100'000, static_cast<float>(rank));
      const auto bucket = transport.prepare(spec_of({piece_of(data)}, DDP_F32, 3));
      expect_equal(bucket->way(), std::string("direct exchange over threads"), "the way");
      bucket->start(Note{rank == guilty, {}});
      bucket->finish();
      expect(bucket->note().incomplete, "incomplete on all");
      for (const float value : data) expect(value == static_cast<float>(rank), "gradient untouched");
      bucket->start(Note{});
      bucket->finish();
      expect(data.front() == 1.0F && data.back() == 1.0F, "the mean in the next pass");
    });
  }
}

void gathers_and_scatters_are_direct_too(void**) {
  for (const int ranks : kSizes)
    for (const int64_t part : {1, 100, 20'001}) {
      const auto inputs = random_inputs(ranks, DDP_F32, part * ranks, 3);
      const Bytes wanted = reduced(inputs, DDP_F32, DDP_AVERAGE, part * ranks);
      DirectWorld world(ranks, 512);
      world.run([&](int rank, Transport& transport) {
        Bytes input = inputs[static_cast<size_t>(rank)], output(static_cast<size_t>(part * 4)), all(wanted.size());
        const Tensor whole = flat_tensor(input.data(), DDP_F32, part * ranks), own = flat_tensor(output.data(), DDP_F32, part);
        transport.reduce_scatter(whole, own, DDP_AVERAGE);
        expect(input == inputs[static_cast<size_t>(rank)], "the input is only read");
        transport.all_gather(own, flat_tensor(all.data(), DDP_F32, part * ranks));
        expect(all == wanted, "parts of all");
        const Tensor place = flat_tensor(input.data() + rank * part * 4, DDP_F32, part);  // in place
        transport.reduce_scatter(whole, place, DDP_AVERAGE);
        transport.all_gather(place, whole);
        expect(input == wanted, "in place");
      });
    }
}

void collectives_of_all_kinds_and_sizes_follow_each_other(void**) {
  RailWorld world(4, 0, 20'000, Route::kByCost);
  world.run([&](int rank, Transport& transport) {
    std::mt19937 random(11);  // equal on all ranks
    for (int i = 0; i < 60; ++i) {
      const auto count = static_cast<int64_t>(random() % 3 == 0 ? random() % 300'000 : random() % 3000);
      std::vector<float> data(static_cast<size_t>(count), static_cast<float>(rank)), all(static_cast<size_t>(4 * count));
      if (random() % 4 == 0) std::this_thread::yield();
      switch (random() % 4) {
        case 0: transport.barrier(); break;
        case 1: transport.broadcast(flat_tensor(data.data(), DDP_F32, count), static_cast<int32_t>(random() % 4)); break;
        case 2: transport.all_gather(flat_tensor(data.data(), DDP_F32, count), flat_tensor(all.data(), DDP_F32, 4 * count)); break;
        default:
          transport.all_reduce(flat_tensor(data.data(), DDP_F32, count), DDP_SUM);
          expect(count == 0 || (data.front() == 6.0F && data.back() == 6.0F), "0 + 1 + 2 + 3");
      }
    }
  });
  expect_equal(local_rail_size_violations(), int64_t{0}, "messages that met a receive of another size");
}

void ranks_that_disagree_on_the_size_all_learn_it_before_a_part_travels(void**) {
  for (const int odd : {0, 1, 2}) {
    RailWorld world(3, 0, 20'000, Route::kByCost);
    world.run([&](int rank, Transport& transport) {
      std::vector<float> data(1'000'000, 1.0F);
      const int64_t count = rank == odd ? 100 : 1'000'000;  // one would take the chain
      const std::string text = expect_error(
          DDP_ERROR_MISMATCH, [&] { transport.all_reduce(flat_tensor(data.data(), DDP_F32, count), DDP_SUM); });
      expect_contains(text, "1000000 F32");
      expect_contains(text, "100 F32");
      expect(data.front() == 1.0F && data.back() == 1.0F, "nothing was written");
    });
  }
  expect_equal(local_rail_size_violations(), int64_t{0}, "messages that met a receive of another size");
}

void a_failure_elsewhere_ends_an_exchange_in_its_middle(void**) {
  DirectWorld world(4, 1024);
  std::thread watcher([&] {
    const int64_t before = local_rail_messages();
    const Deadline limit = Deadline::in_ms(10'000);
    while (local_rail_messages() < before + 2000 && !limit.passed()) std::this_thread::yield();
    world.control(2).abort(Error(DDP_ERROR_PEER_FAILED, "rank 7 is dead"));
  });
  world.run([&](int, Transport& transport) {
    std::vector<float> data(2'000'000, 1.0F);
    const std::string text = expect_error(DDP_ERROR_PEER_FAILED, [&] {
      for (;;) transport.all_reduce(flat_tensor(data.data(), DDP_F32, 2'000'000), DDP_SUM);
    });
    expect_equal(text, std::string("rank 7 is dead"), "first cause");
  });
  watcher.join();
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      ddp_test(slices_and_segments_cover_every_element_once),
      ddp_test(the_way_depends_on_size_and_members_alone),
      ddp_test(sums_have_the_bits_of_one_reduction_for_every_type),
      ddp_test(a_large_sum_is_that_of_a_loop_over_the_ranks),
      ddp_test(buckets_have_the_bits_of_the_chain_with_weights_and_two_bytes_on_the_wire),
      ddp_test(sums_that_are_rounded_at_every_step_have_the_bits_of_the_chain),
      ddp_test(a_piece_that_no_rank_uses_is_left_untouched),
      ddp_test(an_incomplete_rank_voids_the_bucket_and_nothing_is_written),
      ddp_test(gathers_and_scatters_are_direct_too),
      ddp_test(collectives_of_all_kinds_and_sizes_follow_each_other),
      ddp_test(ranks_that_disagree_on_the_size_all_learn_it_before_a_part_travels),
      ddp_test(a_failure_elsewhere_ends_an_exchange_in_its_middle),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
