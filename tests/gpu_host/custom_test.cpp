// SPDX-License-Identifier: Apache-2.0
// A rule of the program whose parameters are on GPUs of several ranks: where its steps are made changes nothing, and one
// that fails is taken back.
// The rule keeps the last value as its state and takes the gradient as the new value: copies, so that every order of the
// stream shows.
#include "optim/custom.hpp"

#include "gpu_host/placed_model.hpp"
#include "model/optimizer_slot.hpp"
#include "parts/model_pass.hpp"
#include "support/rule_options.hpp"

struct CopyRule {
  std::atomic<int> calls{0};
  std::atomic<int> fails_at{-1};
};

int32_t copy_rule(void* user_data, const ddp_update_slice* slice) {
  auto& rule = *static_cast<CopyRule*>(user_data);
  if (rule.calls++ == rule.fails_at) return 7;
  if (slice->device != DDP_CUDA) return 1;
  const int64_t bytes = slice->count * dtype_size(slice->dtype);
  const ddp_gpu_table& table = fake_gpu::table();
  return table.copy(slice->state[0], slice->value, bytes, slice->stream) == 0 &&
                 table.copy(slice->value, slice->grad, bytes, slice->stream) == 0
             ? 0
             : 2;
}

struct Trained {
  PlacedModel placed;
  CopyRule rule;
  std::shared_ptr<optim::Custom> optimizer;

  Trained(group::Group& group, bool shard, bool in_backward) : placed(group, Home::kGpu) {
    ddp_optimizer_options options = optim::default_optimizer_options();
    options.shard = shard;
    options.in_backward = in_backward;
    const optim::CustomRule read(optim::default_custom_options(), "before", "test");
    optimizer = std::make_shared<optim::Custom>(placed.model, copy_rule, read, options, optim::UserData(&rule, nullptr));
    if (optimizer->in_passes() != nullptr) placed.model->optimizer_slot().attach(optimizer);
  }
  [[nodiscard]] std::vector<PlacedBytes> values() const { return placed.contents(); }
};

fake_gpu_host_case(every_way_gives_the_same_values_and_a_failure_none) {
  for (const auto& [shard, in_backward] : {std::pair{true, false}, {false, true}, {true, true}})
    run_gpu_groups(2, [s = shard, b = in_backward](group::Group& group, int rank) {
      Trained wanted(group, false, false), got(group, s, b);
      for (int step = 0; step < 4; ++step) {
        const std::string what = std::string(s ? "shard " : "") + (b ? "in_backward " : "") + std::to_string(step);
        if (step == 2) {
          const auto before = got.values();
          if (rank == 1) got.rule.fails_at = got.rule.calls + 1;
          got.placed.fill_whole_grads(rank, step);
          if (!b) got.placed.pass();
          const std::string text =
              expect_error(DDP_ERROR_CALLBACK, [&] { b ? got.placed.pass() : got.optimizer->step(got.placed.stream()); });
          expect_contains(text, "rank 1");
          expect_contains(text, "returned 7");
          expect(got.values() == before, what + ": values as before the failure");
        }
        for (Trained* each : {&wanted, &got}) {
          each->placed.fill_whole_grads(rank, step);
          each->placed.pass();
          each->optimizer->step(each->placed.stream());
        }
        expect(got.values() == wanted.values(), what + ": values");
      }
      expect_equal(got.optimizer->step_count(), int64_t{4}, "steps");
    });
}

fake_gpu_host_case(what_a_rule_cannot_have_on_a_gpu_is_refused) {
  run_gpu_groups(2, [](group::Group& group, int) {
    PlacedModel placed(group, Home::kGpu);
    const auto refused = [&](auto change, const char* what) {
      ddp_optimizer_options options = optim::default_optimizer_options();
      change(options);
      CopyRule rule;
      optim::Custom optimizer(placed.model, copy_rule, optim::CustomRule(optim::default_custom_options(), "before", "test"),
                              options, optim::UserData(&rule, nullptr));
      placed.pass();
      expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { optimizer.step(placed.stream()); }, {what});
    };
    refused([](ddp_optimizer_options& o) { o.max_norm = 1; }, "max_norm");
    refused([](ddp_optimizer_options& o) { o.clip_value = 1; }, "clip_value");
    refused([](ddp_optimizer_options& o) { o.master_weights = 1; }, "master_weights");
  });
}
