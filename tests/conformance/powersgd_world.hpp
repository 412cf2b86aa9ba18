// SPDX-License-Identifier: Apache-2.0
// A model with PowerSGD. The oracle is the mean by a naive loop over all ranks' gradients in F64.
#pragma once

#include "conformance/wire_world.hpp"
#include "core/random.hpp"
#include "extra/powersgd.hpp"

namespace ddp::test {

inline ddp_powersgd_options powersgd_options(int32_t rank) {
  ddp_powersgd_options options = extra::default_powersgd_options();
  options.rank = rank;
  options.start_pass = 0;
  options.seed = 7;
  return options;
}

struct PowerShape {
  ddp_dtype dtype;
  std::vector<int64_t> shape;
};
/// A matrix, four dimensions, a vector, something too small to gain, and F64.
inline const std::vector<PowerShape> kPowerShapes = {
    {DDP_F32, {60, 50}}, {DDP_F32, {32, 8, 3, 3}}, {DDP_F32, {77}}, {DDP_F32, {3, 4}}, {DDP_F64, {40, 64}}};
inline constexpr size_t kCompressed[] = {0, 1, 4};

using PowerGradient = std::function<double(int rank, size_t parameter, int64_t row, int64_t column)>;

struct PowerWorld {
  std::vector<std::vector<std::byte>> values;
  std::unique_ptr<model::Model> model;

  PowerWorld(group::Group& group, const parts::Hook& hook, ddp_unused unused = DDP_UNUSED_ERROR) {
    ddp_model_options options = wire_options();
    options.unused = unused;
    model = std::make_unique<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    model->set_hook(hook);
    for (size_t p = 0; p < kPowerShapes.size(); ++p) {
      ddp_tensor shape{};
      shape.dtype = kPowerShapes[p].dtype;
      shape.device = DDP_CPU;
      int64_t count = 1;
      for (const int64_t extent : kPowerShapes[p].shape) {
        shape.shape[shape.ndim++] = extent;
        count *= extent;
      }
      values.emplace_back(static_cast<size_t>(count * dtype_size(shape.dtype)));
      shape.data = values.back().data();
      model->add_parameter("p" + std::to_string(p), checked_tensor(&shape, "the test"), nullptr);
    }
    model->commit();
  }
  [[nodiscard]] const Tensor& grad(size_t p) const { return model->table().parameter(static_cast<int32_t>(p)).grad; }
  [[nodiscard]] double get(size_t p, int64_t i) const {
    return grad(p).dtype == DDP_F32 ? static_cast<double>(load<float>(grad(p).data, i)) : load<double>(grad(p).data, i);
  }
  void fill(int rank, const PowerGradient& gradient) const {
    for (size_t p = 0; p < kPowerShapes.size(); ++p) {
      const int64_t columns = grad(p).count / kPowerShapes[p].shape[0];
      for (int64_t i = 0; i < grad(p).count; ++i) {
        const double value = gradient(rank, p, i / columns, i % columns);
        if (grad(p).dtype == DDP_F32)
          store(grad(p).data, i, static_cast<float>(value));
        else
          store(grad(p).data, i, value);
      }
    }
  }
  void run(int rank, const PowerGradient& gradient) const {
    fill(rank, gradient);
    model->begin_backward(DDP_PASS_REDUCE);
    for (int32_t p = model->table().parameter_count(); p-- > 0;) model->pass().mark_ready(p);
    model->end_backward();
  }
  [[nodiscard]] double mean(int size, const PowerGradient& gradient, size_t p, int64_t i) const {
    const int64_t columns = grad(p).count / kPowerShapes[p].shape[0];
    double sum = 0;
    for (int rank = 0; rank < size; ++rank) sum += gradient(rank, p, i / columns, i % columns);
    return sum / size;
  }
  /// The largest distance from the mean, as a part of its largest element.
  [[nodiscard]] double error(int size, const PowerGradient& gradient, size_t p) const {
    double most = 0, largest = 0;
    for (int64_t i = 0; i < grad(p).count; ++i) {
      const double wanted = mean(size, gradient, p, i);
      most = std::max(most, std::fabs(get(p, i) - wanted));
      largest = std::max(largest, std::fabs(wanted));
    }
    return most / largest;
  }
  /// All ranks hold the same bits.
  void expect_equal_bits(group::Group& group) const {
    for (size_t p = 0; p < kPowerShapes.size(); ++p) {
      std::vector<std::byte> all(static_cast<size_t>(grad(p).bytes() * group.size()));
      group.all_gather(flat_tensor(grad(p).data, DDP_U8, grad(p).bytes()),
                       flat_tensor(all.data(), DDP_U8, static_cast<int64_t>(all.size())));
      for (int rank = 1; rank < group.size(); ++rank)
        expect(std::memcmp(all.data(), all.data() + rank * grad(p).bytes(), static_cast<size_t>(grad(p).bytes())) == 0,
               "parameter " + std::to_string(p) + " has rank 0's bits on rank " + std::to_string(rank));
    }
  }
};

inline double wave(int64_t i, int frequency) { return std::sin(0.37 * frequency * static_cast<double>(i) + frequency); }

/// Of rank 2 on every rank, with the same spaces.
inline double low_rank_gradient(int rank, size_t parameter, int64_t row, int64_t column) {
  const int f = static_cast<int>(parameter) + 1;
  return (rank + 1) * wave(row, f) * wave(column, f + 1) + (2 - rank) * 0.5 * wave(row, f + 2) * wave(column, f + 3);
}
/// Of full rank, different on every rank.
inline double full_gradient(int rank, size_t parameter, int64_t row, int64_t column) {
  const auto bits = mix64(static_cast<uint64_t>(row * 1'000'003 + column) ^ static_cast<uint64_t>(parameter) << 50 ^
                          static_cast<uint64_t>(rank) << 58);
  return static_cast<double>(bits >> 40) / 8388608.0 - 1.0;
}

}  // namespace ddp::test
