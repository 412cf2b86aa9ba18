// SPDX-License-Identifier: Apache-2.0
// DDP_GUARD_VALUES=1: values that come late have the bits of the ordinary path, a wait gives access to them, and a program
// that reads or writes one before ends by a fault. What libddp itself reads is waited for.

#include "conformance/step_bits.hpp"
#include "support/check.hpp"

constexpr int32_t kLarge = 6;  // of kFusedShapes: some pages
constexpr int32_t kSmall = 0;  // less than a page

BitRow guarded_row(const char* name, bool own_values) {
  return {.name = name,
          .change = [own_values](Ways& ways) { ways.shard = ways.late_values = true, ways.own_values = own_values; },
          .reference = [](Ways& ways) { ways.late_values = false; },
          .mask = 0,
          .training = {.slow = -1, .unused = {kLarge}, .reads = true}};
}
ddp_bit_rows(guarded_row("guarded values have the same bits", false), guarded_row("also those that libddp keeps", true));

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
    Ways ways;
    ways.shard = ways.late_values = true;
    Training world(group, Rule::kAdamW, ways);
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
