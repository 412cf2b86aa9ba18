// SPDX-License-Identifier: Apache-2.0
// A model and its passes. The oracle is the public rule, written naively.
#pragma once

#include "model/gradients.hpp"
#include "model/model.hpp"
#include "model/replicas.hpp"
#include "os/clock.hpp"
#include "parts/model_pass.hpp"
#include "support/group_world.hpp"
#include "support/noise.hpp"
#include "support/sum_oracle.hpp"

namespace ddp::test {

inline constexpr int kSizes[] = {1, 2, 3, 5, 8};

inline ddp_model_options model_options() {
  return {.first_bucket_bytes = 4'000, .bucket_bytes = 20'000, .reduce = DDP_AVERAGE};
}

/// Parameters of odd sizes, one larger than a bucket.
inline const std::vector<int64_t> kShapes = {1, 17, 1000, 3, 9000, 128, 77, 64};

enum class Memory { kOwned, kPrivate, kGroup, kMixed };

inline float gradient(int rank, int pass, size_t parameter, int64_t i) {
  const auto number =
      noise(static_cast<uint32_t>(rank * 1'000'003 + pass * 1009 + static_cast<int>(parameter) * 31 + i + 1));
  return static_cast<float>(number) / 997.0F - 10.0F;
}

inline float sum_over(int size, int pass, size_t parameter, int64_t i) {
  std::vector<float> of_ranks;
  for (int rank = 0; rank < size; ++rank) of_ranks.push_back(gradient(rank, pass, parameter, i));
  return oracle_sum(of_ranks);
}
inline float mean(int size, int pass, size_t parameter, int64_t i) {
  return sum_over(size, pass, parameter, i) / static_cast<float>(size);
}

/// One rank's model with gradients in the asked kind of memory.
struct PassWorld {
  std::vector<int64_t> shapes;
  std::vector<std::vector<float>> values, grads;
  std::unique_ptr<model::Model> model;

  PassWorld(group::Group& group, Memory memory, const ddp_model_options& options = model_options(),
            const parts::Hook& hook = {}, const std::vector<int64_t>& of = kShapes)
      : shapes(of) {
    // The caller keeps the group; the model only needs a pointer that does not own it.
    model = std::make_unique<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    model->set_hook(hook);
    for (size_t p = 0; p < shapes.size(); ++p) {
      values.emplace_back(static_cast<size_t>(shapes[p]), static_cast<float>(p));
      grads.emplace_back(static_cast<size_t>(shapes[p]));
      const Tensor value = flat_tensor(values[p].data(), DDP_F32, shapes[p]);
      Tensor grad = flat_tensor(grads[p].data(), DDP_F32, shapes[p]);
      const bool in_group = memory == Memory::kGroup || (memory == Memory::kMixed && p % 3 == 0);
      if (in_group) grad.data = static_cast<std::byte*>(group.memory().alloc(grad.bytes()));
      const bool owned = memory == Memory::kOwned || (memory == Memory::kMixed && p % 3 == 1);
      model->add_parameter("p" + std::to_string(p), value, owned ? nullptr : &grad);
    }
    model->commit();
  }
  [[nodiscard]] float* grad(size_t p) const {
    return reinterpret_cast<float*>(model->table().parameter(static_cast<int32_t>(p)).grad.data);
  }
  void fill(int rank, int pass) const {
    for (size_t p = 0; p < shapes.size(); ++p) fill(rank, pass, p);
  }
  void fill(int rank, int pass, size_t p) const {
    for (int64_t i = 0; i < shapes[p]; ++i) grad(p)[i] = gradient(rank, pass, p, i);
  }
  /// A pass in which this rank marks all, the last one first.
  void reduce() const {
    begin();
    model->end_backward();
  }
  void begin() const {
    model->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = shapes.size(); p-- > 0;) model->pass().mark_ready(static_cast<int32_t>(p));
  }
  void run(int rank, int pass) const {
    fill(rank, pass);
    reduce();
  }
  void expect_mean(int size, int pass, const std::string& what) const {
    expect_scaled_sum(size, pass, static_cast<float>(size), what);
  }
  void expect_scaled_sum(int size, int pass, float divisor, const std::string& what) const {
    for (size_t p = 0; p < shapes.size(); ++p)
      for (int64_t i = 0; i < shapes[p]; ++i) {
        const float wanted = sum_over(size, pass, p, i) / divisor;
        if (std::memcmp(&wanted, &grad(p)[i], 4) != 0)
          throw std::runtime_error(what + ": parameter " + std::to_string(p) + " element " + std::to_string(i) + " is " +
                                   std::to_string(grad(p)[i]) + ", expected " + std::to_string(wanted));
      }
  }
};

inline std::vector<int32_t> order_of(int rank, int pass) {
  std::vector<int32_t> order(kShapes.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(static_cast<unsigned>(rank * 131 + pass));
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

}  // namespace ddp::test
