// SPDX-License-Identifier: Apache-2.0
// A model of GPT-2's shapes, smaller by one factor, whose gradients and values libddp keeps on a GPU, with AdamW.
#pragma once

#include "model/optimizer_slot.hpp"
#include "optim/adam.hpp"
#include "parts/model_pass.hpp"
#include "support/gpu_world.hpp"
#include "support/rule_options.hpp"

namespace ddp::test {

inline constexpr int64_t kSmaller = 128;

/// Of GPT-2's 148 parameters, in the order of its forward computation.
inline std::vector<int64_t> gpt2(int64_t smaller = kSmaller) {
  constexpr int64_t kWidth = 768;
  std::vector<int64_t> counts = {50257 * kWidth, 1024 * kWidth};
  for (int layer = 0; layer < 12; ++layer)
    for (const int64_t count : {kWidth, kWidth, 3 * kWidth * kWidth, 3 * kWidth, kWidth * kWidth, kWidth, kWidth, kWidth,
                                4 * kWidth * kWidth, 4 * kWidth, 4 * kWidth * kWidth, kWidth})
      counts.push_back(count);
  counts.push_back(kWidth);
  counts.push_back(kWidth);
  for (int64_t& count : counts) count /= smaller;
  return counts;
}

struct InPlaceWays {
  bool shard = false;
  bool in_backward = false;
  bool divide_in_step = false;
  bool undo = true;
  bool own = true;  // libddp keeps values and gradients
  ddp_nonfinite nonfinite = DDP_NONFINITE_KEEP;
  std::vector<int64_t> counts = gpt2();
  int64_t smaller = kSmaller;
};

/// One rank's model with AdamW.
struct InPlaceTrained {
  group::Group& group;
  int rank;
  InPlaceWays ways;
  GpuStream stream;
  std::vector<GpuArray> lent;  // values, and gradients unless they are owned
  std::shared_ptr<model::Model> model;
  std::shared_ptr<optim::Optimizer> optimizer;

  InPlaceTrained(group::Group& of, int own_rank, const InPlaceWays& asked)
      : group(of), rank(own_rank), ways(asked), stream(own_rank) {
    ddp_model_options options{};
    options.first_bucket_bytes = (1 << 20) / ways.smaller;
    options.bucket_bytes = (64 << 20) / ways.smaller;
    options.own_values = ways.own ? 1 : 0;
    model = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    for (size_t p = 0; p < ways.counts.size(); ++p) {
      GpuArray& value = lent.emplace_back(rank, ways.counts[p] * 4);
      value.poke(std::vector<float>(static_cast<size_t>(ways.counts[p]), 1.0F + static_cast<float>(p)));
      const Tensor lent_value = value.tensor(group, DDP_F32);
      Tensor grad;
      if (!ways.own) grad = lent.emplace_back(rank, ways.counts[p] * 4).tensor(group, DDP_F32);
      model->add_parameter("p" + std::to_string(p), lent_value, ways.own ? nullptr : &grad);
    }
    AdamOptions rule;
    rule.shard = ways.shard;
    rule.in_backward = ways.in_backward;
    rule.divide_in_step = ways.divide_in_step;
    rule.undo = ways.undo;
    rule.nonfinite = ways.nonfinite;
    optimizer = std::make_shared<optim::Adam>(model, rule, rule);
    if (optimizer->in_passes() != nullptr) model->optimizer_slot().attach(optimizer);
    model->commit(stream.get());
    stream.synchronize();
    if (ways.own) lent.clear();  // libddp has the values now
  }
  void train(int step) {
    pass(step);
    optimizer->step(stream.get());
    group.barrier();
    stream.synchronize();
  }
  /// What a pass writes into the gradients.
  [[nodiscard]] std::vector<GpuArray> fresh(int step) const {
    std::vector<GpuArray> fresh;
    for (size_t p = 0; p < ways.counts.size(); ++p) {
      std::vector<float> numbers(static_cast<size_t>(ways.counts[p]));
      for (size_t i = 0; i < numbers.size(); ++i)
        numbers[i] =
            static_cast<float>(static_cast<int>((i * 7 + p * 13 + static_cast<size_t>(step * 29 + rank * 5)) % 31) - 15);
      fresh.emplace_back(rank, ways.counts[p] * 4).poke(numbers);
    }
    return fresh;
  }
  void pass(int step) {
    const std::vector<GpuArray> numbers = fresh(step);
    group.barrier();
    if (rank == 0) fake_gpu::clear_log();
    group.barrier();
    enqueue_pass(numbers);
    stream.synchronize();
  }
  void enqueue_pass(const std::vector<GpuArray>& numbers) {
    model->begin_backward(DDP_PASS_REDUCE);
    for (int32_t p = model->table().parameter_count(); p-- > 0;) {
      write_on(stream.get(), numbers[static_cast<size_t>(p)], model->table().parameter(p).grad.data);
      model->pass().mark_ready(p, stream.get());
    }
    model->end_backward(stream.get());
  }
  [[nodiscard]] std::vector<float> value(int32_t p) const {
    const Tensor& tensor = model->table().parameter(p).value;
    return read_on(stream, rank, tensor.data, tensor.count);
  }
};

}  // namespace ddp::test
