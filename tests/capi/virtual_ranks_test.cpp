// SPDX-License-Identifier: Apache-2.0
// Virtual ranks as a program uses them: the parts of each rank, metrics of parts, keys for random numbers; and a training
// that loses two of five ranks, then gains one and loses one more, and ends with the weights of one rank that lost no other.
#include "ddp/virtual_ranks.h"

#include "support/check.hpp"
#include "support/parts_training.hpp"

constexpr int64_t kSteps = 40;
constexpr uint64_t kFrozenKey = 7367606758917324626U;  // of seed 1, step 2, part 3

ddp_virtual_ranks parts_of(const ddp_group* group) {
  ddp_virtual_ranks ranks{};
  ranks.struct_size = sizeof ranks;
  OK(ddp_group_get_virtual_ranks(group, &ranks));
  return ranks;
}

/// The last rank may die while others are at the end, so the result needs no other rank.
struct Training : PartsTraining {
  using PartsTraining::PartsTraining;
  std::string result() { return weights(); }
};

std::string take_part(const std::string& place, Hosts hosts, int rank, int size, bool joins, Reporter& report) {
  ddp_group_options options = patient_options(rank, size);
  options.backend = options_on(hosts).backend;
  options.recoverable = 1;
  options.virtual_ranks = kParts;
  options.dead_after_ms = 1'000;
  if (joins) {
    options.join = 1;
    options.rank = options.world_size = -1;
  }
  ddp_group* const group = create_group(place, options);
  std::string result;
  {
    Training training(group);
    result = survive(group, training, kSteps, report, std::chrono::milliseconds(5));
  }
  ddp_group_destroy(group);
  return result;
}

