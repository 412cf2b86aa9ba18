// SPDX-License-Identifier: Apache-2.0
// Ranks that make different collective calls learn it at once, on every transport, and a rank that is late is waited for.
#include "support/different_calls.hpp"

#include "support/check.hpp"

ddp_case_on((Paths{Path::kLocal, Path::kShm}), every_pair_of_different_calls_is_a_mismatch) {
  expect_mismatch(path, 2, all_pairs());
}

ddp_case_on((Paths{Path::kGloo}), some_pairs_are_a_mismatch) { expect_mismatch(path, 2, some_pairs()); }

ddp_case(so_it_is_when_two_ranks_agree_against_one) { expect_mismatch(Path::kLocal, 3, some_pairs()); }

const std::vector<CallPair> kFewPairs = {{0, 7}, {7, 0}, {22, 18}, {23, 9}, {15, 23}, {19, 24}, {1, 5}};

ddp_case_on((Paths{Path::kGloo}), two_ranks_against_one) { expect_mismatch(path, 3, kFewPairs); }

ddp_case_on((Paths{Path::kHosts}), some_pairs_with_two_ranks_on_each_host) {
  for (const int odd : {0, 3}) expect_mismatch(path, 4, kFewPairs, odd);
}

ddp_case_on(kThreePaths, a_late_rank_is_waited_for) { expect_patience(path); }

/// A rank that computes inside its pass is not blocked, whatever its lane waits for.
ddp_ranks_case(run_groups, a_rank_that_computes_is_waited_for, 2) {
  CallWorld world(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), false);
  model::Model& model = *world.threaded;
  model.begin_backward(DDP_PASS_REDUCE);
  if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  model.pass().mark_ready(0);
  if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  model.pass().mark_ready(1);
  model.pass().mark_ready(2);
  if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  model.end_backward();
  group.barrier();
}

/// The group continues: random calls, the same on all ranks, with pauses around the time after which ranks begin to tell
/// what they wait for.
ddp_case(random_delays_are_no_mismatch) {
  std::vector<std::thread> worlds;
  std::mutex mutex;  // guards text
  std::string text;
  for (unsigned seed = 1; seed <= 6; ++seed)
    worlds.emplace_back([&, seed] {
      try {
        run_groups(3, [&](group::Group& group, int rank) {
          CallWorld world(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), false);
          std::mt19937 calls(seed), delays(seed * 97 + static_cast<unsigned>(rank));
          for (int step = 0; step < 8; ++step) {
            const CollectiveCall& call = collective_calls()[calls() % collective_calls().size()];
            std::this_thread::sleep_for(std::chrono::milliseconds(delays() % 3 == 0 ? delays() % 500 : 0));
            if (call.names[0] != "ddp_model_commit" && call.names[0] != "ddp_model_join") make_in_vain(call, world);
          }
          group.barrier();
        });
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        text += "seed " + std::to_string(seed) + ": " + error.what() + "\n";
      }
    });
  for (std::thread& world : worlds) world.join();
  expect(text.empty(), text);
}
