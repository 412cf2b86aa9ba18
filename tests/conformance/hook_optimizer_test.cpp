// SPDX-License-Identifier: Apache-2.0
// Hooks together with every way of an optimizer, on every transport.
#include "conformance/hook_world.hpp"
#include "conformance/powersgd_world.hpp"
#include "conformance/step_bits.hpp"
#include "model/average.hpp"
#include "support/check.hpp"

/// A model of matrices with SGD.
struct HookTrainer : Training {
  HookTrainer(group::Group& of, const parts::Hook& hook, bool shard, bool in_backward)
      : Training(of, Rule::kMomentum, ways_with(hook, shard, in_backward)) {}

  static Ways ways_with(const parts::Hook& hook, bool shard, bool in_backward) {
    Ways ways;
    ways.shapes = {1200, 7, 3200, 300};
    ways.columns = {30, 7, 50, 300};
    ways.first_bucket_bytes = wire_options().first_bucket_bytes;
    ways.bucket_bytes = 6'000;
    ways.unused = wire_options().unused;
    ways.every_second_lent = true;
    ways.hook = hook;
    ways.shard = shard;
    ways.in_backward = in_backward;
    return ways;
  }
  void backward(int rank, int pass, ddp_pass mode = DDP_PASS_REDUCE) {
    fill(rank, pass);
    reduce({}, {}, mode);
  }
  /// A pass that fails on all ranks, in the last bucket in plan order: 1: rank 1 does not mark, 2: rank 2 abandons it, 3:
  /// no rank takes part.
  void begin_void(int rank, int pass, int kind) {
    if (kind == 3) return (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { skip_backward(*model); });
    fill(rank, pass);
    model->begin_backward(DDP_PASS_REDUCE);
    mark({}, rank == kind ? std::set<int32_t>{0} : std::set<int32_t>{});
    if (kind == 2 && rank == 2) return abandon_backward(*model, "a bad batch");
    (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { model->end_backward(); });
  }
  void expect_same(const std::string& wanted, const std::string& what) const {
    expect(bytes() == wanted, what + ": the parameters");
  }
};

std::vector<parts::Hook> all_hooks() {
  return {parts::Hook::sent_as(DDP_BF16), parts::Hook::sent_as(DDP_F16), callback(average),
          extra::powersgd_hook(powersgd_options(2))};
}

ddp_case_on(kEveryHostPath, every_way_of_an_optimizer_gives_the_same_parameters) {
  for (const parts::Hook& hook : all_hooks())
    expect_bits(path, {.name = hook.name.c_str(),
                       .sizes = {1, 3},
                       .rules = {Rule::kMomentum},
                       .change = [&](Ways& ways) { ways = HookTrainer::ways_with(hook, false, false); },
                       .training = {.slow = -1, .unused = {}}});
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, a_failed_hook_leaves_the_parameters_as_they_were, 3) {
  for (const auto& [shard, in_backward] : {std::pair{false, true}, {true, true}}) {
    bool fails = false;
    HookTrainer trainer(group, callback([&](parts::HookBucket& bucket) {
                          average(bucket);
                          if (fails && rank == 2 && bucket.is_last()) throw Error(DDP_ERROR_CALLBACK, "at the very end");
                        }),
                        shard, in_backward);
    trainer.backward(rank, 0);
    trainer.optimizer->step();
    const std::string before = trainer.bytes();
    fails = true;
    expect_error(DDP_ERROR_CALLBACK, [&] { trainer.backward(rank, 1); }, {"at the very end"});
    trainer.expect_same(before, "after the failed pass");
    fails = false;
    trainer.backward(rank, 2);
    trainer.optimizer->step();
    trainer.model->replicas().check();
    expect(trainer.bytes() != before, "training goes on");
  }
  group.barrier();
}

/// What makes a pass void in step `pass`; 0: nothing.
int kind_of_void(int pass) { return pass == 0 ? 1 : pass == 2 ? 2 : pass == 3 ? 3 : 0; }

/// Passes that a rank does not finish, and are made again, leave no trace: hooks, moments, values and counts have the bits
/// of a run without them.
ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, a_void_pass_that_is_made_again_leaves_no_trace, 3) {
  std::vector<parts::Hook> hooks = all_hooks();
  hooks.push_back(parts::Hook{});
  for (const bool warm_start : {true, false}) {
    ddp_powersgd_options options = powersgd_options(1);
    options.warm_start = warm_start ? 1 : 0;
    options.start_pass = 2;
    hooks.push_back(extra::powersgd_hook(options));
  }
  for (const parts::Hook& hook : hooks)
    for (const auto& [shard, in_backward] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
      HookTrainer clean(group, hook, shard, in_backward), broken(group, hook, shard, in_backward);
      for (int pass = 0; pass < 6; ++pass) {
        clean.backward(rank, pass);
        clean.optimizer->step();
        if (const int kind = kind_of_void(pass); kind > 0) {
          broken.begin_void(rank, pass + 100, kind);
          (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { broken.optimizer->step(); });
        }
        broken.backward(rank, pass);
        broken.optimizer->step();
        broken.expect_same(clean.bytes(), hook.name + (shard ? ", in slices" : "") + (in_backward ? ", in backward" : "") +
                                              ", pass " + std::to_string(pass));
        expect_equal(broken.optimizer->step_count(), clean.optimizer->step_count(), "steps");
      }
    }
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, local_passes_step_alike_in_backward, 2) {
  std::string plain;
  for (const bool in_backward : {false, true}) {
    HookTrainer trainer(group, parts::Hook{}, false, in_backward);
    for (int pass = 0; pass < 6; ++pass) {
      trainer.backward(rank, pass, pass % 3 == 2 ? DDP_PASS_REDUCE : DDP_PASS_LOCAL);
      trainer.optimizer->step();
      if (pass % 3 == 1) average_parameters(*trainer.model);
    }
    if (plain.empty()) plain = trainer.bytes();
    trainer.expect_same(plain, "in backward");
  }
  HookTrainer sliced(group, parts::Hook{}, true, false);
  (void)expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { sliced.model->begin_backward(DDP_PASS_LOCAL); });
  group.barrier();
}
