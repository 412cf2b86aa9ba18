// SPDX-License-Identifier: Apache-2.0
// A fork while buckets are under way on GPUs: the child can use nothing, touches neither the GPU nor the words in pinned
// memory that kernels look at, and the pass ends with the bits that it would have had.
#include "gpu/support/trainer.hpp"
#include "gpu/support/world.hpp"
#include "support/forking.hpp"
#include "support/handle_calls.hpp"

using namespace ddp::test::card;

namespace {

ddp_world_case(a_fork_in_a_pass_on_gpus_disturbs_nothing, 2) {
  Plan plan;
  plan.place = at.place;
  plan.rank = at.rank;
  plan.fine = false;
  plan.options = [](ddp_model_options& options) { options.reduce = DDP_SUM; };
  Trainer t(at.group, plan);
  ddp_optimizer* made = nullptr;
  OK(ddp_optimizer_create_adam(t.model.get(), nullptr, nullptr, &made));
  const OptimizerHandle adam(made);
  for (int step = 0; step < 4; ++step) {
    OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
    for (int32_t p = t.count(); p-- > 0;) {
      t.produce(static_cast<size_t>(p), step, t.stream.get());
      OK(ddp_model_mark_ready(t.model.get(), p, t.stream.get()));
      if (p != t.count() / 2 || (is_fake() && at.rank != 0)) continue;  // ranks that are threads share the process
      Handles handles;
      handles.group = at.group;
      handles.model = t.model.get();
      handles.optimizer = made;
      const Ending ending = is_fake() || step % 2 == 0 ? Ending::kAtOnce : Ending::kByExit;
      expect_equal(in_fork(ending, [&] { return try_everything(handles); }), std::string("refused"), "the fork");
    }
    OK(ddp_model_end_backward(t.model.get(), t.stream.get()));
    const auto sum = [&](size_t p, int64_t i) { return whole_gradient(0, step, p, i) + whole_gradient(1, step, p, i); };
    expect_same_bytes(t.grad_bytes(), t.expected_grads(sum), "step " + std::to_string(step));
    OK(ddp_optimizer_step(made, t.stream.get()));
  }
  OK(ddp_model_check_replicas(t.model.get(), t.stream.get()));
}

gpu_cases();

}  // namespace
