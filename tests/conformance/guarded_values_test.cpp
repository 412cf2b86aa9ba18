// SPDX-License-Identifier: Apache-2.0
// DDP_GUARD_VALUES=1: values that come late have the bits of the ordinary path, a wait gives access to them, and a program
// that reads or writes one before ends by a fault. What libddp itself reads is waited for.

#include "model/late_values.hpp"
#include "support/check.hpp"
#include "support/training.hpp"

constexpr int32_t kLarge = 6;  // of kFusedShapes: some pages
constexpr int32_t kSmall = 0;  // less than a page

Ways ways_of(bool late, bool own_values) {
  Ways ways;
  ways.shard = true;
  ways.late_values = late;
  ways.own_values = own_values;
  return ways;
}

std::string train(Training& world, int rank) {
  std::string all;
  for (int step = 0; step < 3; ++step) {
    world.pass(rank, step, step == 1 ? std::set<int32_t>{kLarge} : std::set<int32_t>{});
    world.optimizer->step();
    for (int32_t p = 0; p < world.model->table().parameter_count(); ++p) {
      model::wait_value(*world.model, p);
      all += world.bytes_of(p);
    }
    world.pass(rank, 10 + step);  // only the pass has waited for its values
    world.optimizer->step();
    all += std::to_string(world.model->replicas().hash());
  }
  return all;
}

ddp_case_on(kThreePaths, guarded_values_have_the_same_bits) {
  for (const bool own_values : {false, true})
    run_on(path, 3, [own_values](group::Group& group, int rank) {
      Training plain(group, Rule::kAdamW, ways_of(false, own_values));
      Training late(group, Rule::kAdamW, ways_of(true, own_values));
      const std::string wanted = train(plain, rank);
      expect(train(late, rank) == wanted, "the bits of the ordinary path");
    });
}

/// What a program does that has forgotten to wait, in a process of its own.
void expect_fault(const std::function<void()>& use) {
  const pid_t child = fork();
  if (child == 0) {
    (void)signal(SIGSEGV, SIG_DFL);  // a sanitizer may have another one
    use();
    _exit(0);
  }
  int status = 0;
  expect(waitpid(child, &status, 0) == child, "the child ends");
  expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "it faults, status " + std::to_string(status));
}

ddp_case_on(kThreePaths, a_missing_wait_faults) {
  if (path == Path::kLocal) return;  // the ranks are threads, and a fork has the pages of all
  run_on(path, 2, [](group::Group& group, int rank) {
    Training world(group, Rule::kAdamW, ways_of(true, false));
    for (int step = 0; step < 2; ++step) {
      world.train(rank, step);
      volatile std::byte* const middle = world.values[kLarge] + 40'000;
      expect_fault([&] { static_cast<void>(*middle); });
      expect_fault([&] { *middle = std::byte{1}; });
      static_cast<void>(world.bytes_of(kSmall));  // is left out
      model::wait_value(*world.model, kLarge);
      expect(!world.bytes_of(kLarge).empty(), "it can be read");
      *middle = *middle;
      model::wait_values(*world.model);
      expect_same_everywhere(group, world.bytes(), "the model");
    }
  });
}

ddp_before_cases(setenv("DDP_GUARD_VALUES", "1", 1));
