// SPDX-License-Identifier: Apache-2.0
// A model in a group with nccl_multicast whose optimizer is sharded and steps within the pass. Its gradients have sums that
// are exact in every order, so that the CPU is its oracle.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/float16.hpp"
#include "model/model.hpp"
#include "optim/adam.hpp"
#include "optim/sgd.hpp"
#include "support/gpu_world.hpp"
#include "support/rule_options.hpp"

namespace ddp::test {

/// Some are smaller than a slice's block, so that ranks have nothing of their bucket; one is split over buckets; odd counts.
inline const std::vector<int64_t> kShapes = {7, 5001, 1, 1024, 3003, 64, 20'000, 900};
using MulticastBytes = std::vector<uint8_t>;

struct MulticastWays {
  bool on_gpu = true;
  bool momentum = false;  // SGD with momentum; else AdamW
  bool master_weights = false;
  bool own = true;  // libddp keeps gradients and values
  double clip_value = 0;
  ddp_dtype dtype = DDP_F32;
  ddp_reduce reduce = DDP_AVERAGE;
  int32_t frozen = -1;
};

inline ddp_group_options multicast_options() {
  ddp_group_options options = world_options();
  options.nccl_multicast = 1;
  return options;
}

inline void set_number(uint8_t* at, ddp_dtype dtype, double value) {
  const auto single = static_cast<float>(value);
  const uint16_t brain = float_to_bfloat(single), half = float_to_half(single);
  if (dtype == DDP_F32) std::memcpy(at, &single, 4);
  if (dtype == DDP_BF16) std::memcpy(at, &brain, 2);
  if (dtype == DDP_F16) std::memcpy(at, &half, 2);
}

inline MulticastBytes numbers(ddp_dtype dtype, int64_t count, const std::function<double(int64_t)>& value) {
  MulticastBytes bytes(static_cast<size_t>(count * dtype_size(dtype)));
  for (int64_t i = 0; i < count; ++i) set_number(bytes.data() + i * dtype_size(dtype), dtype, value(i));
  return bytes;
}

/// One rank's model, on its GPU or in host memory.
struct MulticastTrainee {
  group::Group& group;
  int rank;
  MulticastWays ways;
  std::unique_ptr<GpuStream> stream;
  std::vector<GpuArray> lent;
  std::vector<MulticastBytes> host;
  std::shared_ptr<model::Model> model;
  std::shared_ptr<optim::BuiltinOptimizer> optimizer;

  MulticastTrainee(group::Group& of, int own_rank, const MulticastWays& asked) : group(of), rank(own_rank), ways(asked) {
    if (ways.on_gpu) stream = std::make_unique<GpuStream>(rank);
    ddp_model_options options{};
    options.first_bucket_bytes = 8'000;
    options.bucket_bytes = 60'000;
    options.own_values = ways.own ? 1 : 0;
    options.reduce = ways.reduce;
    model = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    lent.reserve(2 * kShapes.size());
    host.reserve(2 * kShapes.size());
    for (size_t p = 0; p < kShapes.size(); ++p) {
      const Tensor value = lend(p);
      const Tensor grad = ways.own ? Tensor{} : lend(p);
      model->add_parameter("p" + std::to_string(p), value, ways.own ? nullptr : &grad);
    }
    make_optimizer();
    model->commit(stream_of());
    if (stream != nullptr) stream->synchronize();
    if (ways.own) lent.clear();
  }
  [[nodiscard]] void* stream_of() const { return stream == nullptr ? nullptr : stream->get(); }
  Tensor lend(size_t p) {
    const MulticastBytes start = numbers(
        ways.dtype, kShapes[p], [p](int64_t i) { return std::sin(static_cast<double>(i) + static_cast<double>(p)); });
    if (!ways.on_gpu) return flat_tensor(host.emplace_back(start).data(), ways.dtype, kShapes[p]);
    lent.emplace_back(rank, static_cast<int64_t>(start.size())).poke(start);
    return lent.back().tensor(group, ways.dtype);
  }
  void make_optimizer() {
    const auto fill = [&](auto& options) {
      options.shard = true;
      options.in_backward = true;
      options.master_weights = ways.master_weights;
      options.clip_value = ways.clip_value;
      options.weight_decay = 0.01;
    };
    if (ways.momentum) {
      SgdOptions options;
      options.momentum = 0.9;
      fill(options);
      optimizer = std::make_shared<optim::Sgd>(model, options, options);
    } else {
      AdamOptions options;
      fill(options);
      optimizer = std::make_shared<optim::Adam>(model, options, options);
    }
    model->optimizer_slot().attach(optimizer);
    if (ways.frozen >= 0) optimizer->set_group(ways.frozen, 0.01, 0);
  }
  /// Whole multiples of 1 / 64, so that sums are exact in every order.
  void write_grad(int step, size_t p) {
    const MulticastBytes data = numbers(ways.dtype, kShapes[p], [&](int64_t i) {
      return static_cast<double>((rank + 1) * ((i * 7 + step * 29 + static_cast<int64_t>(p)) % 9 - 4)) / 64;
    });
    void* const to = model->table().parameter(static_cast<int32_t>(p)).grad.data;
    if (!ways.on_gpu) return static_cast<void>(std::memcpy(to, data.data(), data.size()));
    stream->synchronize();
    expect(fake_gpu::poke(to, data.data(), static_cast<int64_t>(data.size())), "poked");
  }
  void pass(int step, size_t without = SIZE_MAX) {
    for (size_t p = 0; p < kShapes.size(); ++p) write_grad(step, p);
    model->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = kShapes.size(); p-- > 0;)
      if (p != without) model->pass().mark_ready(static_cast<int32_t>(p), stream_of());
    model->end_backward(stream_of());
  }
  void train(int from, int to) {
    for (int step = from; step < to; ++step) {
      pass(step);
      optimizer->step(stream_of());
    }
  }
  [[nodiscard]] MulticastBytes all_values() const {
    MulticastBytes all;
    if (stream != nullptr) stream->synchronize();
    for (const Parameter& parameter : model->table().parameters()) {
      MulticastBytes one(static_cast<size_t>(parameter.value.bytes()));
      if (ways.on_gpu)
        expect(fake_gpu::peek(one.data(), parameter.value.data, parameter.value.bytes()), "peeked");
      else
        std::memcpy(one.data(), parameter.value.data, one.size());
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
};

}  // namespace ddp::test
