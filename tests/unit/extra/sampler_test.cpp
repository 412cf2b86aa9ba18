// SPDX-License-Identifier: Apache-2.0
// The partition against a naive one: write the whole order down, pad or cut it, deal it out.
#include "extra/sampler.hpp"

#include "support/check.hpp"

ddp_sampler make_sampler(int64_t dataset_size, int32_t size, bool shuffle, bool drop_last) {
  ddp_sampler sampler{};
  sampler.struct_size = sizeof sampler;
  sampler.dataset_size = dataset_size;
  sampler.seed = 11;
  sampler.size = size;
  sampler.shuffle = shuffle ? 1 : 0;
  sampler.drop_last = drop_last ? 1 : 0;
  return sampler;
}

std::vector<int64_t> share(ddp_sampler sampler, int32_t rank, int64_t epoch) {
  sampler.rank = rank;
  extra::check_sampler(sampler, "test");
  std::vector<int64_t> indices(static_cast<size_t>(extra::sampler_count(sampler)));
  extra::sampler_fill(sampler, epoch, 0, static_cast<int64_t>(indices.size()), indices.data());
  return indices;
}

/// The oracle: the epoch's whole list, padded by repeating or cut, dealt to `rank`.
std::vector<int64_t> naive_share(const ddp_sampler& sampler, int32_t rank, int64_t epoch) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < sampler.dataset_size; ++i) order.push_back(i);
  if (sampler.shuffle == 1 && !order.empty()) {
    const extra::Permutation permutation(order.size(), static_cast<uint64_t>(sampler.seed), static_cast<uint64_t>(epoch));
    for (auto& index : order) index = static_cast<int64_t>(permutation(static_cast<uint64_t>(index)));
  }
  const auto size = static_cast<size_t>(sampler.size);
  if (sampler.drop_last == 1) {
    while (order.size() % size != 0) order.pop_back();
  } else {
    for (size_t i = 0; !order.empty() && order.size() % size != 0; ++i) order.push_back(order[i]);
  }
  std::vector<int64_t> mine;
  for (auto i = static_cast<size_t>(rank); i < order.size(); i += size) mine.push_back(order[i]);
  return mine;
}

ddp_case(shares_are_those_of_the_written_out_list) {
  for (const int64_t samples : {0, 1, 2, 3, 5, 7, 10, 11, 64, 101})
    for (const int32_t size : {1, 2, 3, 5, 8, 23})
      for (const int variant : {0, 1, 2, 3}) {
        const ddp_sampler sampler = make_sampler(samples, size, (variant & 1) != 0, (variant & 2) != 0);
        for (int32_t rank = 0; rank < size; ++rank)
          expect(share(sampler, rank, 4) == naive_share(sampler, rank, 4),
                 "share of rank " + std::to_string(rank) + " of " + std::to_string(size) + ", " + std::to_string(samples) +
                     " samples, variant " + std::to_string(variant));
      }
}

ddp_case(an_epoch_covers_every_sample_and_repeats_as_few_as_possible) {
  for (const int64_t samples : {1, 7, 100, 1797})
    for (const int32_t size : {1, 3, 4, 8}) {
      std::multiset<int64_t> seen;
      for (int32_t rank = 0; rank < size; ++rank)
        for (const int64_t index : share(make_sampler(samples, size, true, false), rank, 0)) seen.insert(index);
      size_t least = seen.size();
      size_t most = 0;
      for (int64_t i = 0; i < samples; ++i) {
        least = std::min(least, seen.count(i));
        most = std::max(most, seen.count(i));
      }
      expect(least >= 1, "every sample is seen");
      expect(most - least <= 1, "no sample is seen two times more than another");
      expect(static_cast<int64_t>(seen.size()) - samples < size, "less than one padding index a rank");
    }
}

ddp_case(with_drop_last_no_sample_is_seen_twice) {
  std::set<int64_t> seen;
  for (int32_t rank = 0; rank < 8; ++rank)
    for (const int64_t index : share(make_sampler(1797, 8, true, true), rank, 3))
      expect(seen.insert(index).second, "sample " + std::to_string(index) + " is seen once");
  expect_equal(seen.size(), size_t{1792}, "samples seen");
}

