// SPDX-License-Identifier: Apache-2.0
// Hooks and local passes together with optimizers that work inside the pass or in slices: whatever the optimizer's way, the
// parameters have the bits of a plain step after the pass. Runs on any kind of ranks:
// conformance/hook_optimizer_threads_test.cpp, conformance/hook_optimizer_processes_test.cpp.
#pragma once

#include <cstring>

#include "conformance/hook_semantics.hpp"
#include "conformance/powersgd_semantics.hpp"
#include "model/average.hpp"
#include "model/uneven.hpp"
#include "optim/sgd.hpp"
#include "support/rule_options.hpp"

namespace ddp::test {

struct HookTrainer {
  static constexpr int64_t kShapes[][2] = {{40, 30}, {1, 7}, {64, 50}, {1, 300}};
  std::vector<std::vector<float>> values, grads;
  std::shared_ptr<model::Model> model;
  std::shared_ptr<optim::Sgd> sgd;

  HookTrainer(group::Group& group, const parts::Hook& hook, bool shard, bool in_backward) {
    ddp_model_options options = wire_options();
    options.bucket_bytes = 6'000;
    model = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    model->set_hook(hook);
    for (const auto& [rows, columns] : kShapes) {
      values.emplace_back(static_cast<size_t>(rows * columns), 1.0F);
      grads.emplace_back(values.back().size());
      Tensor value = flat_tensor(values.back().data(), DDP_F32, rows * columns),
             grad = flat_tensor(grads.back().data(), DDP_F32, rows * columns);
      for (Tensor* matrix : {&value, &grad}) {
        matrix->ndim = 2;
        matrix->shape[0] = rows;
        matrix->shape[1] = columns;
      }
      model->add_parameter("p" + std::to_string(values.size()), value, values.size() % 2 == 0 ? &grad : nullptr);
    }
    SgdOptions sgd_options;
    sgd_options.rate = 0.05;
    sgd_options.momentum = 0.9;
    sgd_options.shard = shard ? 1 : 0;
    sgd_options.in_backward = in_backward ? 1 : 0;
    sgd = std::make_shared<optim::Sgd>(model, sgd_options, sgd_options);
    if (sgd->in_passes() != nullptr) model->optimizer_slot().attach(sgd);
    model->commit();
  }
  void backward(int rank, int pass, ddp_pass mode = DDP_PASS_REDUCE) const {
    model->begin_backward(mode);
    for (size_t p = values.size(); p-- > 0;) {
      auto* grad = reinterpret_cast<float*>(model->table().parameter(static_cast<int32_t>(p)).grad.data);
      for (size_t i = 0; i < values[p].size(); ++i) grad[i] = hook_gradient(rank, pass, p, static_cast<int64_t>(i)) * 0.1F;
      model->pass().mark_ready(static_cast<int32_t>(p));
    }
    model->end_backward();
  }
  /// A pass that fails on all ranks, in the last bucket in plan order: 1: rank 1 does not mark, 2: rank 2 abandons it, 3:
  /// no rank takes part.
  void begin_void(int rank, int pass, int kind) const {
    if (kind == 3) return (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { skip_backward(*model); });
    model->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = values.size(); p-- > 0;) {
      auto* grad = reinterpret_cast<float*>(model->table().parameter(static_cast<int32_t>(p)).grad.data);
      for (size_t i = 0; i < values[p].size(); ++i) grad[i] = hook_gradient(rank, pass, p, static_cast<int64_t>(i)) * 3;
      if (p > 0 || rank != kind) model->pass().mark_ready(static_cast<int32_t>(p));
    }
    if (kind == 2 && rank == 2) return abandon_backward(*model, "a bad batch");
    (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { model->end_backward(); });
  }
  void expect_same(const std::vector<std::vector<float>>& wanted, const std::string& what) const {
    for (size_t p = 0; p < values.size(); ++p)
      expect(std::memcmp(values[p].data(), wanted[p].data(), values[p].size() * sizeof(float)) == 0,
             what + ": parameter " + std::to_string(p));
  }
};

inline std::vector<parts::Hook> all_hooks() {
  return {parts::Hook::sent_as(DDP_BF16), parts::Hook::sent_as(DDP_F16), callback(average),
          extra::powersgd_hook(powersgd_options(2))};
}

