// SPDX-License-Identifier: Apache-2.0
// A backward pass without its computation: all gradients of a model are marked at once, compared with NCCL called directly
// for as many bytes in as many calls. What libddp's buckets, order and hosts' meetings cost when nothing hides them.
#include "gpu/ranks_bench/ranks_bench.hpp"
#include "gpu/support/sizes.hpp"

namespace ddp::bench {
namespace {

using namespace ddp::test::card;

struct Model {
  Model(const World& w, const std::vector<int64_t>& counts, ddp_reduce reduce)
      : world(w), values(w.place, bytes_of(counts)) {
    ddp_model_options options;
    OK(ddp_model_options_init(&options, sizeof options));
    options.reduce = reduce;
    ddp_model* made = nullptr;
    OK(ddp_model_create(world.group, &options, &made));
    model.reset(made);
    char* at = static_cast<char*>(values.data());
    for (size_t p = 0; p < counts.size(); ++p) {
      const ddp_tensor value = flat(at, DDP_F32, counts[p], world.place);
      OK(ddp_model_add_parameter(made, ("p" + std::to_string(p)).c_str(), &value, nullptr, nullptr));
      at += padded(counts[p]);
    }
    OK(ddp_model_commit(made, world.stream));
    stats.struct_size = sizeof stats;
    OK(ddp_model_get_stats(made, &stats));
    parameters = static_cast<int32_t>(counts.size());
  }
  static int64_t padded(int64_t count) { return (count * 4 + 255) / 256 * 256; }
  static int64_t bytes_of(const std::vector<int64_t>& counts) {
    int64_t bytes = 0;
    for (const int64_t count : counts) bytes += padded(count);
    return bytes;
  }
  void pass() const {
    OK(ddp_model_begin_backward(model.get(), DDP_PASS_REDUCE));
    for (int32_t p = parameters; p-- > 0;) OK(ddp_model_mark_ready(model.get(), p, world.stream));
    OK(ddp_model_end_backward(model.get(), world.stream));
  }

  const World& world;
  Memory values;
  ModelHandle model;
  ddp_model_stats stats{};
  int32_t parameters = 0;
};

void measure_pass(const World& world, Table& table, const RanksOptions& options, const char* name, ddp_reduce reduce,
                  std::vector<int64_t> counts) {
  if (is_fake())
    for (int64_t& count : counts) count = count / 4096 + 1;
  const Model model(world, counts, reduce);
  const int64_t calls = model.stats.buckets, count = model.stats.gradient_bytes / 4 / calls;
  const Memory same(world.place, count * 4 * calls);
  const auto nccl = [&] {
    for (int64_t k = 0; k < calls; ++k)
      world.nccl.all_reduce(static_cast<char*>(same.data()) + k * count * 4, count, world.stream);
  };
  const Times times = in_turn(
      world, options.quick ? 3 : 9, is_fake() ? 2 : 5, [&] { model.pass(); }, nccl);
  const std::string what = reduce == DDP_SUM ? "pass that sums, " : "pass that averages, ";
  table.add({what + name + ", " + std::to_string(calls) + " buckets", model.stats.gradient_bytes, times.ours_us,
             times.nccl_us, 2.0 * (world.size - 1) / world.size, 1.05, 0});
}

}  // namespace

void measure_passes(const World& world, Table& table, const RanksOptions& options) {
  for (const ddp_reduce reduce : {DDP_SUM, DDP_AVERAGE}) {  // a mean is a kernel more for each bucket
    measure_pass(world, table, options, "MLP", reduce, mlp_counts());
    measure_pass(world, table, options, "GPT-2", reduce, gpt2_counts());
  }
}

}  // namespace ddp::bench
