// SPDX-License-Identifier: Apache-2.0
// ddp_group_split: sub-groups of threads and of processes, what they compute, and what happens to them when a rank fails.
#include "group/split.hpp"

#include "conformance/pass_world.hpp"
#include "control/consensus.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"
#include "support/on_processes.hpp"

std::shared_ptr<group::Group> split(group::Group& group, int32_t color, int32_t key = 0) {
  return group::split_group(group, {color, key}, group.options());
}

double sum_of(group::Group& group, double mine) {
  group.all_reduce(flat_tensor(&mine, DDP_F64, 1), DDP_SUM);
  return mine;
}

ddp_ranks_case_on(kThreePaths, run_on, halves_sum_for_themselves, 4) {
  const auto half = split(group, rank / 2);
  expect_equal(half->size(), 2, "size");
  expect_equal(half->rank(), rank % 2, "rank");
  expect_equal(half->backend(), group.backend(), "backend");
  for (int round = 0; round < 3; ++round) {
    expect_equal(sum_of(*half, 1 << rank), rank < 2 ? 3.0 : 12.0, "sum of a half");
    expect_equal(sum_of(group, 1 << rank), 15.0, "sum of all");
  }
  expect_contains(half->name_of(1), "rank 1 (world rank " + std::to_string(rank < 2 ? 1 : 3) + ", host ");
}

ddp_ranks_case_on(kThreePaths, run_on, rows_and_columns_of_a_grid, 4) {
  const auto row = split(group, rank / 2);
  const auto column = split(group, rank % 2);
  expect_equal(sum_of(*row, 1 << rank), rank < 2 ? 3.0 : 12.0, "sum of a row");
  expect_equal(sum_of(*column, 1 << rank), rank % 2 == 0 ? 5.0 : 10.0, "sum of a column");
  expect_equal(sum_of(*row, sum_of(*column, 1 << rank)), 15.0, "columns, then rows");
}

ddp_ranks_case_on(kThreePaths, run_on, keys_turn_the_order_around, 3) {
  const auto turned = split(group, 5, -rank);
  expect_equal(turned->rank(), 2 - rank, "rank");
  double all[3] = {};
  double mine = rank;
  turned->all_gather(flat_tensor(&mine, DDP_F64, 1), flat_tensor(all, DDP_F64, 3));
  expect(all[0] == 2 && all[1] == 1 && all[2] == 0, "the order of what was gathered");
}

ddp_ranks_case_on(kThreePaths, run_on, some_get_no_group_and_some_are_alone, 4) {
  const auto made = split(group, rank == 1 ? DDP_NO_COLOR : rank == 2 ? 9 : 0);
  expect_equal(made == nullptr, rank == 1, "no group");
  if (made != nullptr) expect_equal(made->size(), rank == 2 ? 1 : 2, "size");
  if (made != nullptr) expect_equal(sum_of(*made, 1 << rank), rank == 2 ? 4.0 : 9.0, "sum");
}

ddp_ranks_case_on(kThreePaths, run_on, a_split_of_a_split, 4) {
  const auto three = split(group, rank == 0 ? DDP_NO_COLOR : 1, -rank);  // ranks 3, 2, 1 are 0, 1, 2
  if (rank == 0) return;
  const auto two = split(*three, three->rank() == 1 ? 1 : 0, 0);
  expect_equal(sum_of(*two, 1 << rank), rank == 2 ? 4.0 : 10.0, "sum");
  if (rank != 2) expect_contains(two->name_of(0), "rank 0 (world rank 3, host ");
}

ddp_case_on(kThreePaths, parent_and_child_end_in_any_order) {
  run_at(path, 4, [](const std::string& place, const ddp_group_options& options, int rank) {
    auto group = group::Group::create(place.c_str(), options);
    auto first = split(*group, rank / 2), second = split(*group, rank % 2);
    first.reset();
    expect_equal(sum_of(*group, 1), 4.0, "the parent after a child has gone");
    group->barrier();
    group.reset();
    expect_equal(sum_of(*second, 1 << rank), rank % 2 == 0 ? 5.0 : 10.0, "the child after its parent has gone");
    second->barrier();
  });
}

