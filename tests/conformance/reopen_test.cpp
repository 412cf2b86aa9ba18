// SPDX-License-Identifier: Apache-2.0
// A model that is reopened has, in what stays, the bits of a model that never was; what is added has those of a model that
// begins then. On every path, with several optimizers wherever they step, averages, accumulated gradients and checkpoints.
#include "support/check.hpp"
#include "support/reopened_world.hpp"

/// One is split over buckets, and some are smaller than a slice's block. "a2" and "m2" are removed.
const Sizes kFirst = {{"a1", 7}, {"m1", 5000}, {"a2", 3000}, {"m2", 64}, {"m3", 20'000}, {"a3", 900}};
const Sizes kStays = {{"a1", 7}, {"m1", 5000}, {"m3", 20'000}, {"a3", 900}};
const Sizes kAdded = {{"a4", 2000}, {"a5", 30'000}, {"a2", 40}};  // "a2" is another one, under the same name
constexpr int kBefore = 3, kSteps = 6;
const std::vector<int> kSomeWays = {2, 15, 16 + 15, 64 + 32 + 15};  // see ways_of()
const std::vector<int> kWays = {0, 1, 2, 3, 5, 10, 15, 16 + 5, 16 + 15, 32, 32 + 15, 64, 64 + 15, 64 + 4};

ReopenedWays ways_of(int way) {
  ReopenedWays ways;
  ways.shard_first = (way & 1) != 0;
  ways.first_in_backward = (way & 2) != 0;
  ways.shard_second = (way & 4) != 0;
  ways.second_in_backward = (way & 8) != 0;
  ways.own_values = (way & 16) != 0;
  ways.owned_grads = (way & 32) == 0;
  ways.listed = (way & 64) != 0;
  return ways;
}

/// Takes out "a2" and "m2" and adds others.
void change(ReopenedWorld& world, int rank) {
  world.reopen();
  world.remove("a2");
  world.remove("m2");
  for (const auto& [name, size] : kAdded) world.add(name, size, rank);  // rank 0's values are taken
}

/// What never is reopened, in the ordinary way.
std::map<std::string, std::string> expected(group::Group& group) {
  std::map<std::string, std::string> bytes;
  ReopenedWorld stays(group, {}, kStays);
  stays.model->commit();
  stays.train(0, kSteps);
  for (const auto& [name, size] : kStays) bytes[name] = stays.bytes_of(name);
  ReopenedWorld added(group, {}, kAdded);
  added.model->commit();
  added.ema->update();  // averages begin at the values with which a parameter is added
  added.train(kBefore, kSteps);
  for (const auto& [name, size] : kAdded) bytes[name] = added.bytes_of(name);
  return bytes;
}

void expect_all(const ReopenedWorld& world, const std::map<std::string, std::string>& wanted, const std::string& what) {
  expect_equal(world.indices.size(), wanted.size(), "parameters");
  for (const auto& [name, bytes] : wanted) expect(world.bytes_of(name) == bytes, "the bits of " + name + ", " + what);
}

ddp_ranks_case_on(kEveryHostPath, run_on, what_stays_has_the_bits_of_a_model_that_was_never_reopened, 1, 3) {
  const std::map<std::string, std::string> wanted = expected(group);
  for (const int way : path == Path::kLocal ? kWays : kSomeWays) {
    ReopenedWorld world(group, ways_of(way), kFirst);
    world.model->commit();
    world.train(0, kBefore);
    const std::map<std::string, int32_t> before = world.indices;
    const std::byte* const grad = world.model->table().parameter(before.at("m3")).grad.data;
    change(world, rank);
    std::shared_ptr<optim::Optimizer> more;
    if (ways_of(way).listed)
      more = world.make_adam({world.indices.at("a2"), world.indices.at("a4"), world.indices.at("a5")});
    world.model->commit();
    expect(world.model->table().parameter(before.at("m3")).grad.data == grad, "gradients stay where they are");
    for (const auto& [name, length] : kStays) expect_equal(world.indices.at(name), before.at(name), "an index that stays");
    expect_equal(world.indices.at("a4"), static_cast<int32_t>(kFirst.size()), "indices are not used again");
    world.train(kBefore, kSteps);
    const std::string what = "way " + std::to_string(way) + ", size " + std::to_string(group.size());
    expect_all(world, wanted, what);
    expect_equal(world.adam->step_count(), int64_t{kSteps}, "steps of an optimizer that stays");
    if (more != nullptr) expect_equal(more->step_count(), int64_t{kSteps - kBefore}, "steps of one that was added");
    world.model->replicas().check();
    const std::string bytes = world.bytes();
    for (const std::string& each : group.gather("bytes", bytes)) expect(each == bytes, "the model of each rank");
  }
}

ddp_ranks_case_on(kThreePaths, run_on, a_model_is_reopened_again_and_again, 2) {
  for (const int way : {0, 15, 16 + 15}) {
    ReopenedWorld plain(group, {}, {{"a1", 3000}, {"m1", 5000}});
    plain.model->commit();
    ReopenedWorld world(group, ways_of(way), {{"a1", 3000}, {"m1", 5000}});
    world.model->commit();
    for (int step = 0; step < 6; ++step) {
      world.reopen();
      if (step % 2 == 0) {
        world.add("a-layer", 2500);
      } else {
        world.remove("a-layer");
      }
      world.model->commit();
      for (ReopenedWorld* const each : {&plain, &world}) each->train(step, step + 1);
      for (const char* name : {"a1", "m1"})
        expect(world.bytes_of(name) == plain.bytes_of(name),
               "step " + std::to_string(step) + ", way " + std::to_string(way));
    }
  }
}

/// Also what this rank has accumulated of a parameter that the last pass does not use.
ddp_ranks_case_on(kThreePaths, run_on, accumulated_gradients_are_kept, 3) {
  for (const int way : {0, 15, 32 + 5}) {
    const auto run = [&](bool reopens) {
      ReopenedWorld world(group, ways_of(way), kStays);
      world.model->commit();
      world.train(0, 1);
      world.pass(1, DDP_PASS_ACCUMULATE);
      if (reopens) {
        world.reopen();
        world.add("a9", 1500, rank);
        world.model->commit();
      }
      world.pass(2, DDP_PASS_REDUCE, {"m1", "a9"});
      world.step();
      std::string bytes;
      for (const auto& [name, size] : kStays) bytes += world.bytes_of(name);
      return bytes;
    };
    const std::string wanted = run(false);
    expect(run(true) == wanted, "way " + std::to_string(way));
  }
}

ddp_case_on(kThreePaths, a_state_is_saved_and_loaded) {
  const Folder folder;
  const std::string file = folder.path() + "/state";
  for (const int way : {0, 15, 1 + 8})
    run_on(path, 3, [&](group::Group& group, int rank) {
      ReopenedWorld world(group, ways_of(way), kFirst);
      world.model->commit();
      world.train(0, kBefore);
      change(world, rank);
      world.model->commit();
      world.train(kBefore, kBefore + 1);
      checkpoint::save_file("a test", world.parts(), {1, 2}, file, {});
      world.train(kBefore + 1, kSteps);
      Sizes now = kStays;
      now.insert(now.end(), kAdded.begin(), kAdded.end());
      for (const int other : {0, 15}) {
        ReopenedWorld again(group, ways_of(other), now);
        again.model->commit();
        const checkpoint::Counters counters = checkpoint::load_file("a test", again.parts(), file, {});
        expect_equal(counters.step, int64_t{2}, "the step of the file");
        again.train(kBefore + 1, kSteps);
        expect(again.bytes() == world.bytes(), "ways " + std::to_string(way) + " and " + std::to_string(other));
      }
    });
}

/// One of the optimizers is destroyed while the model is building, and another one takes its parameters.
ddp_ranks_case_on(kThreePaths, run_on, a_new_optimizer_begins_anew, 2) {
  for (const int way : {0, 15}) {
    const auto run = [&](bool reopens) {
      ReopenedWorld world(group, ways_of(way), kStays);
      world.model->commit();
      world.train(0, 2);
      if (reopens) world.reopen();
      const std::vector<int32_t> list = world.named("m");
      world.all.erase(world.all.begin());
      world.momentum.reset();
      world.momentum = world.make_momentum(list);
      if (reopens) world.model->commit();
      world.train(2, 4);
      expect_equal(world.momentum->step_count(), int64_t{2}, "steps");
      return world.bytes();
    };
    const std::string wanted = run(false);
    expect(run(true) == wanted, "way " + std::to_string(way));
  }
}

/// LOCAL passes make ranks differ, and that stays so.
ddp_ranks_case_on(kThreePaths, run_on, values_that_differ_stay, 2) {
  ReopenedWorld world(group, {}, kStays);
  world.model->commit();
  world.pass(0, DDP_PASS_LOCAL);
  world.step();
  const std::string before = world.bytes();
  world.reopen();
  world.add("a9", 10, rank);
  world.model->commit();
  world.indices.erase("a9");
  expect(world.bytes() == before, "the values of this rank");
  expect(group.gather("values", before)[0] != group.gather("values", before)[1], "the ranks differ");
}

ddp_ranks_case_on(kThreePaths, run_on, ranks_that_reopen_differently_are_told, 3) {
  ReopenedWorld world(group, ways_of(5), kFirst);
  world.model->commit();
  world.train(0, 1);
  world.reopen();
  world.remove(rank == 1 ? "a2" : "m2");
  expect_error(DDP_ERROR_MISMATCH, [&] { world.model->commit(); },
               {"parameter 2 is \"a2\" F32 [3000] on ranks 0 and 2", "\"m2\" F32 [64] on rank 1"});
  world.remove(rank == 1 ? "m2" : "a2");
  world.model->commit();
  world.train(1, 2);
  ReopenedWorld plain(group, {}, kStays);
  plain.model->commit();
  plain.train(0, 2);
  expect(world.bytes() == plain.bytes(), "behind the refusal");
}
