// SPDX-License-Identifier: Apache-2.0
// The direct exchange, with ranks as threads over the in-process endpoint: the order of the tree, how many messages it takes
// and when, and failures in its middle. collectives_test.cpp has the rest.

#include "socket/collectives.hpp"
#include "support/check.hpp"
#include "support/socket_world.hpp"
#include "support/sum_oracle.hpp"
#include "support/values.hpp"

ddp_case(slices_and_segments_cover_every_element_once) {
  for (const int32_t members : {2, 3, 5, 16, 100})
    for (const bool exact : {false, true})
      for (const int64_t bytes : {int64_t{0}, int64_t{64}, int64_t{1} << 30})
        for (const int64_t count :
             {int64_t{0}, int64_t{1}, int64_t{240}, int64_t{241}, int64_t{30'000}, int64_t{20'000'000}}) {
          const int64_t whole = exact ? count / members * members : count;
          const socket::FlatOwnership owned =
              exact ? socket::parts_of(count / members, members) : socket::equal_slices(count, members);
          if (bytes == 64 && count > 1'000'000) continue;
          const socket::Slicing slicing(owned, 4, members, socket::SocketOptions{bytes});
          int64_t next = 0;
          for (int32_t owner = 0; owner < members; ++owner)
            for (int64_t t = 0; t < slicing.number(); ++t) {
              const socket::Span span = slicing.span(owner, t);
              if (span.count == 0) continue;
              expect_equal(span.first, next, "first element of a segment");
              expect(span.count > 0 && span.count * 4 <= socket::Slicing::largest_segment(members),
                     "a segment fits its slot");
              next += span.count;
            }
          expect_equal(next, whole, "elements in all");
          if (exact && whole > 0) expect_equal(slicing.span(1, 0).first, whole / members, "an exact part");
        }
}

ddp_case(the_parts_of_a_step_fit_into_a_small_buffer_where_many_send_to_one) {
  for (const int32_t members : {5, 8, 16}) {
    expect(socket::Slicing::largest_segment(members) * members <= 1 << 20, "parts of a step");
    const int64_t ahead = socket::Slicing::ahead(members, true);
    expect(ahead * members * socket::Slicing::largest_segment(members) >= 14 << 20, "under way over long links");
  }
  expect_equal(socket::Slicing::ahead(8, false), int64_t{2}, "over short ones");
}

ddp_case(the_way_depends_on_size_and_members_alone) {
  const cpu::ReduceRule rule{DDP_F32, DDP_SUM, 4};
  const auto way = [&](int64_t bytes, int32_t members, socket::Phases phases) {
    const socket::Shares shares = socket::one_rank_each(members);
    const socket::Schedule course =
        socket::make_schedule(shares, socket::equal_slices(bytes / 4, members), rule, phases, socket::SocketOptions{});
    return socket::algorithm_of(shares, course, bytes / 4, rule, 1, socket::SocketOptions{});
  };
  expect(way(1024, 4, socket::Phases{}) == socket::Algorithm::kInline &&
             way(1024, 16, socket::Phases{}) == socket::Algorithm::kInline,
         "inside the header");
  expect(way(1024, 17, socket::Phases{}) != socket::Algorithm::kInline &&
             way(256, 17, socket::Phases{}) == socket::Algorithm::kInline,
         "smaller records where they are passed on");
  expect(way(8192, 4, socket::Phases{}) == socket::Algorithm::kInline &&
             way(4096, 16, socket::Phases{true, false}) == socket::Algorithm::kInline &&
             way(256 << 10, 2, socket::Phases{}) == socket::Algorithm::kInline &&
             way(128 << 10, 3, socket::Phases{false, true}) == socket::Algorithm::kInline &&
             way(2048, 17, socket::Phases{}) == socket::Algorithm::kWhole,
         "everybody gets everything at once");
  expect(way(8192, 4, socket::Phases{true, false}) == socket::Algorithm::kShort &&
             way(socket::kMostWhole, 3, socket::Phases{}) == socket::Algorithm::kShort &&
             way(1 << 20, 4, socket::Phases{}) == socket::Algorithm::kShort &&
             way(1 << 20, 8, socket::Phases{}) == socket::Algorithm::kShort,
         "parts in the header");
  expect(way(2 << 20, 3, socket::Phases{}) == socket::Algorithm::kDirect &&
             way(8192, 17, socket::Phases{}) == socket::Algorithm::kDirect &&
             way(int64_t{1} << 24, 40, socket::Phases{}) == socket::Algorithm::kDirect,
         "owners add");
}

// Not the library's own arithmetic: one addition after the other, in the order of the tree.
ddp_case(a_large_sum_is_that_of_a_loop_over_the_tree) {
  constexpr int64_t kCount = 300'001;
  for (const int ranks : {3, 7, 12}) {
    const auto inputs = random_inputs(ranks, DDP_F32, kCount, 21);
    std::vector<float> wanted(static_cast<size_t>(kCount)), leaves(static_cast<size_t>(ranks));
    for (size_t i = 0; i < wanted.size(); ++i) {
      for (size_t r = 0; r < leaves.size(); ++r) std::memcpy(&leaves[r], inputs[r].data() + 4 * i, 4);
      wanted[i] = oracle_sum(leaves);
    }
    RailWorld world(ranks);
    world.run([&](int rank, collective::Transport& transport) {
      Bytes mine = inputs[static_cast<size_t>(rank)];
      const int64_t sent = transport.sent_bytes();
      transport.all_reduce(flat_tensor(mine.data(), DDP_F32, kCount), DDP_SUM);
      expect(std::memcmp(mine.data(), wanted.data(), mine.size()) == 0, "the bits");
      const int64_t ideal = kCount * 4 * 2 * (ranks - 1) / ranks;
      expect(std::abs(transport.sent_bytes() - sent - ideal) < 1000 * ranks, "parts to their owners, its own slice to all");
    });
  }
}

// The tree on single numbers, with weights: a rank of weight 0 does not count.
std::vector<float> weighted_mean(const std::vector<std::vector<float>>& inputs, const std::vector<double>& weights) {
  std::vector<float> result(inputs.front().size());
  const double sum = oracle_sum(weights);
  for (size_t i = 0; i < result.size(); ++i) {
    std::vector<float> leaves;
    for (size_t r = 0; r < inputs.size(); ++r)
      leaves.push_back(weights[r] > 0 ? inputs[r][i] * static_cast<float>(weights[r]) : -0.0F);
    result[i] = oracle_sum(leaves) / static_cast<float>(sum);
  }
  return result;
}

// Pieces of which some touch, some do not and some are empty, for every number of ranks that has a tree of another shape.
ddp_case(buckets_have_the_bits_of_the_tree_with_weights_and_ranks_that_do_not_count) {
  const std::vector<int64_t> lengths{5, 0, 1000, 3, 1, 2000, 0, 77, 409};
  for (const int ranks : {2, 3, 5, 9, 12, 17, 24})
    for (const int64_t segment : {int64_t{0}, int64_t{1024}}) {
      std::vector<std::vector<float>> inputs;
      for (int rank = 0; rank < ranks; ++rank) {
        const Bytes bytes = random_values(DDP_F32, 3495, static_cast<uint64_t>(rank) + 50);
        inputs.emplace_back(3495);
        std::memcpy(inputs.back().data(), bytes.data(), bytes.size());
      }
      RailWorld world(ranks, segment);
      if (segment > 0) world.begin_unevenly();
      world.run([&](int rank, collective::Transport& transport) {
        std::vector<float> memory(4000);
        std::vector<collective::BucketSpec::Piece> pieces;
        int64_t at = 0;
        for (size_t i = 0; i < lengths.size(); ++i) {
          pieces.push_back({reinterpret_cast<std::byte*>(memory.data() + at), lengths[i], false});
          at += lengths[i] + (i % 2 == 1 ? 11 : 0);
        }
        collective::BucketSpec spec = spec_of(pieces, DDP_F32, ranks);
        spec.rule.by_weight = true;
        const auto bucket = transport.prepare(spec);
        for (int pass = 0; pass < 3; ++pass) {
          std::vector<double> weights;
          for (int r = 0; r < ranks; ++r) weights.push_back(pass == 0 ? 1.0 : (r + pass) % 3 == 0 ? 0.0 : 0.3 * (r + 1));
          const float* from = inputs[static_cast<size_t>(rank)].data();
          for (const auto& piece : pieces)
            std::memcpy(piece.data, from, static_cast<size_t>(piece.count * 4)), from += piece.count;
          bucket->start(collective::BucketHeader{
              false, {uint64_t{0b111111111}}, collective::Participation::of(weights[static_cast<size_t>(rank)])});
          bucket->finish();
          const std::vector<float> wanted = weighted_mean(inputs, weights);
          const float* answer = wanted.data();
          for (const auto& piece : pieces) {
            expect(std::memcmp(piece.data, answer, static_cast<size_t>(piece.count * 4)) == 0,
                   std::to_string(ranks) + " ranks, pass " + std::to_string(pass));
            answer += piece.count;
          }
        }
      });
    }
}

// Terms of two bytes: every node is rounded. The result is that of one reduction over all ranks' gradients.
ddp_case(two_bytes_on_the_wire_have_the_bits_of_one_reduction) {
  for (const ddp_dtype wire : {DDP_BF16, DDP_F16})
    for (const int ranks : {2, 5, 8})
      for (const int64_t count : {int64_t{100}, int64_t{10'007}}) {
        const auto inputs = random_inputs(ranks, DDP_F32, count, 8);
        std::vector<const void*> in;
        for (const Bytes& input : inputs) in.push_back(input.data());
        cpu::ReduceRule rule{DDP_F32, DDP_AVERAGE, ranks};
        rule.wire = wire;
        Bytes wanted(inputs.front().size());
        void* out = wanted.data();
        cpu::reduce(rule, in.data(), ranks, &out, 1, count);
        RailWorld world(ranks);
        world.run([&](int rank, collective::Transport& transport) {
          Bytes mine = inputs[static_cast<size_t>(rank)];
          collective::BucketSpec spec = spec_of({{mine.data(), count, false}}, DDP_F32, ranks);
          spec.rule = rule;
          const auto bucket = transport.prepare(spec);
          bucket->start(collective::BucketHeader{});
          bucket->finish();
          expect(mine == wanted, "the bits");
        });
      }
}

// A message whose receive is posted late costs a hop more. Whatever the threads do, it is no header, no data
// that is sent with one, no result of a short exchange and no part of the first segments.
ddp_case(receives_are_posted_before_they_are_needed) {
  for (const int ranks : {2, 4, 7, 16}) {
    RailWorld world(ranks);
    const int64_t two_segments = std::min<int64_t>(200'000, socket::Slicing::largest_segment(ranks) / 2 - 64);
    std::atomic<int> ready{0}, done{0};
    std::atomic<int64_t> before{0}, after{0};
    const auto meet = [&](std::atomic<int>& place) {
      ++place;
      while (place < ranks) std::this_thread::yield();
    };
    world.run([&](int rank, collective::Transport& transport) {
      meet(ready);
      if (rank == 0) before = local_endpoint_early_sends();
      transport.barrier();
      for (const int64_t part : {int64_t{1}, int64_t{100}, int64_t{1000}, int64_t{4000}, int64_t{16'000}, two_segments}) {
        std::vector<float> data(static_cast<size_t>(part * ranks), 1.0F);
        const Tensor whole = flat_tensor(data.data(), DDP_F32, part * ranks);
        const Tensor own = flat_tensor(data.data() + rank * part, DDP_F32, part);
        if (part < 20'000) transport.all_reduce(whole, DDP_SUM);
        transport.reduce_scatter(whole, own, DDP_SUM);
        transport.all_gather(own, whole);
        if (part * ranks <= two_segments) transport.broadcast(whole, ranks - 1);
        expect_equal(data.back(), static_cast<float>(part < 20'000 ? ranks * ranks : ranks), "the sum");
      }
      meet(done);
      if (rank == 0) after = local_endpoint_early_sends();
      transport.barrier();
    });
    expect_equal(after - before, int64_t{0}, "messages before their receives, " + std::to_string(ranks) + " ranks");
  }
}

ddp_case(ranks_that_disagree_on_the_size_all_learn_it_before_a_part_travels) {
  for (const int odd : {0, 1, 2}) {
    RailWorld world(3);
    world.run([&](int rank, collective::Transport& transport) {
      std::vector<float> data(1'000'000, 1.0F);
      const int64_t count = rank == odd ? 100 : 1'000'000;  // one would send it with its header
      expect_error(DDP_ERROR_DIFFERENT_CALLS,
                   [&] { transport.all_reduce(flat_tensor(data.data(), DDP_F32, count), DDP_SUM); },
                   {"1000000 F32", "100 F32"});
      expect(data.front() == 1.0F && data.back() == 1.0F, "nothing was written");
    });
  }
  expect_equal(local_endpoint_size_violations(), int64_t{0}, "messages that met a receive of another size");
}

ddp_case(a_failure_elsewhere_ends_an_exchange_in_its_middle) {
  RailWorld world(4, 1024);
  std::thread watcher([&] {
    const int64_t before = local_endpoint_messages();
    const os::Deadline limit = os::Deadline::in_ms(10'000);
    while (local_endpoint_messages() < before + 2000 && !limit.passed()) std::this_thread::yield();
    world.control(2).abort(Error(DDP_ERROR_PEER_FAILED, "rank 7 is dead"));
  });
  world.run([&](int, collective::Transport& transport) {
    std::vector<float> data(2'000'000, 1.0F);
    const std::string text = expect_error(DDP_ERROR_PEER_FAILED, [&] {
      for (;;) transport.all_reduce(flat_tensor(data.data(), DDP_F32, 2'000'000), DDP_SUM);
    });
    expect_equal(text, std::string("rank 7 is dead"), "first cause");
  });
  watcher.join();
}