/// Bits of the gradients of some passes over a group of two.
std::vector<float> trained(group::Group& group) {
  PassWorld world(group, Memory::kMixed);
  std::vector<float> bits;
  for (int pass = 0; pass < 3; ++pass) {
    world.model->begin_backward(DDP_PASS_REDUCE);
    for (const int32_t p : order_of(group.rank(), pass)) {
      world.fill(group.rank(), pass, static_cast<size_t>(p));
      world.model->pass().mark_ready(p);
    }
    world.model->end_backward();
    for (size_t p = 0; p < kShapes.size(); ++p) bits.insert(bits.end(), world.grad(p), world.grad(p) + kShapes[p]);
  }
  return bits;
}

ddp_case_on(kThreePaths, models_on_sub_groups_train_as_on_fresh_groups) {
  run_at(path, 4, [](const std::string& place, const ddp_group_options& options, int rank) {
    const auto group = group::Group::create(place.c_str(), options);
    PassWorld around(*group, Memory::kPrivate);  // its pass stays open meanwhile
    const auto half = split(*group, rank % 2);
    around.model->begin_backward(DDP_PASS_REDUCE);
    const std::vector<float> there = trained(*half);
    ddp_group_options fresh_options = options;
    fresh_options.rank = rank / 2;
    fresh_options.world_size = 2;
    const auto fresh = group::Group::create((place + "#fresh" + std::to_string(rank % 2)).c_str(), fresh_options);
    const std::vector<float> here = trained(*fresh);
    expect(there.size() == here.size() && std::memcmp(there.data(), here.data(), here.size() * sizeof(float)) == 0,
           "the same bits");
    for (size_t p = 0; p < kShapes.size(); ++p) {
      around.fill(rank, 0, p);
      around.model->pass().mark_ready(static_cast<int32_t>(p));
    }
    around.model->end_backward();
    around.expect_mean(4, 0, "the pass around it");
    group->barrier();
    fresh->barrier();
  });
}

ddp_ranks_case_on(kThreePaths, run_on, an_open_pass_is_refused, 2) {
  ddp_model_options options = model_options();
  options.unused = DDP_UNUSED_ALLOW;
  PassWorld world(group, Memory::kPrivate, options);
  world.model->begin_backward(DDP_PASS_LOCAL);
  expect_error(DDP_ERROR_INVALID_STATE, [&] { (void)split(group, 0); }, {"ddp_group_split: a backward pass is open"});
  world.model->end_backward();
}

ddp_case_on(kThreePaths, another_call_is_a_mismatch) {
  run_at(path, 3, [](const std::string& place, const ddp_group_options& options, int rank) {
    const auto group = group::Group::create(place.c_str(), options);
    expect_error(DDP_ERROR_DIFFERENT_CALLS,
                 [&] {
                   if (rank == 1)
                     group->barrier();
                   else
                     (void)split(*group, 0);
                 },
                 {"ddp_group_split", "ddp_group_barrier"});
  });
}

ddp_ranks_case_on(kThreePaths, run_on, different_backends_are_a_mismatch_and_the_parent_stays, 4) {
  ddp_group_options options = group.options();
  options.backend = rank == 3 ? DDP_BACKEND_GLOO : DDP_BACKEND_AUTO;
  const std::string text = expect_error(DDP_ERROR_MISMATCH, [&] {
    (void)group::split_group(group, {rank / 2, 0}, options);
  });
  expect_contains(
      text, "ddp_group_split: the ranks ask for different backends, orders or communicators: rank 0 (world rank 2, host ");
  expect_equal(sum_of(group, 1), 4.0, "the parent goes on");
}

