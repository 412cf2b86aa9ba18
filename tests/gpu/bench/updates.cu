// SPDX-License-Identifier: Apache-2.0
// AdamW through the public API: the step of an optimizer over a model's parameters, against the bytes that it must move.
#include "gpu/bench/bench.hpp"
#include "gpu/support/sizes.hpp"

namespace ddp::bench {
namespace {

/// A model of F32 parameters in one allocation, its gradients in libddp's memory.
struct Model {
  explicit Model(const std::vector<int64_t>& counts) : values(bytes_of(counts)) {
    ddp_model_options options;
    MUST(ddp_model_options_init(&options, sizeof options));
    MUST(ddp_model_create(group, &options, &model));
    int64_t at = 0;
    for (size_t p = 0; p < counts.size(); ++p) {
      const ddp_tensor value = on_gpu(values.data() + at, counts[p]);
      MUST(ddp_model_add_parameter(model, ("p" + std::to_string(p)).c_str(), &value, nullptr, nullptr));
      at += (counts[p] * 4 + 255) / 256 * 256;
      elements += counts[p];
    }
    MUST(ddp_model_commit(model, stream));
    MUST(ddp_optimizer_create_adam(model, nullptr, nullptr, &optimizer));
  }
  ~Model() {
    ddp_optimizer_destroy(optimizer);
    ddp_model_destroy(model);
    ddp_group_destroy(group);
    (void)cudaStreamDestroy(stream);
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  static int64_t bytes_of(const std::vector<int64_t>& counts) {
    int64_t bytes = 0;
    for (const int64_t count : counts) bytes += (count * 4 + 255) / 256 * 256;
    return bytes;
  }

  Buffer values;
  cudaStream_t stream = new_stream();
  ddp_group* group = alone();
  ddp_model* model = nullptr;
  ddp_optimizer* optimizer = nullptr;
  int64_t elements = 0;
};

double step_ms(const Model& m, int repetitions) {
  MUST(ddp_optimizer_step(m.optimizer, m.stream)); /* makes the moments */
  return time_on_stream(m.stream, repetitions, Host::kCounts, [&](int) { MUST(ddp_optimizer_step(m.optimizer, m.stream)); });
}

double copy_rate() {
  const Buffer from(int64_t{256} << 20), to(int64_t{256} << 20);
  const cudaStream_t stream = new_stream();
  const double ms = time_on_stream(stream, 20, Host::kAhead, [&](int) {
    MUST(cudaMemcpyAsync(to.data(), from.data(), size_t{256} << 20, cudaMemcpyDeviceToDevice, stream));
  });
  MUST(cudaStreamDestroy(stream));
  return 2.0 * static_cast<double>(from.bytes()) / ms * 1e-6;
}

}  // namespace

void measure_updates(Report& report, const Options& options) {
  const double copy = copy_rate();
  char note[96];
  {
    const Model gpt2(test::card::gpt2_counts());
    const double ms = step_ms(gpt2, options.repetitions(50));
    const double rate = 28.0 * static_cast<double>(gpt2.elements) / ms * 1e-6;
    std::snprintf(note, sizeof note, "28 bytes a parameter: %.0f GB/s, a copy %.0f GB/s", rate, copy);
    report.add({"adamw.gpt2", "AdamW, 124 million parameters in 148 tensors", ms, "ms", "at most 1.3 ms", ms <= 1.3, note});
    report.add({"adamw.gpt2.share", "the same, beside a copy of as many bytes", 100 * rate / copy, "%",
                "at least 90 % of a copy", rate >= 0.9 * copy, ""});
  }
  const Model small(std::vector<int64_t>(10'000, 1'000));
  const double ms = step_ms(small, options.repetitions(50));
  report.add(
      {"adamw.small", "AdamW, 10,000 tensors of 1,000 parameters", ms, "ms", "at most half of PyTorch's fused", -1, ""});
}

}  // namespace ddp::bench