inline void every_way_of_an_optimizer_gives_the_same_parameters(const RunGroups& run_groups) {
  for (const int size : {1, 3})
    run_groups(size, [&](group::Group& group, int rank) {
      for (const parts::Hook& hook : all_hooks()) {
        std::vector<std::vector<float>> plain;
        for (const auto& [shard, in_backward] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
          const HookTrainer trainer(group, hook, shard, in_backward);
          for (int pass = 0; pass < 4; ++pass) {
            trainer.backward(rank, pass);
            trainer.sgd->step();
          }
          trainer.model->replicas().check();
          if (plain.empty()) plain = trainer.values;
          trainer.expect_same(plain, hook.name + (shard ? ", in slices" : "") + (in_backward ? ", in backward" : ""));
        }
      }
      group.barrier();
    });
}

inline void a_failed_hook_leaves_the_parameters_as_they_were(const RunGroups& run_groups) {
  run_groups(3, [&](group::Group& group, int rank) {
    for (const auto& [shard, in_backward] : {std::pair{false, true}, {true, true}}) {
      bool fails = false;
      const HookTrainer trainer(group, callback([&](parts::HookBucket& bucket) {
                                  average(bucket);
                                  if (fails && rank == 2 && bucket.is_last())
                                    throw Error(DDP_ERROR_CALLBACK, "at the very end");
                                }),
                                shard, in_backward);
      trainer.backward(rank, 0);
      trainer.sgd->step();
      const auto before = trainer.values;
      fails = true;
      expect_contains(expect_error(DDP_ERROR_CALLBACK, [&] { trainer.backward(rank, 1); }), "at the very end");
      trainer.expect_same(before, "after the failed pass");
      fails = false;
      trainer.backward(rank, 2);
      trainer.sgd->step();
      trainer.model->replicas().check();
      expect(std::memcmp(trainer.values[0].data(), before[0].data(), 64) != 0, "training goes on");
    }
    group.barrier();
  });
}

/// What makes a pass void in step `pass`; 0: nothing.
inline int kind_of_void(int pass) { return pass == 0 ? 1 : pass == 2 ? 2 : pass == 3 ? 3 : 0; }

/// Passes that a rank does not finish, and are made again, leave no trace: hooks, moments, values and counts have the bits
/// of a run without them.
inline void a_void_pass_that_is_made_again_leaves_no_trace(const RunGroups& run_groups) {
  run_groups(3, [&](group::Group& group, int rank) {
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
        const HookTrainer clean(group, hook, shard, in_backward), broken(group, hook, shard, in_backward);
        for (int pass = 0; pass < 6; ++pass) {
          clean.backward(rank, pass);
          clean.sgd->step();
          if (const int kind = kind_of_void(pass); kind > 0) {
            broken.begin_void(rank, pass + 100, kind);
            (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { broken.sgd->step(); });
          }
          broken.backward(rank, pass);
          broken.sgd->step();
          broken.expect_same(clean.values, hook.name + (shard ? ", in slices" : "") + (in_backward ? ", in backward" : "") +
                                               ", pass " + std::to_string(pass));
          expect_equal(broken.sgd->step_count(), clean.sgd->step_count(), "steps");
        }
      }
    group.barrier();
  });
}

inline void local_passes_step_alike_in_backward(const RunGroups& run_groups) {
  run_groups(2, [&](group::Group& group, int rank) {
    std::vector<std::vector<float>> plain;
    for (const bool in_backward : {false, true}) {
      const HookTrainer trainer(group, parts::Hook{}, false, in_backward);
      for (int pass = 0; pass < 6; ++pass) {
        trainer.backward(rank, pass, pass % 3 == 2 ? DDP_PASS_REDUCE : DDP_PASS_LOCAL);
        trainer.sgd->step();
        if (pass % 3 == 1) average_parameters(*trainer.model);
      }
      if (plain.empty()) plain = trainer.values;
      trainer.expect_same(plain, "in backward");
    }
    const HookTrainer sliced(group, parts::Hook{}, true, false);
    (void)expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { sliced.model->begin_backward(DDP_PASS_LOCAL); });
    group.barrier();
  });
}

inline constexpr Semantics kHookOptimizerSemantics[] = {
    {"every_way_of_an_optimizer_gives_the_same_parameters", &every_way_of_an_optimizer_gives_the_same_parameters},
    {"a_failed_hook_leaves_the_parameters_as_they_were", &a_failed_hook_leaves_the_parameters_as_they_were},
    {"a_void_pass_that_is_made_again_leaves_no_trace", &a_void_pass_that_is_made_again_leaves_no_trace},
    {"local_passes_step_alike_in_backward", &local_passes_step_alike_in_backward},
};

}  // namespace ddp::test
