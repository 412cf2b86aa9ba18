// SPDX-License-Identifier: Apache-2.0
// A model with a hook of the program, called or pulled. The oracle is the public rule, written naively.
#pragma once

#include "conformance/wire_world.hpp"
#include "model/pulled.hpp"
#include "model/uneven.hpp"

namespace ddp::test {

using HookBody = std::function<void(parts::HookBucket&)>;

inline parts::Hook callback(HookBody body) {
  parts::Hook hook;
  hook.kind = parts::Hook::Kind::kCallback;
  hook.name = "a callback";
  hook.body = std::move(body);
  return hook;
}

inline parts::Hook pulled() {
  parts::Hook hook;
  hook.kind = parts::Hook::Kind::kPulled;
  hook.name = "pulled";
  return hook;
}

inline const std::vector<int64_t> kHookShapes = {1, 17, 1000, 3, 90'000, 128, 77};

inline float hook_gradient(int rank, int pass, size_t parameter, int64_t i) {
  return static_cast<float>((rank * 7919 + pass * 104'729 + static_cast<int>(parameter) * 31 + static_cast<int>(i)) % 4093) /
             61.0F -
         30.0F;
}
inline float hook_sum(int size, int pass, size_t parameter, int64_t i) {
  std::vector<float> of_ranks;
  for (int rank = 0; rank < size; ++rank) of_ranks.push_back(hook_gradient(rank, pass, parameter, i));
  return oracle_sum(of_ranks);
}

struct HookWorld {
  std::vector<std::vector<float>> values, grads;
  std::unique_ptr<model::Model> model;

  HookWorld(group::Group& group, parts::Hook hook, ddp_progress progress = DDP_PROGRESS_AUTO,
            ddp_unused unused = DDP_UNUSED_ERROR) {
    ddp_model_options options{};
    options.first_bucket_bytes = 4'000;
    options.bucket_bytes = 20'000;
    options.reduce = DDP_AVERAGE;
    options.progress = progress;
    options.unused = unused;
    model = std::make_unique<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    model->set_hook(std::move(hook));
    for (size_t p = 0; p < kHookShapes.size(); ++p) {
      values.emplace_back(static_cast<size_t>(kHookShapes[p]));
      grads.emplace_back(static_cast<size_t>(kHookShapes[p]));
      const Tensor grad = flat_tensor(grads[p].data(), DDP_F32, kHookShapes[p]);
      model->add_parameter("p" + std::to_string(p), flat_tensor(values[p].data(), DDP_F32, kHookShapes[p]),
                           p % 2 == 0 ? nullptr : &grad);
    }
    model->commit();
  }
  [[nodiscard]] float* grad(size_t p) const {
    return reinterpret_cast<float*>(model->table().parameter(static_cast<int32_t>(p)).grad.data);
  }
  void fill(int rank, int pass) const {
    for (size_t p = 0; p < kHookShapes.size(); ++p)
      for (int64_t i = 0; i < kHookShapes[p]; ++i) grad(p)[i] = hook_gradient(rank, pass, p, i);
  }
  void mark(int rank, int pass) const {
    fill(rank, pass);
    model->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = kHookShapes.size(); p-- > 0;) model->pass().mark_ready(static_cast<int32_t>(p));
  }
  void run(int rank, int pass) const {
    mark(rank, pass);
    model->end_backward();
  }
  void expect_scaled_sum(int size, int pass, float divisor, const std::string& what) const {
    for (size_t p = 0; p < kHookShapes.size(); ++p)
      for (int64_t i = 0; i < kHookShapes[p]; ++i) {
        const float wanted = hook_sum(size, pass, p, i) / divisor;
        if (std::memcmp(&wanted, &grad(p)[i], 4) != 0)
          throw std::runtime_error(what + ": parameter " + std::to_string(p) + " element " + std::to_string(i) + " is " +
                                   std::to_string(grad(p)[i]) + ", expected " + std::to_string(wanted));
      }
  }
};

inline void average(parts::HookBucket& bucket) { bucket.all_reduce(bucket.contents(), DDP_AVERAGE); }

}  // namespace ddp::test
