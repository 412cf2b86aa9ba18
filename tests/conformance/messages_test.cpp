// SPDX-License-Identifier: Apache-2.0
// Messages from one rank to one other, and the collectives that are made of them, on every transport: threads, shared
// memory, Gloo, and hosts with two ranks each; those that take tensors on a GPU there too, with the same numbers.
#include "group/messages.hpp"

#include "control/call_state.hpp"
#include "ddp/messages.h"
#include "support/check.hpp"
#include "support/path_array.hpp"
#include "support/sum_oracle.hpp"

constexpr int kRanks = 4;
const int64_t kCounts[] = {0, 1, 1000, 16 * 1024, 16 * 1024 + 1, 400'000};

std::vector<float> numbers(int from, int to, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t at = 0; at < values.size(); ++at)
    values[at] = static_cast<float>(from * 1000 + to) + static_cast<float>(at % 977) / 8;
  return values;
}

Tensor tensor_of(std::vector<float>& values) {
  return flat_tensor(values.data(), DDP_F32, static_cast<int64_t>(values.size()));
}

void send(group::Group& group, std::vector<float> values, int32_t peer, int64_t tag, Path path = Path::kLocal) {
  PathArray given(path, group, std::move(values));
  group::send_message(group, given.tensor(), peer, tag);
}

/// It has to be what `numbers` gives.
void receive(group::Group& group, int from, int64_t count, int64_t tag, Path path = Path::kLocal) {
  PathArray taken(path, group, count);
  expect_equal(group::receive_message(group, taken.tensor(), from, tag), from, "the sender");
  expect(taken.values() == numbers(from, group.rank(), count),
         "message of " + std::to_string(count) + " from " + std::to_string(from));
}

ddp_ranks_case_on(kEveryPath, run_on, each_pair_exchanges_every_size, kRanks) {
  for (const int64_t count : kCounts)
    for (int low = 0; low < kRanks; ++low)
      for (int high = low + 1; high < kRanks; ++high)
        for (const auto& [from, to] : {std::pair(low, high), std::pair(high, low)}) {
          if (rank == from) send(group, numbers(from, to, count), to, count, path);
          if (rank == to) receive(group, from, count, count, path);
        }
  group.barrier();
}

