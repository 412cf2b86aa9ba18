// SPDX-License-Identifier: Apache-2.0
// Collectives over shared memory with ranks as threads, against the naive sum over all ranks' inputs.

#include "device/cpu/reduce.hpp"
#include "support/check.hpp"
#include "support/group_world.hpp"
#include "support/sum_oracle.hpp"

constexpr int kSizes[] = {1, 2, 3, 5, 8};
const int64_t kCounts[] = {0, 1, 2, 3, 7, 1000, 1025, 65537, 1000003};

/// Deterministic bytes that are the same wherever a rank's input is rebuilt.
std::vector<float> input_of(int rank, int64_t count) {
  std::mt19937 random(static_cast<unsigned>(rank * 7919 + count));
  std::uniform_real_distribution<float> values(-10, 10);
  std::vector<float> data(static_cast<size_t>(count));
  for (float& value : data) value = values(random);
  return data;
}

/// The public rule, written naively: float sum in the tree, then one division. Formed once for all ranks.
const std::vector<float>& mean_of(int size, int64_t count) {
  static std::mutex mutex;
  static std::map<std::pair<int, int64_t>, std::vector<float>> known;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [place, is_new] = known.try_emplace({size, count});
  std::vector<float>& mean = place->second;
  if (!is_new) return mean;
  mean = oracle_tree(
      0, static_cast<size_t>(size), [&](size_t rank) { return input_of(static_cast<int>(rank), count); },
      [](std::vector<float> a, const std::vector<float>& b) {
        for (size_t i = 0; i < a.size(); ++i) a[i] = a[i] + b[i];
        return a;
      });
  for (float& value : mean) value = value / static_cast<float>(size);
  return mean;
}

float* data_of(const std::vector<float>& input) { return const_cast<float*>(input.data()); }  // read only

bool same_bits(const void* a, const std::vector<float>& b) {
  return b.empty() || std::memcmp(a, b.data(), b.size() * 4) == 0;
}

ddp_case(all_reduce_gives_the_bits_of_the_rule) {
  for (const int size : kSizes)
    run_groups(size, [&](group::Group& group, int rank) {
      for (const int64_t count : kCounts)
        for (const bool in_reach : {false, true}) {
          std::vector<float> data = input_of(rank, count);
          float* memory = data.data();
          if (in_reach) {
            memory = static_cast<float*>(group.memory().alloc(count * 4 + 4));
            if (count > 0) std::memcpy(memory, data.data(), data.size() * 4);
          }
          group.all_reduce(flat_tensor(memory, DDP_F32, count), DDP_AVERAGE);
          expect(same_bits(memory, mean_of(size, count)),
                 "mean of " + std::to_string(count) + " on " + std::to_string(size));
          group.barrier();
          if (in_reach) group.memory().free(memory);
        }
    });
}

ddp_case(gather_scatter_and_broadcast_move_the_right_elements) {
  for (const int size : kSizes)
    run_groups(size, [&](group::Group& group, int rank) {
      for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{200003}}) {
        const std::vector<float> mine = input_of(rank, count);
        std::vector<float> all(static_cast<size_t>(count * size), -1.0F);
        group.all_gather(flat_tensor(data_of(mine), DDP_F32, count), flat_tensor(all.data(), DDP_F32, count * size));
        for (int r = 0; r < size; ++r) expect(same_bits(all.data() + r * count, input_of(r, count)), "gathered part");

        const std::vector<float> wide = input_of(rank, count * size);
        std::vector<float> part(static_cast<size_t>(count));
        group.reduce_scatter(flat_tensor(data_of(wide), DDP_F32, count * size), flat_tensor(part.data(), DDP_F32, count),
                             DDP_AVERAGE);
        const std::vector<float> mean = mean_of(size, count * size);
        const std::vector<float> wanted(mean.begin() + rank * count, mean.begin() + (rank + 1) * count);
        expect(same_bits(part.data(), wanted), "scattered part");

        for (int root = 0; root < size; ++root) {
          std::vector<float> sent = input_of(rank + 100 * root, count);
          group.broadcast(flat_tensor(sent.data(), DDP_F32, count), root);
          expect(same_bits(sent.data(), input_of(root + 100 * root, count)), "broadcast");
        }
      }
    });
}

/// Small ones leave without a word, and the ring of announcements goes round several times; ranks take turns at being late.
ddp_ranks_case(run_groups, many_small_collectives_of_all_kinds_follow_one_another, 3) {
  for (int64_t i = 0; i < 600; ++i) {
    if (i % 97 == rank * 7) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the others sleep
    int64_t mine = i * 10 + rank;
    int64_t all[3] = {};
    group.all_gather(flat_tensor(&mine, DDP_I64, 1), flat_tensor(all, DDP_I64, 3));
    for (int64_t peer = 0; peer < 3; ++peer) expect_equal(all[peer], i * 10 + peer, "gathered");
    if (i % 3 == 0) group.barrier();
    int64_t said = rank == i % 3 ? i : -1;
    group.broadcast(flat_tensor(&said, DDP_I64, 1), static_cast<int32_t>(i % 3));
    expect_equal(said, i, "broadcast");
    group.all_reduce(flat_tensor(&mine, DDP_I64, 1), DDP_SUM);
    expect_equal(mine, i * 30 + 3, "sum");
  }
}

ddp_case(a_rank_that_does_not_come_is_named) {
  std::atomic<int> named{0};
  ddp_group_options options = world_options();
  options.timeout_ms = 200;
  run_groups_with(3, options, [&](group::Group& group, int rank) {
    if (rank == 2) {
      wait_until([&] { return named.load() == 2; });
      return;
    }
    try {
      group.barrier();
    } catch (const Error& error) {
      expect(error.status() == DDP_ERROR_TIMED_OUT && error.text().find("rank 2") != std::string::npos, error.text());
      ++named;
    }
  });
  assert_int_equal(named.load(), 2);
}

ddp_case(an_abort_wakes_a_waiting_rank) {
  std::atomic<int> aborted{0};
  run_groups(2, [&](group::Group& group, int rank) {
    if (rank == 1) {
      group.health().abort(Error(DDP_ERROR_ABORTED, "enough"));
      return;
    }
    try {
      group.barrier();
    } catch (const Error& error) {
      expect(error.status() == DDP_ERROR_ABORTED && error.text() == "enough", error.text());
      ++aborted;
    }
  });
  assert_int_equal(aborted.load(), 1);
}
