// SPDX-License-Identifier: Apache-2.0
// A model of one parameter for tests of failures, its gradient in memory of the program.
#pragma once

#include "model/model.hpp"
#include "os/clock.hpp"
#include "support/gpu_world.hpp"

namespace ddp::test {

inline constexpr int64_t kCount = 5000;

struct SmallGpuModel {
  GpuStream stream;
  GpuArray value, grad, fresh;
  model::Model model;

  SmallGpuModel(group::Group& group, int rank)
      : stream(rank),
        value(rank, kCount * 4),
        grad(rank, kCount * 4),
        fresh(rank, kCount * 4),
        model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options()) {
    value.poke(std::vector<float>(kCount, 1));
    fresh.poke(std::vector<float>(kCount, static_cast<float>(rank + 1)));
    const Tensor lent = grad.tensor(group, DDP_F32);
    model.add_parameter("w", value.tensor(group, DDP_F32), &lent);
    model.commit(stream.get());
  }
  static ddp_model_options options() { return {.first_bucket_bytes = 1 << 20, .bucket_bytes = 1 << 20}; }
  void pass() {
    model.begin_backward(DDP_PASS_REDUCE);
    write_on(stream.get(), fresh, grad.data());
    mark_and_end();
  }
  void mark_and_end() {
    model.pass().mark_ready(0, stream.get());
    model.end_backward(stream.get());
  }
  /// All ranks have connected, and nothing is under way.
  void first_pass() {
    pass();
    stream.synchronize();
    model.group().barrier();
  }
};

inline int64_t ms_of(const std::function<void()>& body) {
  const int64_t begin = os::now_ns();
  body();
  return (os::now_ns() - begin) / 1'000'000;
}

}  // namespace ddp::test
