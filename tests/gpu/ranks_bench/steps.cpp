// SPDX-License-Identifier: Apache-2.0
// Sharded steps within the pass, by one kernel over multicast beside the ordinary way (reduce-scatter, update, all-gather):
// a pass without its computation, and its step. Where there is no multicast both are the ordinary way, and the ratio is 1.
#include "gpu/ranks_bench/ranks_bench.hpp"
#include "gpu/support/sizes.hpp"

namespace ddp::bench {
namespace {

using namespace ddp::test::card;

class Trained {
 public:
  Trained(const World& world, ddp_group* group, const std::vector<int64_t>& counts) : world_(world) {
    ddp_model_options options;
    OK(ddp_model_options_init(&options, sizeof options));
    options.own_values = 1;
    ddp_model* made = nullptr;
    OK(ddp_model_create(group, &options, &made));
    model_.reset(made);
    std::vector<Memory> lent;
    for (size_t p = 0; p < counts.size(); ++p) {
      const ddp_tensor value = flat(lent.emplace_back(world.place, counts[p] * 4).data(), DDP_F32, counts[p], world.place);
      OK(ddp_model_add_parameter(made, ("p" + std::to_string(p)).c_str(), &value, nullptr, nullptr));
    }
    ddp_adam_options rule;
    OK(ddp_adam_options_init(&rule, sizeof rule));
    ddp_optimizer_options shared;
    OK(ddp_optimizer_options_init(&shared, sizeof shared));
    shared.shard = shared.in_backward = 1;
    shared.undo = 0;
    ddp_optimizer* optimizer = nullptr;
    OK(ddp_optimizer_create_adam(made, &rule, &shared, &optimizer));
    optimizer_.reset(optimizer);
    OK(ddp_model_commit(made, world.stream));
    GPU_CALL(stream_synchronize(world.stream));
    parameters_ = static_cast<int32_t>(counts.size());
    step();  // the first pass is an ordinary one
    GPU_CALL(stream_synchronize(world.stream));
  }
  void step() const {
    OK(ddp_model_begin_backward(model_.get(), DDP_PASS_REDUCE));
    for (int32_t p = parameters_; p-- > 0;) OK(ddp_model_mark_ready(model_.get(), p, world_.stream));
    OK(ddp_model_end_backward(model_.get(), world_.stream));
    OK(ddp_optimizer_step(optimizer_.get(), world_.stream));
  }

 private:
  const World& world_;
  ModelHandle model_;
  OptimizerHandle optimizer_;
  int32_t parameters_ = 0;
};

}  // namespace

void measure_steps(const World& world, Table& table, const RanksOptions& options) {
  std::vector<int64_t> counts = gpt2_counts();
  if (is_fake())
    for (int64_t& count : counts) count = count / 4096 + 1;
  ddp_group_options wanted;
  OK(ddp_group_options_init(&wanted, sizeof wanted));
  wanted.device_index = world.place.device;
  wanted.nccl_multicast = 1;
  ddp_group* made = nullptr;
  OK(ddp_group_split(world.group, 0, world.rank, &wanted, &made));
  const GroupHandle group(made);
  const Trained over(world, made, counts), ordinary(world, world.group, counts);
  const Times times = in_turn(
      world, options.quick ? 3 : 9, is_fake() ? 2 : 5, [&] { over.step(); }, [&] { ordinary.step(); });
  int64_t bytes = 0;
  for (const int64_t count : counts) bytes += count * 4;
  table.add(
      {"sharded step, multicast : not", bytes, times.ours_us, times.nccl_us, 2.0 * (world.size - 1) / world.size, 1.0, 0});
}

}  // namespace ddp::bench