ddp_case(a_resumed_share_continues_where_it_stopped) {
  const ddp_sampler sampler = make_sampler(1797, 4, true, false);
  const std::vector<int64_t> whole = share(sampler, 0, 9);
  for (const int64_t first : {0, 1, 100, 449, 450}) {
    std::vector<int64_t> rest(whole.size() - static_cast<size_t>(first));
    extra::sampler_fill(sampler, 9, first, static_cast<int64_t>(rest.size()), rest.data());
    expect(std::equal(rest.begin(), rest.end(), whole.begin() + first), "share from " + std::to_string(first));
  }
}

/// The epoch's order, written out.
std::vector<int64_t> order_of(const ddp_sampler& sampler, int64_t epoch) {
  ddp_sampler one = make_sampler(sampler.dataset_size, 1, sampler.shuffle == 1, false);
  return share(one, 0, epoch);
}

/// Plays an epoch whose number of ranks changes after `steps` steps each: gives what was used, in the order of positions.
std::vector<int64_t> play(ddp_sampler sampler, const std::vector<int32_t>& sizes, int64_t batch, int64_t steps) {
  std::vector<int64_t> used;
  for (size_t stage = 0; stage < sizes.size(); ++stage) {
    sampler.size = sizes[stage];
    sampler.rank = 0;
    extra::check_sampler(sampler, "test");
    const int64_t count = extra::sampler_count(sampler);
    const int64_t done = stage + 1 == sizes.size() ? count : std::min(count, batch * steps);
    for (int64_t at = 0; at < done; ++at)
      for (sampler.rank = 0; sampler.rank < sampler.size; ++sampler.rank) {
        int64_t index = -1;
        extra::sampler_fill(sampler, 4, at, 1, &index);
        used.push_back(index);
      }
    sampler.seen = std::min(sampler.seen + done * sampler.size, sampler.dataset_size);
  }
  return used;
}

ddp_case(an_epoch_goes_on_when_the_number_of_ranks_changes) {
  const std::vector<std::vector<int32_t>> stories = {{4, 3}, {3, 4}, {8, 5, 2, 1}, {1, 7, 2, 7}, {2, 2, 2}, {5, 23}};
  for (const int64_t samples : {0, 1, 7, 64, 101, 1797})
    for (const auto& sizes : stories)
      for (const int64_t batch : {1, 3, 10})
        for (const int variant : {0, 1, 2, 3}) {
          const ddp_sampler sampler = make_sampler(samples, 1, (variant & 1) != 0, (variant & 2) != 0);
          const std::vector<int64_t> used = play(sampler, sizes, batch, 2), order = order_of(sampler, 4);
          // The order itself, from its beginning on, without a gap; its end is padded from its beginning or dropped.
          for (size_t at = 0; at < used.size(); ++at) expect_equal(used[at], order[at % order.size()], "position");
          const int32_t most = *std::max_element(sizes.begin(), sizes.end());
          if (sampler.drop_last == 1)
            expect(used.size() <= order.size() && order.size() - used.size() < static_cast<size_t>(most), "dropped");
          else
            expect(used.size() >= order.size() && used.size() - order.size() < static_cast<size_t>(most), "padded");
        }
}

ddp_case(what_is_seen_counts_from_the_beginning_of_the_order) {
  ddp_sampler sampler = make_sampler(10, 3, false, false);
  sampler.seen = 4;
  expect(share(sampler, 0, 0) == std::vector<int64_t>({4, 7}), "rank 0 of 3 after 4");
  expect(share(sampler, 2, 0) == std::vector<int64_t>({6, 9}), "rank 2 of 3 after 4");
  sampler.size = 4;
  expect(share(sampler, 3, 0) == std::vector<int64_t>({7, 1}), "padded from the beginning of the order");
  sampler.drop_last = 1;
  expect(share(sampler, 3, 0) == std::vector<int64_t>({7}), "or dropped");
  sampler.seen = 10;
  expect(share(sampler, 0, 0).empty(), "nothing is left");
}