ddp_case_on_hosts(ranks_come_and_go_and_the_bits_stay, Hosts::kShared, Hosts::kGloo, Hosts::kSeveral) {
  const std::string wanted = undisturbed<Training>(kParts, kSteps);
  const Folder folder;
  const std::string place = "file://" + folder.path() + "/meet", sign = folder.path() + "/now";
  constexpr int kFirst = 5;  // and one that joins; of 5 ranks the sum is no tree over ranks
  Procs procs(kFirst + 1, [&](int rank, Reporter& report) {
    if (hosts == Hosts::kSeveral) setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
    while (rank == kFirst && !std::filesystem::exists(sign)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return take_part(place, hosts, rank, kFirst, rank == kFirst, report);
  });
  const std::set<int> dead = {0, 1, 2};
  procs.wait_for(0, "step 5");
  for (const int rank : {0, 2}) procs.signal(rank, SIGKILL);
  procs.wait_for(4, "recovered with");
  std::ofstream(sign).put('1');
  procs.wait_for(kFirst, "committed");
  procs.signal(1, SIGKILL);
  int rank = 0;
  for (const ProcResult& result : procs.wait(60'000)) {
    if (dead.count(rank) == 0) {
      expect(result.exit_code == 0, "rank " + std::to_string(rank) + ": " + result.describe() + "\n" + result.said);
      expect(result.text == wanted, "rank " + std::to_string(rank) + " has the bits\n" + result.said);
    }
    ++rank;
  }
}

ddp_case(parts_are_told_and_their_metrics_joined) {
  const auto values_of = [](int part) { return std::vector<double>{1.0 / (part * part + 3), std::exp(part) / 3}; };
  const auto metrics = [&](int size, ddp_reduce op) {
    std::vector<double> found(2);
    run_ranks(size, [&](int rank) {
      ddp_group_options options = patient_options(rank, size);
      options.virtual_ranks = size == kParts ? 0 : kParts;
      ddp_group* const group =
          create_group("local://metrics-" + std::to_string(size) + "-" + std::to_string(static_cast<int>(op)), options);
      const ddp_virtual_ranks ranks = parts_of(group);
      expect(ranks.total == kParts && ranks.count >= 1 && (rank != 0 || ranks.first == 0), "the parts of a rank");
      std::vector<double> values;
      for (int part = ranks.first; part < ranks.first + ranks.count; ++part)
        for (const double value : values_of(part)) values.push_back(value);
      OK(ddp_group_reduce_part_metrics(group, values.data(), 2, op));
      if (rank == 0) found.assign(values.begin(), values.begin() + 2);
      ddp_group_destroy(group);
    });
    return found;
  };
  for (const ddp_reduce op : {DDP_SUM, DDP_AVERAGE, DDP_MIN, DDP_MAX}) {
    const std::vector<double> wanted = metrics(kParts, op);
    for (const int size : {1, 3, 5, 7}) expect(metrics(size, op) == wanted, "with " + std::to_string(size) + " ranks");
  }
}

ddp_case(keys_are_frozen_and_differ) {
  std::set<int64_t> keys;
  for (int64_t seed = 0; seed < 3; ++seed)
    for (int64_t step = 0; step < 20; ++step)
      for (int32_t part = 0; part < 20; ++part) {
        int64_t key = 0;
        OK(ddp_virtual_rank_key(seed, step, part, &key));
        keys.insert(key);
      }
  expect(keys.size() == 3 * 20 * 20, "no key comes twice");
  int64_t key = 0;
  OK(ddp_virtual_rank_key(1, 2, 3, &key));
  expect(static_cast<uint64_t>(key) == kFrozenKey, "the key of an earlier version: " + std::to_string(key));
  expect(ddp_virtual_rank_key(0, -1, 0, &key) == DDP_ERROR_INVALID_ARGUMENT, "a negative step");
  expect(ddp_virtual_rank_key(0, 0, 0, nullptr) == DDP_ERROR_INVALID_ARGUMENT, "nowhere to write");
}

ddp_case(options_that_exclude_each_other_are_refused) {
  ddp_group* group = nullptr;
  ddp_group_options options = patient_options(0, 1);
  options.virtual_ranks = -1;
  expect(ddp_group_create("local://negative", &options, &group) == DDP_ERROR_INVALID_ARGUMENT, "a negative number");
  options.virtual_ranks = 4;
  options.sum_order = DDP_SUM_ORDER_BY_HOST;
  expect(ddp_group_create("local://order", &options, &group) == DDP_ERROR_INVALID_ARGUMENT, "an order by hosts");
  expect_contains(ddp_last_error(), "whose bits depend on the hosts");
}

/// Where some rank has several parts. In a group whose ranks have one part each, hooks would do, and are refused too: the
/// bits would not come again with fewer ranks.
ddp_case(what_depends_on_the_ranks_is_refused) {
  for (const int32_t parts : {1, 4}) {
    ddp_group_options options = patient_options(0, 1);
    options.virtual_ranks = parts;
    ddp_group* const group = create_group("local://refused-" + std::to_string(parts), options);
    float weight = 1, gradient = 0;
    const auto expect_no_commit = [&](const char* name, const std::function<void(ddp_model*)>& set) {
      ddp_model* model = nullptr;
      OK(ddp_model_create(group, nullptr, &model));
      OK(ddp_model_add_array(model, "w", &weight, &gradient, 1, nullptr));
      set(model);
      expect(ddp_model_commit(model, nullptr) == DDP_ERROR_NOT_SUPPORTED, std::string(name) + " is refused");
      expect_contains(ddp_last_error(), "virtual_ranks");
      ddp_model_destroy(model);
    };
    expect_no_commit("PowerSGD",
                     [](ddp_model* model) { OK(ddp_model_set_hook(model, ddp_hook_powersgd, nullptr, nullptr)); });
    expect_no_commit("a hook", [](ddp_model* model) {
      OK(ddp_model_set_hook(
          model, [](void*, ddp_bucket*) { return 0; }, nullptr, nullptr));
    });
    expect_no_commit("a pulled hook", [](ddp_model* model) { OK(ddp_model_set_pulled_hook(model)); });

    float x[4] = {1, 2, 3, 6}, y[4] = {};
    const ddp_tensor in = {x, DDP_F32, DDP_CPU, 0, 2, {4, 1}}, out = {y, DDP_F32, DDP_CPU, 0, 2, {4, 1}};
    const ddp_status status = ddp_batch_norm_forward(group, nullptr, &in, nullptr, nullptr, nullptr, nullptr, &out, nullptr,
                                                     nullptr, nullptr, nullptr);
    expect(status == (parts == 1 ? DDP_OK : DDP_ERROR_NOT_SUPPORTED), "batch normalisation over all ranks");
    if (parts > 1) expect_contains(ddp_last_error(), "several virtual ranks");
    ddp_group_destroy(group);
  }
}