/// Rank 2 of 4 ends at once, or after its first exchange, or when its new group exists; no rank waits for it.
void a_rank_that_ends_is_named(Hosts hosts) {
  for (const bool before : {true, false}) {
    const Folder folder;
    Procs procs(4, [&](int rank, Reporter& report) -> std::string {
      if (hosts == Hosts::kSeveral) setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
      const auto group = join_process_group(folder, rank, 4, options_on(hosts));
      try {
        group->barrier();  // all have it
        if (rank == 2 && before) _exit(0);
        const auto half = split(*group, rank % 2);
        if (rank == 2) _exit(0);
        if (rank == 0) report.say(expect_error(DDP_ERROR_PEER_FAILED, [&] { half->barrier(); }));
      } catch (const Error& error) {
        if (!before) throw;
        report.say(error.text());
      }
      expect_error(DDP_ERROR_PEER_FAILED,
                   [&] {
                     for (;;) group->barrier();
                   },
                   {"rank 2 (host "});
      return "done";
    });
    int rank = 0;
    for (const ProcResult& result : procs.wait(30'000)) {
      if (rank != 2)
        expect(result.exit_code == 0 && !result.timed_out, "rank " + std::to_string(rank) + ": " + result.describe());
      if (rank == 0) expect_contains(result.said, before ? "rank 2 (host " : "rank 1 (world rank 2, host ");
      ++rank;
    }
  }
}

ddp_case(a_rank_that_ends_is_named_over_shared_memory) { a_rank_that_ends_is_named(Hosts::kShared); }
ddp_case(a_rank_that_ends_is_named_over_gloo) {
  if (gloo_is_there()) a_rank_that_ends_is_named(Hosts::kGloo);
}

/// It has published its address and has ended: ranks that connect to it notice that the parent broke.
ddp_case(a_rank_that_never_comes_to_the_new_group_is_noticed) {
  const Folder folder;
  Procs procs(3, [&](int rank, Reporter&) -> std::string {
    ddp_group_options options = options_on(Hosts::kShared);
    options.rendezvous_timeout_ms = 20'000;
    const auto group = join_process_group(folder, rank, 3, options);
    if (rank == 1) {  // takes part in the exchanges of a split, then ends
      ByteWriter said;
      said.number(int32_t{0}).number(int32_t{0});
      const bootstrap::CallState::In inside(group->calls(), bootstrap::UserCall::kSplit);
      (void)group->gather("colors", std::move(said).bytes());
      (void)group->gather("places", bootstrap::outcome_bytes(nullptr));
      _exit(0);
    }
    const auto begin = std::chrono::steady_clock::now();
    expect_error(DDP_ERROR_PEER_FAILED, [&] { (void)split(*group, 0); }, {"rank 1 (host "});
    expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10), "nobody waits for the rendezvous to end");
    return "done";
  });
  int rank = 0;
  for (const ProcResult& result : procs.wait(40'000)) {
    if (rank != 1)
      expect(result.exit_code == 0 && !result.timed_out, "rank " + std::to_string(rank) + ": " + result.describe());
    ++rank;
  }
}

/// Two made-up hosts with two ranks each: groups inside the hosts share memory, groups across them use Gloo.
ddp_case(groups_follow_the_hosts) {
  if (!gloo_is_there()) return;
  run_on_hosts(Hosts::kSeveral, 4, [](group::Group& group, int rank) {
    const auto inside = split(group, rank / 2), across = split(group, rank % 2);
    expect_equal(static_cast<int>(inside->backend()), static_cast<int>(DDP_BACKEND_SHM), "inside a host");
    expect_equal(static_cast<int>(across->backend()), static_cast<int>(DDP_BACKEND_GLOO), "between hosts");
    expect_equal(sum_of(*across, sum_of(*inside, 1 << rank)), 15.0, "the sum of both");
    group.barrier();
  });
}

/// As in the group that was created: a step that needs no other rank is still made.
ddp_ranks_case_on(kThreePaths, run_on, a_rank_that_leaves_in_good_order_is_no_fault, 2) {
  auto made = split(group, 0);
  expect_equal(sum_of(*made, 1), 2.0, "sum");
  if (rank == 0) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!try_to([&] { made->health().check_usable(); }) && std::chrono::steady_clock::now() < limit) usleep(1000);
    expect_error(DDP_ERROR_ABORTED, [&] { made->health().check_usable(); }, {"left the group"});
    made->health().check_no_fault();
  }
  made.reset();
  group.barrier();
}

/// Descriptors of destroyed groups are closed.
ddp_ranks_case_on(kThreePaths, run_on, nothing_stays_of_many_splits, 2) {
  (void)split(group, 0);
  group.barrier();
  const auto open_files = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); };
  const auto before = open_files();
  for (int round = 0; round < 8; ++round) (void)split(group, 0);
  group.barrier();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (open_files() > before && std::chrono::steady_clock::now() < limit) usleep(10'000);
  expect(open_files() <= before, "descriptors stay");
}
