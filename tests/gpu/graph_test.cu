// SPDX-License-Identifier: Apache-2.0
// CUDA graphs: a pass that was captured may be replayed, each time on what its gradients hold then, and so may a whole step;
// work that cannot be captured gives an error. Needs the runtime itself, because capture is the program's business and no
// part of the module's table.
#include <cuda_runtime.h>

#include <limits>

#include "gpu/support/trainer.hpp"
#include "gpu/support/world.hpp"

using namespace ddp::test::card;

namespace {

void must_cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
}
#define CUDA(call) must_cuda((call), #call)

class Graph : NotCopied {
 public:
  explicit Graph(cudaGraph_t graph) {
    const cudaError_t error = cudaGraphInstantiate(&ready_, graph, 0);
    (void)cudaGraphDestroy(graph);
    must_cuda(error, "cudaGraphInstantiate");
  }
  ~Graph() { (void)cudaGraphExecDestroy(ready_); }
  void launch(void* stream) const { CUDA(cudaGraphLaunch(ready_, static_cast<cudaStream_t>(stream))); }

 private:
  cudaGraphExec_t ready_ = nullptr;
};

cudaGraph_t capture_pass(Trainer& t) {
  const auto stream = static_cast<cudaStream_t>(t.stream.get());
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
  for (int32_t p = t.count(); p-- > 0;) {
    t.copy_grad(static_cast<size_t>(p), stream);
    OK(ddp_model_mark_ready(t.model.get(), p, stream));
  }
  OK(ddp_model_end_backward(t.model.get(), stream));
  cudaGraph_t graph = nullptr;
  CUDA(cudaStreamEndCapture(stream, &graph));
  return graph;
}

void replayed_passes_reduce_what_gradients_hold(const Rank& at, bool own_gradients) {
  Plan plan;
  plan.place = at.place;
  plan.rank = at.rank;
  plan.fine = false;
  plan.own_gradients = own_gradients;
  Trainer t(at.group, plan);
  t.pass(0);  // the first pass makes what later ones use
  t.put_aside(1);
  const Graph graph(capture_pass(t));
  for (int step = 1; step < 5; ++step) {
    t.put_aside(step);
    graph.launch(t.stream.get());
    const auto mean = [&](size_t p, int64_t i) {
      double sum = 0;
      for (int rank = 0; rank < at.size; ++rank) sum += whole_gradient(rank, step, p, i);
      return sum / at.size;
    };
    expect_same_bytes(t.grad_bytes(), t.expected_grads(mean), "replay " + std::to_string(step));
  }
  t.pass(6);  // and eagerly again
}

ddp_case(a_captured_pass_may_be_replayed) {
  for (const int size : {1, 2})
    for (const bool own : {false, true})
      run_world(size, [own](const Rank& at) { replayed_passes_reduce_what_gradients_hold(at, own); });
}

OptimizerHandle make_adam(Trainer& t, ddp_nonfinite nonfinite) {
  ddp_optimizer_options options;
  OK(ddp_optimizer_options_init(&options, sizeof options));
  options.max_norm = 3;
  options.nonfinite = nonfinite;
  ddp_optimizer* made = nullptr;
  OK(ddp_optimizer_create_adam(t.model.get(), nullptr, &options, &made));
  if (nonfinite == DDP_NONFINITE_SKIP) {
    ddp_loss_scale_options scale;
    OK(ddp_loss_scale_options_init(&scale, sizeof scale));
    scale.initial = 8;
    scale.interval = 2;
    OK(ddp_optimizer_set_loss_scale(made, &scale));
  }
  return OptimizerHandle(made);
}

cudaGraph_t capture_step(Trainer& t, ddp_optimizer* optimizer) {
  const auto stream = static_cast<cudaStream_t>(t.stream.get());
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
  for (int32_t p = t.count(); p-- > 0;) {
    t.copy_grad(static_cast<size_t>(p), stream);
    OK(ddp_model_mark_ready(t.model.get(), p, stream));
  }
  OK(ddp_model_end_backward(t.model.get(), stream));
  OK(ddp_optimizer_step(optimizer, stream));
  cudaGraph_t graph = nullptr;
  CUDA(cudaStreamEndCapture(stream, &graph));
  return graph;
}

/// One of two equal models steps in the ordinary way, the other by launches.
void replayed_steps_are_ordinary_ones(const Rank& at) {
  Plan plan;
  plan.place = at.place;
  plan.rank = at.rank;
  plan.fine = false;
  Trainer wanted(at.group, plan), got(at.group, plan);
  const OptimizerHandle plain = make_adam(wanted, DDP_NONFINITE_SKIP), captured = make_adam(got, DDP_NONFINITE_SKIP);
  const auto both = [&](auto body) { body(wanted, plain.get()), body(got, captured.get()); };
  both([](Trainer& t, ddp_optimizer* optimizer) {
    t.pass(0);
    OK(ddp_optimizer_step(optimizer, t.stream.get()));
  });
  got.put_aside(1);
  const Graph graph(capture_step(got, captured.get()));
  for (int step = 1; step < 8; ++step) {
    both([&](Trainer& t, ddp_optimizer*) { t.scale = step == 4 ? std::numeric_limits<double>::infinity() : 1; });
    if (step == 3) both([](Trainer&, ddp_optimizer* optimizer) { OK(ddp_optimizer_set_rate(optimizer, 0.01)); });
    wanted.pass(step);
    OK(ddp_optimizer_step(plain.get(), wanted.stream.get()));
    got.put_aside(step);
    graph.launch(got.stream.get());
    expect_same_bytes(got.value_bytes(), wanted.value_bytes(), "step " + std::to_string(step));
  }
  both([](Trainer&, ddp_optimizer* optimizer) {
    int64_t steps = 0, skipped = 0;
    double scale = 0;
    OK(ddp_optimizer_get_step_count(optimizer, &steps));
    OK(ddp_optimizer_get_skipped_count(optimizer, &skipped));
    OK(ddp_optimizer_get_loss_scale(optimizer, &scale));
    expect_equal(steps, int64_t{7}, "steps");
    expect_equal(skipped, int64_t{1}, "steps left out");
    expect_equal(scale, 32.0, "the loss scale");  // 8, 16 and 32 after two good steps each, half of that, doubled
  });
}

ddp_case(a_captured_step_may_be_replayed) {
  for (const int size : {1, 2}) run_world(size, replayed_steps_are_ordinary_ones);
}

ddp_case(a_step_that_no_graph_can_hold_is_refused_with_a_reason) {
  run_world(1, [](const Rank& at) {
    Plan plan;
    plan.place = at.place;
    Trainer t(at.group, plan);
    const OptimizerHandle optimizer = make_adam(t, DDP_NONFINITE_FAIL);
    t.pass(0);
    OK(ddp_optimizer_step(optimizer.get(), t.stream.get()));
    t.stream.wait();
    const auto stream = static_cast<cudaStream_t>(t.stream.get());
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    const ddp_status status = ddp_optimizer_step(optimizer.get(), stream);
    const std::string text = ddp_last_error();
    cudaGraph_t graph = nullptr;
    (void)cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    expect_equal(static_cast<int>(status), static_cast<int>(DDP_ERROR_INVALID_STATE), "the status of a step in a capture");
    expect_contains(text, "captur");
    t.pass(1);
    OK(ddp_optimizer_step(optimizer.get(), t.stream.get()));
    t.stream.wait();
  });
}

gpu_cases({
  if (is_fake()) end_skipped("capture needs the CUDA runtime");
  need_world();
});

}  // namespace
