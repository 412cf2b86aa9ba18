// SPDX-License-Identifier: Apache-2.0
// What libddp adds to a step of one rank: time, device work, and where the optimizer runs.
#include <memory>

#include "gpu/bench/network.hpp"

namespace ddp::bench {
namespace {

/// Medians of steps taken in turn, so that whatever the GPU's clock does happens to all alike.
std::vector<double> in_turn(const std::vector<Lent*>& all, cudaStream_t stream, int repetitions) {
  std::vector<std::vector<double>> times(all.size());
  Stopwatch watch;
  for (int k = -5; k < repetitions; ++k)
    for (size_t w = 0; w < all.size(); ++w) {
      MUST(cudaStreamSynchronize(stream));
      watch.start(stream);
      all[w]->step();
      watch.stop(stream);
      const double ms = watch.ms();
      if (k >= 0) times[w].push_back(ms);
    }
  std::vector<double> medians;
  for (const auto& each : times) medians.push_back(median(each));
  return medians;
}

/// Kernels, copies and fills in a captured pass.
int count_device_work(Lent& lent) {
  MUST(cudaStreamSynchronize(lent.stream));
  MUST(cudaStreamBeginCapture(lent.stream, cudaStreamCaptureModeThreadLocal));
  lent.backward_only();
  cudaGraph_t graph = nullptr;
  MUST(cudaStreamEndCapture(lent.stream, &graph));
  size_t count = 0;
  MUST(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  MUST(cudaGraphGetNodes(graph, nodes.data(), &count));
  int work = 0;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    MUST(cudaGraphNodeGetType(node, &type));
    work += type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemcpy || type == cudaGraphNodeTypeMemset;
  }
  MUST(cudaGraphDestroy(graph));
  return work;
}

void measure_overhead(Report& report, const Options& options, ddp_group* group, const Network& net, cudaStream_t stream) {
  Lent none(group, net, Way::kNone, stream), view(group, net, Way::kView, stream), copy(group, net, Way::kCopy, stream);
  const std::vector<double> ms = in_turn({&none, &view, &copy}, stream, options.repetitions(100));
  const double views = 100 * (ms[1] / ms[0] - 1), copies = 100 * (ms[2] / ms[0] - 1);
  char note[64];
  std::snprintf(note, sizeof note, "%.3f and %.3f ms", ms[1], ms[0]);
  report.add({"step.none", "step without libddp", ms[0], "ms", "", -1, "24 layers of 1024 x 1024, batch 512, F32"});
  report.add(
      {"step.view", "step, gradients in libddp's memory, over none", views, "%", "at most 0.5 %", views <= 0.5, note});
  std::snprintf(note, sizeof note, "%.3f ms", ms[2]);
  report.add(
      {"step.copy", "step, gradients in the program's memory, over none", copies, "%", "at most 2 %", copies <= 2, note});
  const int added = count_device_work(view) - count_device_work(none);
  report.add({"work.view", "kernels, copies and fills added, libddp's memory", static_cast<double>(added), "", "0",
              added == 0, "nodes of a captured pass"});
}

void measure_in_backward(Report& report, const Options& options, ddp_group* group, const Network& net, cudaStream_t stream) {
  Lent at_end(group, net, Way::kView, stream), within(group, net, Way::kView, stream);
  at_end.use_adam(false);
  within.use_adam(true);
  const std::vector<double> ms = in_turn({&at_end, &within}, stream, options.repetitions(100));
  report.add({"adamw.at_end", "step with AdamW after the pass", ms[0], "ms", "", -1, ""});
  report.add({"adamw.in_backward", "step with AdamW within the pass", ms[1], "ms", "not slower", ms[1] <= 1.005 * ms[0],
              "0.5 % counts as equal"});
}

}  // namespace

void measure_steps(Report& report, const Options& options) {
  const cudaStream_t stream = new_stream();
  ddp_group* const group = alone();
  const Network net(24, 512);
  measure_overhead(report, options, group, net, stream);
  measure_in_backward(report, options, group, net, stream);
  ddp_group_destroy(group);
  MUST(cudaStreamDestroy(stream));
}

}  // namespace ddp::bench
