// SPDX-License-Identifier: Apache-2.0
// The rate of sums with the bits of the CPU (group option reproducible), compared with those in which NCCL adds: bus
// bandwidth of an all-reduce, 2 (n - 1) / n of its bytes in its time. Ranks that share a GPU show that it works, and nothing
// about rates.

#include "gpu/experiments/experiments.hpp"
#include "gpu/support/world.hpp"

namespace ddp::experiments {
namespace {

using namespace ddp::test::card;

GroupHandle like_this_one(const Rank& at, bool reproducible) {
  ddp_group_options options = world_options_of(-1, -1, at.place);
  options.reproducible = reproducible ? 1 : 0;
  ddp_group* made = nullptr;
  OK(ddp_group_split(at.group, 0, at.rank, &options, &made));
  return GroupHandle(made);
}

/// Of one all-reduce in a row of `repetitions`.
double ms_of_sum(ddp_group* group, const Rank& at, int64_t count, int repetitions) {
  const Stream stream(at.place);
  const Memory memory(at.place, count * 4);
  const ddp_tensor tensor = flat(memory.data(), DDP_F32, count, at.place);
  OK(ddp_group_all_reduce(group, &tensor, DDP_SUM, stream.get()));  // connects, takes memory
  stream.wait();
  OK(ddp_group_barrier(group));
  at.place.make_current();
  const Event begin, end;
  begin.record(stream.get());
  for (int k = 0; k < repetitions; ++k) OK(ddp_group_all_reduce(group, &tensor, DDP_SUM, stream.get()));
  end.record(stream.get());
  end.wait();
  OK(ddp_group_barrier(group));
  return end.ms_from(begin) / repetitions;
}

void measure(Report& report, const Rank& at, const Options& options) {
  for (const int64_t bytes : {int64_t{1} << 20, int64_t{16} << 20, int64_t{128} << 20}) {
    if (options.quick && bytes > int64_t{16} << 20) continue;
    const int64_t count = is_fake() ? bytes / 1024 : bytes / 4;
    double rates[2] = {};
    for (const bool reproducible : {false, true}) {
      const GroupHandle group = like_this_one(at, reproducible);
      const double ms = ms_of_sum(group.get(), at, count, options.repetitions(10));
      rates[reproducible ? 1 : 0] = 2.0 * (at.size - 1) / at.size * static_cast<double>(count * 4) / ms / 1e6;
    }
    if (at.rank != 0) continue;
    const std::string what = "sum of " + std::to_string(bytes >> 20) + " MiB, " + std::to_string(at.size) + " ranks: ";
    report.figure(what + "NCCL adds", rates[0], "GB/s");
    report.figure(what + "reproducible", rates[1], "GB/s",
                  std::to_string(static_cast<int>(std::lround(100 * rates[1] / rates[0]))) + " % of NCCL's");
  }
}

}  // namespace

void measure_reproducible(Report& report, const Options& options) {
  std::string why;
  const int32_t gpus = count_devices_elsewhere(why);
  if (gpus < 2)
    return report.not_here("rates of reproducible sums", "they need two GPUs, there are " + std::to_string(gpus));
  const int size = is_fake() ? 2 : gpus;
  run_world(size, [&](const Rank& at) { measure(report, at, options); });
  report.verdict("reproducible sums come to their end", true);
}

}  // namespace ddp::experiments