ddp_ranks_case_on(kEveryPath, run_on, a_ring_passes_large_messages_on_at_the_same_time, kRanks) {
  const int next = (rank + 1) % kRanks, before = (rank + kRanks - 1) % kRanks;
  for (int turn = 0; turn < 5; ++turn) {
    std::string failure;
    std::thread sender([&] {  // one thread sends while another receives
      try {
        send(group, numbers(rank, next, 300'000), next, turn, path);
      } catch (const std::exception& error) {
        failure = error.what();
      }
    });
    receive(group, before, 300'000, turn, path);
    sender.join();
    expect(failure.empty(), failure);
  }
  group.barrier();
}

ddp_ranks_case_on(kEveryPath, run_on, any_source_receives_of_all, kRanks) {
  constexpr int kEach = 5;
  if (rank != 2)
    for (int n = 0; n < kEach; ++n) send(group, numbers(rank, n, 100 + 20'000 * (n % 2)), 2, n, path);
  std::vector<int> seen(kRanks);
  for (int n = 0; rank == 2 && n < kEach; ++n)
    for (int each = 0; each < kRanks - 1; ++each) {
      PathArray taken(path, group, 100 + 20'000 * (n % 2));
      const int32_t from = group::receive_message(group, taken.tensor(), DDP_ANY_SOURCE, n);
      expect(taken.values() == numbers(from, n, taken.tensor().count), "message of " + std::to_string(from));
      ++seen[static_cast<size_t>(from)];
    }
  for (int from = 0; rank == 2 && from < kRanks; ++from)
    expect_equal(seen[static_cast<size_t>(from)], from == 2 ? 0 : kEach, "of rank " + std::to_string(from));
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_on, messages_and_collectives_do_not_meet, kRanks) {
  for (int turn = 0; turn < 20; ++turn) {
    if (rank == 0) send(group, numbers(0, 3, 50), 3, 1);
    float sum = 1;
    group.all_reduce(flat_tensor(&sum, DDP_F32, 1), DDP_SUM);
    expect_equal(sum, static_cast<float>(kRanks), "the sum");
    if (rank == 3) receive(group, 0, 50, 1);
  }
}

ddp_ranks_case_on(kEveryPath, run_on, a_message_of_another_type_is_a_mismatch_and_the_group_stays, 2) {
  PathArray array(path, group, numbers(0, 1, 100'000));
  Tensor other_type = array.tensor();
  other_type.dtype = DDP_I32;
  std::string text;
  if (rank == 0)
    text = expect_error(DDP_ERROR_MISMATCH, [&] { group::send_message(group, array.tensor(), 1, 6); });
  else
    text = expect_error(DDP_ERROR_MISMATCH, [&] { static_cast<void>(group::receive_message(group, other_type, 0, 6)); });
  expect_contains(text, "100000 F32 elements with tag 6");
  expect_contains(text, "100000 I32 elements");
  group.barrier();
  if (rank == 0) send(group, numbers(0, 1, 7), 1, 6, path);
  if (rank == 1) receive(group, 0, 7, 6, path);
  group.barrier();
}

ddp_ranks_case_on(kEveryPath, run_on, gather_and_scatter_move_the_right_parts, kRanks) {
  for (const int64_t count : kCounts)
    for (int root = 0; root < kRanks; ++root) {
      PathArray mine(path, group, numbers(rank, root, count)), part(path, group, count),
          all(path, group, rank == root ? count * kRanks : 0);
      const Tensor whole = all.tensor();
      group::gather(group, mine.tensor(), rank == root ? &whole : nullptr, root);
      const std::vector<float> got = all.values();
      for (int from = 0; rank == root && from < kRanks; ++from)
        expect(
            std::vector<float>(got.begin() + from * count, got.begin() + (from + 1) * count) == numbers(from, root, count),
            "gathered part");
      group::scatter(group, rank == root ? &whole : nullptr, part.tensor(), root);
      expect(part.values() == numbers(rank, root, count), "the part comes back");
    }
}

ddp_ranks_case_on(kEveryPath, run_on, each_rank_gives_each_other_one_a_part, kRanks) {
  for (const bool uneven : {false, true})
    for (const int64_t unit : {int64_t{3}, int64_t{40'000}}) {
      const auto count = [&](int from, int to) { return uneven ? unit * ((from + 2 * to) % 3) : unit; };
      group::ExchangeCounts counts;
      std::vector<float> input, wanted;
      for (int other = 0; other < kRanks; ++other) {
        const std::vector<float> given = numbers(rank, other, count(rank, other));
        input.insert(input.end(), given.begin(), given.end());
        const std::vector<float> taken = numbers(other, rank, count(other, rank));
        wanted.insert(wanted.end(), taken.begin(), taken.end());
        if (uneven) counts.sent.push_back(count(rank, other)), counts.received.push_back(count(other, rank));
      }
      PathArray given(path, group, input), output(path, group, static_cast<int64_t>(wanted.size()));
      group::all_to_all(group, given.tensor(), output.tensor(), counts);
      expect(output.values() == wanted, uneven ? "uneven parts" : "even parts");
    }
}

ddp_ranks_case_on(kEveryPath, run_on, counts_that_do_not_fit_are_a_mismatch_on_all_ranks, kRanks) {
  PathArray input(path, group, 8), output(path, group, 8), two(path, group, 2);
  group::ExchangeCounts counts{{2, 2, 2, 2}, {2, 2, 2, 2}};
  if (rank == 1) counts.sent = {2, 2, 1, 3};
  const std::string text =
      expect_error(DDP_ERROR_MISMATCH, [&] { group::all_to_all(group, input.tensor(), output.tensor(), counts); });
  expect_contains(text, "rank 1 (");
  expect_contains(text, "sends rank 2 (");
  expect_contains(text, "1 elements, which expects 2 of it");
  expect(output.values() == std::vector<float>(8, -1), "nothing is written");
  std::vector<int64_t> gives{2, 2, 2, 2};
  if (rank == 2) gives = {2, 2, 2, 3};
  PathArray all(path, group, std::accumulate(gives.begin(), gives.end(), int64_t{0}));
  expect_contains(
      expect_error(DDP_ERROR_MISMATCH, [&] { group::all_gather_counts(group, two.tensor(), all.tensor(), gives); }),
      "rank 2 (");
  group.barrier();
}

ddp_ranks_case_on(kEveryPath, run_on, tensors_of_different_sizes_are_gathered, kRanks) {
  for (const int64_t unit : {int64_t{0}, int64_t{5}, int64_t{30'000}}) {
    std::vector<int64_t> counts;
    std::vector<float> wanted;
    for (int from = 0; from < kRanks; ++from) {
      counts.push_back(unit * ((from + 1) % kRanks));
      const std::vector<float> part = numbers(from, 9, counts.back());
      wanted.insert(wanted.end(), part.begin(), part.end());
    }
    PathArray mine(path, group, numbers(rank, 9, counts[static_cast<size_t>(rank)])),
        all(path, group, static_cast<int64_t>(wanted.size()));
    group::all_gather_counts(group, mine.tensor(), all.tensor(), counts);
    expect(all.values() == wanted, "gathered parts of " + std::to_string(unit));
  }
}

ddp_ranks_case_on(kEveryHostPath, run_on, reduce_gives_the_root_the_bits_of_the_all_reduce, kRanks) {
  for (const ddp_reduce op : {DDP_AVERAGE, DDP_SUM, DDP_MIN, DDP_MAX, DDP_PRODUCT})
    for (const int64_t count : {int64_t{1}, int64_t{1000}, int64_t{300'001}}) {
      const int root = static_cast<int>(count) % kRanks;
      std::vector<float> all = numbers(rank, 1, count), one = all;
      group.all_reduce(tensor_of(all), op);
      group::reduce(group, tensor_of(one), op, root);
      if (rank == root) expect(std::memcmp(all.data(), one.data(), all.size() * sizeof(float)) == 0, "bits at the root");
    }
}

/// In the tree over the ranks, naively.
ddp_ranks_case_on(kEveryHostPath, run_on, a_product_is_formed_in_the_tree, 3) {
  constexpr int64_t kCount = 70'000;
  std::vector<float> mine = numbers(rank, 2, kCount);
  const std::vector<float> wanted = oracle_tree(
      0, size_t{3}, [&](size_t from) { return numbers(static_cast<int>(from), 2, kCount); },
      [](std::vector<float> a, const std::vector<float>& b) {
        for (size_t at = 0; at < a.size(); ++at) a[at] *= b[at];
        return a;
      });
  group.all_reduce(tensor_of(mine), DDP_PRODUCT);
  expect(std::memcmp(mine.data(), wanted.data(), mine.size() * sizeof(float)) == 0, "bits of the product");
  int64_t whole[] = {rank + 2, -1 - rank};
  group.all_reduce(flat_tensor(whole, DDP_I64, 2), DDP_PRODUCT);
  expect_equal(whole[0], int64_t{24}, "2 * 3 * 4");
  expect_equal(whole[1], int64_t{-6}, "-1 * -2 * -3");
}

/// A group that ends within the test.
void run_to_the_end_on(Path path, int size, const std::function<void(group::Group&, int)>& body) {
  run_at(path, size, [&](const std::string& place, const ddp_group_options& options, int rank) {
    body(*group::Group::create(place.c_str(), options), rank);
  });
}

ddp_ranks_case_on(kEveryHostPath, run_to_the_end_on, different_calls_are_named, 2) {
  std::vector<float> one(2), two(4);
  const Tensor whole = tensor_of(two);
  expect_error(DDP_ERROR_DIFFERENT_CALLS,
               [&] {
                 if (rank == 0)
                   group::gather(group, tensor_of(one), &whole, 0);
                 else
                   group::all_to_all(group, whole, whole, {});
               },
               {"ddp_group_gather", "ddp_group_all_to_all"});
}

ddp_ranks_case_on(kEveryHostPath, run_to_the_end_on, another_root_is_named, 2) {
  float one = 1;
  const std::string text =
      expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] { group::reduce(group, flat_tensor(&one, DDP_F32, 1), DDP_SUM, rank); });
  expect_contains(text, "to rank 0");
  expect_contains(text, "to rank 1");
}

ddp_ranks_case_on(kEveryHostPath, run_to_the_end_on, what_a_rank_sent_before_it_left_is_received, 2) {
  group.barrier();
  if (rank == 0) return send(group, numbers(0, 1, 500), 1, 1);
  receive(group, 0, 500, 1);
  std::vector<float> nothing(1);
  expect_contains(
      expect_error(DDP_ERROR_ABORTED, [&] { static_cast<void>(group::receive_message(group, tensor_of(nothing), 0, 2)); }),
      "rank 0 (");
}

ddp_case_on(kEveryHostPath, who_does_not_send_is_named_when_time_is_up) {
  run_at(path, 3, [](const std::string& place, ddp_group_options options, int rank) {
    options.timeout_ms = 500;
    const auto group = group::Group::create(place.c_str(), options);
    std::vector<float> two(2);
    expect_error(DDP_ERROR_TIMED_OUT,
                 [&] {
                   if (rank == 0) static_cast<void>(group::receive_message(*group, tensor_of(two), 2, 77));
                   while (rank != 0) {
                     std::this_thread::sleep_for(std::chrono::milliseconds(10));
                     group->health().check_usable();
                   }
                 },
                 {"rank 2 (", "did not send 2 F32 elements with tag 77 that rank 0 ("});
    expect_error(DDP_ERROR_TIMED_OUT, [&] { send(*group, {1}, (rank + 1) % 3, 1); }, {"with tag 77"});
  });
}
