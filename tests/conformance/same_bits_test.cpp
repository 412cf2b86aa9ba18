// SPDX-License-Identifier: Apache-2.0
// A training on any number of ranks has the bits of one rank for each part, which a group without virtual ranks gives: in
// every way of making a step, with weights, wire formats and parts in several passes, on every transport. Also when it goes
// on from a checkpoint at another number of ranks. `--all` takes every number of ranks on every transport (tests/RECORDS.md
// has what that found); without it processes take those that cut the tree differently.
#include <initializer_list>

#include "checkpoint/state.hpp"
#include "support/check.hpp"
#include "support/parts_world.hpp"

using namespace virtual_ranks;

constexpr int kSteps = 3;

bool takes_all = false;

bool is_taken(Path path, int size, std::initializer_list<int> by_processes) {
  return takes_all || path == Path::kLocal ||
         std::find(by_processes.begin(), by_processes.end(), size) != by_processes.end();
}

std::string train(group::Group& group, const Case& how) {
  PartTraining training(group, how);
  training.run(0, kSteps);
  std::string all = training.bytes();
  if (how.scale_adapts) expect(training.world.optimizer->skipped_count() == 1, "one step was skipped");
  expect_same_everywhere(group, all, how.name);
  return all;
}

/// By case, of a group in which every rank has one part and no option is set: ranks are threads.
const std::vector<std::string>& reference(int parts) {
  static std::map<int, std::vector<std::string>> by_parts;
  std::vector<std::string>& wanted = by_parts[parts];
  if (!wanted.empty()) return wanted;
  wanted.resize(all_cases().size());
  run_groups(parts, [&](group::Group& group, int rank) {
    size_t at = 0;
    for (const Case& how : all_cases()) {
      std::string bytes = train(group, how);
      if (rank == 0) wanted[at] = std::move(bytes);
      ++at;
    }
  });
  return wanted;
}

void expect_the_bits(Path path, int parts, int size) {
  const std::vector<std::string>& wanted = reference(parts);
  run_at(path, size, [&](const std::string& place, const ddp_group_options& options, int) {
    const auto group = group::Group::create(place.c_str(), with_parts(options, parts));
    size_t at = 0;
    for (const Case& how : all_cases())
      expect(train(*group, how) == wanted[at++],
             std::string(how.name) + ": " + std::to_string(size) + " ranks, " + std::to_string(parts) + " parts");
    group->barrier();
  });
}

ddp_case_on(kEveryHostPath, eight_parts_have_the_same_bits) {
  for (const int size : {1, 2, 3, 4, 5, 6, 7, 8})
    if (is_taken(path, size, {3, 5})) expect_the_bits(path, 8, size);
}

ddp_case_on(kEveryHostPath, twelve_parts_have_the_same_bits) {
  for (const int size : {1, 2, 3, 6, 12})
    if (is_taken(path, size, {6})) expect_the_bits(path, 12, size);
}

ddp_case_on(kEveryHostPath, a_checkpoint_goes_on_at_any_number_of_ranks) {
  const auto way = [](const char* name) {
    for (const Case& each : all_cases())
      if (each.name == std::string(name)) return each;
    throw std::runtime_error(name);
  };
  for (const char* const name : {"shard", "in backward", "BF16 with master weights"}) {
    if (!takes_all && path != Path::kLocal && name == std::string("in backward")) continue;
    const Case how = way(name);
    std::string wanted;
    run_groups(8, [&](group::Group& group, int rank) {
      PartTraining training(group, how);
      training.run(0, 2 * kSteps);
      std::string bytes = training.bytes();
      if (rank == 0) wanted = std::move(bytes);
    });
    const Folder folder;
    const std::string file = folder.path() + "/state";
    const auto run = [&](int size, int from, const std::function<void(PartTraining&)>& body) {
      run_at(path, size, [&](const std::string& place, const ddp_group_options& options, int) {
        const auto group = group::Group::create(place.c_str(), with_parts(options, 8));
        PartTraining training(*group, how);
        const checkpoint::Parts parts{*training.world.model, training.world.optimizer.get(), &training.ema};
        if (from > 0) static_cast<void>(checkpoint::load_file("load", parts, file, std::nullopt));
        training.run(from, from + kSteps);
        body(training);
        if (from == 0) checkpoint::save_file("save", parts, {}, file, std::nullopt);
        group->barrier();
      });
    };
    for (const auto& [saved, loaded] : {std::pair(8, 5), std::pair(5, 3), std::pair(3, 8)}) {
      if (!takes_all && saved != 8) continue;
      run(saved, 0, [](PartTraining&) {});
      run(loaded, kSteps, [&](PartTraining& training) {
        expect(training.bytes() == wanted,
               std::string(name) + ": saved on " + std::to_string(saved) + " ranks, loaded on " + std::to_string(loaded));
      });
    }
  }
}

ddp_before_cases(takes_all = argc > 1 && std::string(argv[1]) == "--all");