// Their parts are dealt out anew when ranks go; size is always the number of parts, and `seen` is not needed.
ddp_case(parts_of_virtual_ranks_go_on_by_position) {
  constexpr int32_t kParts = 8;
  const ddp_sampler sampler = make_sampler(200, kParts, true, false);
  std::multiset<int64_t> used;
  int64_t at = 0;
  for (const int32_t ranks : {8, 5, 3, 1})
    for (const int64_t end = ranks == 1 ? 25 : at + 6; at < end; ++at)
      for (int32_t rank = 0; rank < ranks; ++rank)
        for (int32_t part = rank; part < kParts; part += ranks) {
          ddp_sampler mine = sampler;
          mine.rank = part;
          int64_t index = -1;
          extra::sampler_fill(mine, 4, at, 1, &index);
          used.insert(index);
        }
  expect_equal(used.size(), size_t{200}, "samples");
  for (int64_t index = 0; index < 200; ++index) expect_equal(used.count(index), size_t{1}, "uses of a sample");
}

ddp_case(seed_and_epoch_give_different_orders) {
  ddp_sampler sampler = make_sampler(1000, 1, true, false);
  const auto first = share(sampler, 0, 0);
  const auto next_epoch = share(sampler, 0, 1);
  sampler.seed += 1;
  const auto next_seed = share(sampler, 0, 0);
  expect(first != next_epoch && first != next_seed && next_epoch != next_seed, "three different orders");
  sampler.seed -= 1;
  expect(share(sampler, 0, 0) == first, "the same fields give the same order");
}

ddp_case(without_shuffle_epochs_are_equal_and_ordered) {
  const ddp_sampler sampler = make_sampler(10, 2, false, false);
  expect(share(sampler, 1, 0) == std::vector<int64_t>({1, 3, 5, 7, 9}), "every second index from 1");
  expect(share(sampler, 1, 5) == share(sampler, 1, 0), "epochs are equal");
}

ddp_case(the_largest_data_sets_do_not_overflow) {
  for (const int64_t samples : {int64_t{1} << 62, INT64_MAX})
    for (const int32_t size : {1, 3, INT32_MAX})
      for (const int variant : {0, 1, 2, 3}) {
        ddp_sampler sampler = make_sampler(samples, size, (variant & 1) != 0, (variant & 2) != 0);
        sampler.rank = size - 1;
        extra::check_sampler(sampler, "test");
        const int64_t count = extra::sampler_count(sampler);
        int64_t last = -1;
        extra::sampler_fill(sampler, INT64_MAX, count - 1, 1, &last);
        expect(last >= 0 && last < samples, "the last index is one of the data set");
        sampler.seen = samples - 1;
        extra::check_sampler(sampler, "test");
        if (extra::sampler_count(sampler) > 0) extra::sampler_fill(sampler, INT64_MAX, 0, 1, &last);
        expect(last >= 0 && last < samples, "also after all but one have been seen");
        sampler.seen = 0;
        extra::sampler_fill(sampler, INT64_MAX, count - 1, 1, &last);
        if (variant == 0 && samples % size != 0)
          expect_equal(last, size - 1 - samples % size, "the last index is padding from the start of the order");
      }
}

ddp_case(a_wrong_field_is_named) {
  ddp_sampler sampler = make_sampler(10, 2, true, false);
  const auto text_of = [&sampler] {
    return expect_error(DDP_ERROR_INVALID_ARGUMENT, [&sampler] { extra::check_sampler(sampler, "f"); });
  };
  sampler.rank = 2;
  expect_equal(text_of(), std::string("f: rank is 2; with size 2 it must be 0 to 1"), "text");
  sampler.rank = -1;
  expect_contains(text_of(), "rank is -1");
  sampler = make_sampler(-1, 2, true, false);
  expect_contains(text_of(), "dataset_size is -1");
  sampler = make_sampler(10, 0, true, false);
  expect_contains(text_of(), "size is 0");
  sampler = make_sampler(10, 2, true, false);
  sampler.seen = 11;
  expect_contains(text_of(), "seen is 11; with dataset_size 10 it must be 0 to 10");
  sampler.seen = -1;
  expect_contains(text_of(), "seen is -1");
  sampler.seen = 0;
  sampler.shuffle = 2;
  expect_contains(text_of(), "shuffle is 2");
  sampler.shuffle = 1;
  sampler.drop_last = -1;
  expect_contains(text_of(), "drop_last is -1");
}
