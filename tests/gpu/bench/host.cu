// SPDX-License-Identifier: Apache-2.0
// What the calls of a pass cost the host, each on its own, on one rank. Gradients are marked without a kernel before them.
#include "gpu/bench/bench.hpp"

namespace ddp::bench {
namespace {

constexpr int32_t kBuckets = 50, kInBucket = 8, kParameters = kBuckets * kInBucket;
constexpr int64_t kCount = 16'384; /* 64 KiB */

struct Costs {
  std::vector<double> plain, closing, begin, end;
};

struct Model {
  Model(ddp_group* group, bool own, cudaStream_t on)
      : values(kParameters * kCount * 4), grads(kParameters * kCount * 4), stream(on) {
    ddp_model_options options;
    MUST(ddp_model_options_init(&options, sizeof options));
    options.first_bucket_bytes = options.bucket_bytes = kInBucket * kCount * 4;
    MUST(ddp_model_create(group, &options, &model));
    for (int32_t p = 0; p < kParameters; ++p) {
      const ddp_tensor value = on_gpu(values.data() + p * kCount * 4, kCount),
                       grad = on_gpu(grads.data() + p * kCount * 4, kCount);
      MUST(ddp_model_add_parameter(model, ("p" + std::to_string(p)).c_str(), &value, own ? &grad : nullptr, nullptr));
    }
    MUST(ddp_model_commit(model, stream));
  }
  ~Model() { ddp_model_destroy(model); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  void pass(Costs& costs) {
    const double before = now_us();
    MUST(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    costs.begin.push_back(now_us() - before);
    for (int32_t p = kParameters; p-- > 0;) {
      const double start = now_us();
      const ddp_status status = ddp_model_mark_ready(model, p, stream);
      const double took = now_us() - start;
      MUST(status);
      (p % kInBucket == 0 ? costs.closing : costs.plain).push_back(took);
    }
    const double end = now_us();
    MUST(ddp_model_end_backward(model, stream));
    costs.end.push_back(now_us() - end);
  }

  Buffer values, grads;
  cudaStream_t stream;
  ddp_model* model = nullptr;
};

}  // namespace

void measure_host(Report& report, const Options& options) {
  const cudaStream_t stream = new_stream();
  ddp_group* const group = alone();
  std::vector<double> clock;
  for (int k = 0; k < 10'000; ++k) {
    const double start = now_us();
    clock.push_back(now_us() - start);
  }
  report.add({"host.clock", "reading the clock, which is part of each figure below", median(clock), "us", "", -1, ""});
  for (const bool own : {false, true}) {
    Model model(group, own, stream);
    ddp_model_stats stats{};
    stats.struct_size = sizeof stats;
    MUST(ddp_model_get_stats(model.model, &stats));
    const std::string note = stats.buckets == kBuckets ? "" : "the plan has " + std::to_string(stats.buckets) + " buckets";
    Costs warm, costs;
    for (int k = 0; k < 10; ++k) model.pass(warm);
    for (int k = 0; k < options.repetitions(100); ++k) {
      MUST(cudaStreamSynchronize(stream));
      model.pass(costs);
    }
    const std::string which = own ? "copy" : "view";
    const double mark = median(costs.plain), late = percentile(costs.plain, 0.99), closing = median(costs.closing),
                 end = median(costs.end);
    const double limit = own ? 20 : 12;
    report.add(
        {"host.mark." + which, "mark that closes no bucket, " + which, mark, "us", "at most 0.2 us", mark <= 0.2, note});
    report.add({"host.mark.p99." + which, "the same, 99th percentile", late, "us", "at most 1 us", late <= 1, note});
    report.add({"host.closing." + which, "mark that closes a bucket, " + which, closing, "us",
                own ? "at most 20 us" : "at most 12 us", closing <= limit, note});
    report.add({"host.end." + which, "ddp_model_end_backward, " + which, end, "us", "at most 5 us", end <= 5, ""});
    report.add({"host.begin." + which, "ddp_model_begin_backward, " + which, median(costs.begin), "us", "", -1, ""});
  }
  ddp_group_destroy(group);
  MUST(cudaStreamDestroy(stream));
}

}  // namespace ddp::bench
