// SPDX-License-Identifier: Apache-2.0
// The collectives of linked members, with ranks as threads over the in-process one: the bits of cpu::reduce for every
// element type, operation, size and number of ranks; the bucket headers; and how many messages it takes. When ranks
// disagree, are late or have left: collectives_failure_test.cpp.

#include "support/check.hpp"
#include "support/socket_world.hpp"
#include "support/values.hpp"

constexpr int kSizes[] = {1, 2, 3, 5, 8, 17};

std::string where(int ranks, int rank, ddp_dtype dtype, ddp_reduce op, int64_t count) {
  return std::to_string(count) + " " + dtype_name(dtype) + " elements, operation " + std::to_string(op) + ", rank " +
         std::to_string(rank) + " of " + std::to_string(ranks);
}

struct Case {
  ddp_dtype dtype;
  ddp_reduce op;
  int64_t count;
  std::vector<Bytes> inputs;
  Bytes wanted;
};

std::vector<Case> cases(int ranks, const std::vector<ddp_dtype>& dtypes, const std::vector<ddp_reduce>& ops,
                        const std::vector<int64_t>& counts) {
  std::vector<Case> all;
  for (const ddp_dtype dtype : dtypes)
    for (const ddp_reduce op : ops)
      for (const int64_t count : counts) {
        auto inputs = random_inputs(ranks, dtype, count, 7 + all.size());
        Bytes wanted = reduced(inputs, dtype, op, count);
        all.push_back(Case{dtype, op, count, std::move(inputs), std::move(wanted)});
      }
  return all;
}

void check_all_reduce(int ranks, int64_t segment_bytes, const std::vector<Case>& all) {
  RailWorld world(ranks, segment_bytes);
  world.run([&](int rank, collective::Transport& transport) {
    for (const Case& one : all) {
      Bytes mine = one.inputs[static_cast<size_t>(rank)];
      transport.all_reduce(flat_tensor(mine.data(), one.dtype, one.count), one.op);
      expect(mine == one.wanted, "the bits of " + where(ranks, rank, one.dtype, one.op, one.count));
    }
  });
}

std::vector<ddp_dtype> all_dtypes() { return {std::begin(kAllDtypes), std::end(kAllDtypes)}; }
std::vector<ddp_reduce> all_ops() { return {std::begin(kAllOps), std::end(kAllOps)}; }

