// CUDA graphs: a pass that was captured may be replayed, each time on what its gradients hold then; what cannot be captured
// says so. Needs the runtime itself, because capture is the program's business and no part of the module's table.
#include <cuda_runtime.h>

#include "gpu/support/trainer.hpp"
#include "gpu/support/world.hpp"

using namespace ddp;
using namespace ddp::test;
using namespace ddp::test::card;

namespace {

void must_cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
}
#define CUDA(call) must_cuda((call), #call)

class Graph {
 public:
  explicit Graph(cudaGraph_t graph) {
    const cudaError_t error = cudaGraphInstantiate(&ready_, graph, 0);
    (void)cudaGraphDestroy(graph);
    must_cuda(error, "cudaGraphInstantiate");
  }
  ~Graph() { (void)cudaGraphExecDestroy(ready_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
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

void a_captured_pass_may_be_replayed(void**) {
  for (const int size : {1, 2})
    for (const bool own : {false, true})
      run_world(size, [own](const Rank& at) { replayed_passes_reduce_what_gradients_hold(at, own); });
}

void a_step_in_a_capture_is_refused_with_a_reason(void**) {
  run_world(1, [](const Rank& at) {
    Plan plan;
    plan.place = at.place;
    Trainer t(at.group, plan);
    ddp_optimizer* made = nullptr;
    OK(ddp_optimizer_create_adam(t.model.get(), nullptr, nullptr, &made));
    const OptimizerHandle optimizer(made);
    t.pass(0);
    OK(ddp_optimizer_step(made, t.stream.get()));
    t.stream.wait();
    const auto stream = static_cast<cudaStream_t>(t.stream.get());
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    const ddp_status status = ddp_optimizer_step(made, stream);
    const std::string text = ddp_last_error();
    cudaGraph_t graph = nullptr;
    (void)cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    expect_equal(static_cast<int>(status), static_cast<int>(DDP_ERROR_INVALID_STATE), "the status of a step in a capture");
    expect_contains(text, "captur");
    t.pass(1);
    OK(ddp_optimizer_step(made, t.stream.get()));
    t.stream.wait();
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (is_fake()) end_skipped("capture needs the CUDA runtime");
  need_world();
  const CMUnitTest tests[] = {ddp_test(a_captured_pass_may_be_replayed),
                              ddp_test(a_step_in_a_capture_is_refused_with_a_reason)};
  return card::run_matching(tests, argc, argv);
}
