// SPDX-License-Identifier: Apache-2.0
// What marks cost the host where there are several ranks: one that closes a bucket enqueues NCCL's call, the others do next
// to nothing. Gradients are in libddp's memory and are marked without a kernel before them.

#include "gpu/ranks_bench/ranks_bench.hpp"

namespace ddp::bench {
namespace {

using namespace ddp::test::card;

constexpr int32_t kInBucket = 8;
constexpr int64_t kCount = 16'384; /* 64 KiB */

using Clock = std::chrono::steady_clock;

struct Costs {
  std::vector<double> plain, closing;
};

void mark_all(const World& world, ddp_model* model, int32_t parameters, Costs& costs) {
  OK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  for (int32_t p = parameters; p-- > 0;) {
    const auto start = Clock::now();
    const ddp_status status = ddp_model_mark_ready(model, p, world.stream);
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    OK(status);
    (p % kInBucket == 0 ? costs.closing : costs.plain).push_back(us);
  }
  OK(ddp_model_end_backward(model, world.stream));
  GPU_CALL(stream_synchronize(world.stream));
}

/// The median, of the rank for which it is largest.
double slowest(const World& world, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  double middle = values[values.size() / 2];
  OK(ddp_group_reduce_metrics(world.group, &middle, 1, DDP_MAX));
  return middle;
}

}  // namespace

void measure_marks(const World& world, Table& table, const RanksOptions& options) {
  const int32_t buckets = is_fake() ? 3 : 50, parameters = buckets * kInBucket;
  const Memory values(world.place, parameters * kCount * 4);
  ddp_model_options wanted;
  OK(ddp_model_options_init(&wanted, sizeof wanted));
  wanted.first_bucket_bytes = wanted.bucket_bytes = kInBucket * kCount * 4;
  ddp_model* made = nullptr;
  OK(ddp_model_create(world.group, &wanted, &made));
  const ModelHandle model(made);
  for (int32_t p = 0; p < parameters; ++p) {
    const ddp_tensor value = flat(static_cast<char*>(values.data()) + p * kCount * 4, DDP_F32, kCount, world.place);
    OK(ddp_model_add_parameter(made, ("p" + std::to_string(p)).c_str(), &value, nullptr, nullptr));
  }
  OK(ddp_model_commit(made, world.stream));
  ddp_model_stats stats{};
  stats.struct_size = sizeof stats;
  OK(ddp_model_get_stats(made, &stats));
  if (stats.buckets != buckets) throw std::runtime_error("the plan has " + std::to_string(stats.buckets) + " buckets");
  Costs warm, costs;
  for (int k = 0; k < 10; ++k) mark_all(world, made, parameters, warm);
  for (int k = 0; k < (options.quick ? 20 : 100); ++k) mark_all(world, made, parameters, costs);
  table.add({"mark that closes no bucket", 0, slowest(world, costs.plain), 0, 0, 0, 0.2});
  table.add({"mark that closes a bucket", 0, slowest(world, costs.closing), 0, 0, 0, 40});
}

}  // namespace ddp::bench