ddp_case(sums_have_the_bits_of_one_reduction_for_every_type) {
  for (const int ranks : kSizes) {
    check_all_reduce(ranks, 0, cases(ranks, all_dtypes(), all_ops(), {0, 1, 2, 3, 7, 1000, 1025}));
    check_all_reduce(ranks, 0, cases(ranks, all_dtypes(), {DDP_AVERAGE}, {65'537}));
  }
  for (const int ranks : {2, 3, 4, 7})
    for (const int64_t segment : {0, 256})
      check_all_reduce(ranks, segment, cases(ranks, all_dtypes(), all_ops(), {0, 1, 2, 3, 1000, 10'007}));
}

ddp_case(sums_of_many_small_segments_have_the_same_bits) {
  for (const int ranks : kSizes)
    check_all_reduce(ranks, 256,
                     cases(ranks, {DDP_F32, DDP_F16, DDP_I64}, {DDP_AVERAGE, DDP_MAX}, {0, 1, 63, 64, 65, 1000, 30'011}));
}

ddp_case(a_large_array_has_the_bits_of_one_reduction) {
  for (const int ranks : {2, 3, 5})
    check_all_reduce(ranks, 0, cases(ranks, {DDP_F32, DDP_BF16}, {DDP_AVERAGE}, {1'000'003}));
}

// Pieces of a bucket: some touch, some do not, some are empty.
std::vector<collective::BucketSpec::Piece> cut(Bytes& memory, std::vector<int64_t> lengths, int64_t gap) {
  std::vector<collective::BucketSpec::Piece> pieces;
  int64_t at = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    pieces.push_back({memory.data() + at * 4, lengths[i], false});
    at += lengths[i] + (i % 2 == 1 ? gap : 0);
  }
  return pieces;
}

ddp_case(buckets_reduce_their_pieces_where_they_lie) {
  const std::vector<int64_t> lengths{5, 0, 1000, 3, 1, 20'000, 0, 77, 4096};
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  for (const int ranks : kSizes)
    for (const int64_t segment : {int64_t{0}, int64_t{1024}}) {
      const auto inputs = random_inputs(ranks, DDP_F32, total, 5);
      const Bytes wanted = reduced(inputs, DDP_F32, DDP_AVERAGE, total);
      RailWorld world(ranks, segment);
      world.run([&](int rank, collective::Transport& transport) {
        Bytes memory(static_cast<size_t>((total + 100) * 4), std::byte{0x5a});
        const auto pieces = cut(memory, lengths, 11);
        const auto bucket = transport.prepare(spec_of(pieces, DDP_F32, ranks));
        for (int pass = 0; pass < 3; ++pass) {
          const std::byte* from = inputs[static_cast<size_t>(rank)].data();
          for (const auto& piece : pieces) {
            std::memcpy(piece.data, from, static_cast<size_t>(piece.count * 4));
            from += piece.count * 4;
          }
          bucket->start(collective::BucketHeader{});
          bucket->finish();
          const std::byte* answer = wanted.data();
          for (const auto& piece : pieces) {
            expect(std::memcmp(piece.data, answer, static_cast<size_t>(piece.count * 4)) == 0, "the bits of a piece");
            answer += piece.count * 4;
          }
        }
        expect(memory.back() == std::byte{0x5a} && memory[(5 + 0) * 4] == std::byte{0x5a},
               "memory between pieces untouched");
      });
    }
}

ddp_case(a_piece_that_moved_is_reduced_at_its_new_address) {
  RailWorld world(3);
  world.run([&](int rank, collective::Transport& transport) {
    std::vector<float> first(2000, 1.0F), old(3000, -1.0F), fresh(3000, static_cast<float>(rank));
    std::vector<collective::BucketSpec::Piece> pieces{{reinterpret_cast<std::byte*>(first.data()), 2000, false},
                                                      {reinterpret_cast<std::byte*>(old.data()), 3000, true}};
    const auto bucket = transport.prepare(spec_of(pieces, DDP_F32, 3));
    expect(bucket->set_address(1, reinterpret_cast<std::byte*>(fresh.data())), "a piece of its own moves");
    bucket->start(collective::BucketHeader{});
    bucket->finish();
    expect(fresh.front() == 1.0F && fresh.back() == 1.0F, "mean of 0, 1, 2 at the new address");
    expect(old.front() == -1.0F && old.back() == -1.0F && first.back() == 1.0F, "old address untouched");
  });
}

ddp_case(every_rank_gets_the_union_of_the_notes) {
  for (const int ranks : kSizes)
    for (const int64_t count : {int64_t{10}, int64_t{50'000}})
      for (const size_t words : {size_t{1}, size_t{12}, size_t{600}, size_t{300}}) {
        RailWorld world(ranks);
        world.run([&](int rank, collective::Transport& transport) {
          std::vector<float> data(static_cast<size_t>(count), 1.0F);
          const auto bucket =
              transport.prepare(spec_of({{reinterpret_cast<std::byte*>(data.data()), count, false}}, DDP_F32, ranks));
          for (int pass = 0; pass < 2; ++pass) {
            collective::BucketHeader header;
            header.used.assign(words, uint64_t{1} << rank);
            header.used.back() <<= 32;
            bucket->start(header);
            bucket->finish();
            const uint64_t all = (uint64_t{1} << ranks) - 1;
            expect_equal(bucket->header().used.size(), words, "words");
            expect_equal(bucket->header().used.front(), words == 1 ? all << 32 : all, "first word");
            expect_equal(bucket->header().used.back(), all << 32, "last word");
            expect(!bucket->header().incomplete, "complete");
          }
        });
      }
}

ddp_case(a_piece_that_no_rank_uses_is_left_untouched) {
  for (const int64_t count : {int64_t{7}, int64_t{10'000}, int64_t{40'000}}) {
    RailWorld world(3, count > 20'000 ? 4096 : 0);
    world.run([&](int rank, collective::Transport& transport) {
      std::vector<float> used(static_cast<size_t>(count), static_cast<float>(rank)), unused = used, partly = used;
      std::vector<collective::BucketSpec::Piece> pieces;
      for (auto* piece : {&used, &unused, &partly})
        pieces.push_back({reinterpret_cast<std::byte*>(piece->data()), count, false});
      const auto bucket = transport.prepare(spec_of(pieces, DDP_F32, 3));
      bucket->start(collective::BucketHeader{false, {rank == 2 ? uint64_t{0b101} : uint64_t{0b001}}});
      bucket->finish();
      for (size_t i = 0; i < used.size(); ++i)
        expect(used[i] == 1.0F && partly[i] == 1.0F && unused[i] == static_cast<float>(rank),
               "element " + std::to_string(i));
    });
  }
}

ddp_case(an_incomplete_rank_voids_the_bucket_and_nothing_is_written) {
  for (const int ranks : {2, 3, 5})
    for (const int64_t count : {int64_t{10}, int64_t{30'000}, int64_t{100'000}, int64_t{500'000}})
      for (int guilty = 0; guilty < ranks; ++guilty) {
        RailWorld world(ranks, count == 100'000 ? 4096 : 0);
        if (guilty > 0) world.begin_unevenly();
        world.run([&](int rank, collective::Transport& transport) {
          std::vector<float> data(static_cast<size_t>(count), static_cast<float>(rank));
          const auto bucket =
              transport.prepare(spec_of({{reinterpret_cast<std::byte*>(data.data()), count, false}}, DDP_F32, ranks));
          if (count == 100'000) expect_equal(bucket->describe(), std::string("direct exchange over threads"), "the way");
          bucket->start(collective::BucketHeader{rank == guilty, {}});
          bucket->finish();
          expect(bucket->header().incomplete, "incomplete on all");
          for (const float value : data) expect(value == static_cast<float>(rank), "gradient untouched");
          bucket->start(collective::BucketHeader{});  // the next pass is whole
          bucket->finish();
          expect_equal(data.front(), static_cast<float>(ranks - 1) / 2.0F, "mean");
          expect_equal(data.back(), static_cast<float>(ranks - 1) / 2.0F, "mean");
        });
      }
}

ddp_case(all_gather_gives_every_part_to_every_rank) {
  for (const int ranks : kSizes)
    for (const int64_t count : {0, 1, 3, 200, 65'537}) {
      RailWorld world(ranks);
      world.run([&](int rank, collective::Transport& transport) {
        std::vector<int64_t> mine(static_cast<size_t>(count)), all(static_cast<size_t>(count * ranks), -1);
        std::iota(mine.begin(), mine.end(), rank * 1'000'000);
        transport.all_gather(flat_tensor(mine.data(), DDP_I64, count), flat_tensor(all.data(), DDP_I64, count * ranks));
        for (int64_t i = 0; i < count * ranks; ++i)
          expect_equal(all[static_cast<size_t>(i)], i / count * 1'000'000 + i % count, "element " + std::to_string(i));
      });
    }
}

ddp_case(scatters_give_each_rank_its_part_and_gathers_all) {
  for (const int ranks : kSizes)
    for (const int64_t segment : {int64_t{0}, int64_t{512}})
      for (const int64_t part : {0, 1, 100, 20'001}) {
        const auto inputs = random_inputs(ranks, DDP_F32, part * ranks, 3);
        const Bytes wanted = reduced(inputs, DDP_F32, DDP_AVERAGE, part * ranks);
        RailWorld world(ranks, segment);
        if (part > 100) world.begin_unevenly();
        world.run([&](int rank, collective::Transport& transport) {
          Bytes input = inputs[static_cast<size_t>(rank)], output(static_cast<size_t>(part * 4)), all(wanted.size());
          const Tensor whole = flat_tensor(input.data(), DDP_F32, part * ranks),
                       own = flat_tensor(output.data(), DDP_F32, part);
          transport.reduce_scatter(whole, own, DDP_AVERAGE);
          expect(input == inputs[static_cast<size_t>(rank)], "the input is only read");
          expect(part == 0 || std::memcmp(output.data(), wanted.data() + rank * part * 4, output.size()) == 0, "own part");
          transport.all_gather(own, flat_tensor(all.data(), DDP_F32, part * ranks));
          expect(all == wanted, "parts of all");
          // In place: the small tensor is the own part of the large one.
          const Tensor place = flat_tensor(input.data() + rank * part * 4, DDP_F32, part);
          transport.reduce_scatter(whole, place, DDP_AVERAGE);
          expect(part == 0 || std::memcmp(place.data, output.data(), output.size()) == 0, "in place");
          transport.all_gather(place, whole);
          expect(input == wanted, "in place");
        });
      }
}

ddp_case(broadcast_copies_the_root_bit_for_bit) {
  for (const int ranks : kSizes) {
    RailWorld world(ranks);
    world.run([&](int rank, collective::Transport& transport) {
      for (int root = 0; root < ranks; ++root)
        for (const int64_t count : {int64_t{0}, int64_t{5}, int64_t{700'001}}) {
          const Bytes wanted = random_values(DDP_F64, count, static_cast<uint64_t>(root));
          Bytes mine = rank == root ? wanted : Bytes(wanted.size());
          transport.broadcast(flat_tensor(mine.data(), DDP_F64, count), root);
          expect(mine == wanted, "root " + std::to_string(root) + ", rank " + std::to_string(rank));
        }
    });
  }
}

ddp_case(no_rank_leaves_a_barrier_before_all_have_come) {
  RailWorld world(5);
  std::atomic<int> arrived{0};
  world.run([&](int, collective::Transport& transport) {
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      transport.barrier();
      expect(arrived >= 5 * round, "all five came");
      transport.barrier();
    }
  });
}

ddp_case(collectives_of_all_kinds_and_sizes_follow_each_other) {
  for (const auto& [ranks, segment] : {std::pair{3, 2048}, {4, 0}}) {
    RailWorld world(ranks, segment);
    world.run([n = ranks](int rank, collective::Transport& transport) {
      std::mt19937 random(11);  // equal on all ranks
      for (int i = 0; i < 200; ++i) {
        const auto count = static_cast<int64_t>(random() % 8 == 0 ? random() % 300'000 : random() % 3000);
        std::vector<float> data(static_cast<size_t>(count), static_cast<float>(rank)), all(static_cast<size_t>(n * count));
        const Tensor tensor = flat_tensor(data.data(), DDP_F32, count);
        if (random() % 4 == 0) std::this_thread::yield();
        switch (random() % 4) {
          case 0: transport.barrier(); break;
          case 1: transport.broadcast(tensor, static_cast<int32_t>(random() % static_cast<unsigned>(n))); break;
          case 2: transport.all_gather(tensor, flat_tensor(all.data(), DDP_F32, n * count)); break;
          default:
            transport.all_reduce(tensor, DDP_SUM);
            for (const float each : data) expect_equal(each, static_cast<float>(n * (n - 1) / 2), "the sum of all ranks");
        }
      }
    });
  }
  expect_equal(local_endpoint_size_violations(), int64_t{0}, "messages that met a receive of another size");
}

// One record from each to each where all are linked; ceil(log2 n) records of many ranks elsewhere. Small sums cost nothing
// more.
ddp_case(a_barrier_and_a_small_sum_take_one_round_of_headers) {
  for (const auto& [ranks, messages] : {std::pair{2, 1}, {3, 2}, {8, 7}, {16, 15}, {17, 5}, {33, 6}}) {
    RailWorld world(ranks);
    std::atomic<int> arrived{0};
    std::atomic<int64_t> before{0};
    const auto all = [&](int round) {
      ++arrived;
      while (arrived < round * ranks) std::this_thread::yield();
    };
    world.run([&, n = ranks, m = messages](int rank, collective::Transport& transport) {
      std::vector<double> metric(40, 1.0);
      int round = 0;
      for (int kind = 0; kind < 4; ++kind) {
        all(++round);
        if (rank == 0) before = local_endpoint_messages();
        all(++round);
        const Tensor tensor = flat_tensor(metric.data(), DDP_F64, 30);
        if (kind == 0) transport.barrier();
        if (kind == 1) transport.all_reduce(tensor, DDP_MAX);
        if (kind == 2) transport.broadcast(tensor, n - 1);
        if (kind == 3)
          transport.reduce_scatter(flat_tensor(metric.data(), DDP_F64, n), flat_tensor(metric.data() + 39, DDP_F64, 1),
                                   DDP_MAX);
        all(++round);
        if (rank == 0)
          expect_equal(local_endpoint_messages() - before, int64_t{n} * m,
                       "messages of " + std::to_string(n) + " ranks, kind " + std::to_string(kind));
        all(++round);  // no rank leaves before the messages are counted
      }
    });
  }
}
