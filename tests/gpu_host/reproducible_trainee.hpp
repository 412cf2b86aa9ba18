// SPDX-License-Identifier: Apache-2.0
// A model that is trained on a GPU or in host memory, in one of many ways, and its results to compare.
#pragma once

#include "gpu_host/reproducible_group.hpp"
#include "model/uneven.hpp"
#include "support/training.hpp"

namespace ddp::test {

struct Way {
  bool shard = false, in_backward = false, weights = false, owned = true, unused = false;
  ddp_dtype wire{};
  bool skips = false;  // the last rank, the second pass
  bool voids = false;  // the second pass
  bool joins = false;  // the last rank, after one pass
};

/// What training leaves: parameters, gradients (not of a sharded step), state of the optimizer.
struct Trained {
  std::string values, grads, state;
  bool operator==(const Trained&) const = default;
};

/// One rank's model, in host memory or on its GPU.
class Trainee {
 public:
  Trainee(group::Group& group, ddp_dtype dtype, const Way& way, bool on_gpu)
      : group_(group), way_(way), world_(group, Rule::kAdamW, ways_of(dtype, way, on_gpu)) {
    for (size_t p = 0; p < world_.size(); ++p) fill(world_.value(p), 99 + p);
    if (way.weights) set_weight(*world_.model, 1 + 0.37 * group.rank());
  }

  void train() {
    const bool last = group_.size() > 1 && group_.rank() == group_.size() - 1;
    for (int pass = 0; pass < 3 && !(way_.joins && last && pass > 0); ++pass) {
      if (way_.voids && pass == 1) {
        void_pass();
        continue;
      }
      if (way_.skips && pass == 1 && last)
        skip_backward(*world_.model, world_.stream());
      else
        backward(pass);
      world_.step();
    }
    if (way_.joins) join(*world_.model, world_.stream());
  }
  [[nodiscard]] Trained result() const {
    Trained all{world_.bytes(), "", world_.state()};
    for (size_t p = 0; p < world_.size() && !way_.shard; ++p) all.grads += world_.text_of(world_.grad(p));
    return all;
  }
  [[nodiscard]] std::string plan() const { return world_.model->pass().describe_plan(); }

 private:
  static Ways ways_of(ddp_dtype dtype, const Way& way, bool on_gpu) {
    Ways ways;
    ways.home = on_gpu ? Home::kGpu : Home::kHost;
    ways.shapes = {300, 5000, 7, 9001, 64};
    ways.dtype = dtype;
    ways.wire = way.wire;
    ways.first_bucket_bytes = 1'000;
    ways.bucket_bytes = 30'000;
    ways.divisor = way.weights ? DDP_DIVISOR_WEIGHTS : DDP_DIVISOR_WORLD;
    ways.unused = way.unused ? DDP_UNUSED_ALLOW : DDP_UNUSED_ERROR;
    ways.uneven_inputs = way.joins ? 1 : 0;
    ways.owned_grads = way.owned;
    ways.rate = 1.0 / 64;
    ways.shard = way.shard;
    ways.in_backward = way.in_backward;
    return ways;
  }
  void fill(const Tensor& tensor, uint64_t seed) const {
    world_.write(tensor, random_numbers(tensor.dtype, tensor.count, seed));
  }
  void backward(int pass) {
    world_.model->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = 0; p < world_.size(); ++p) {
      const Tensor& grad = world_.grad(p);
      if (way_.unused && (p == 3 || (p == 1 && group_.rank() > 0))) {  // 3: by no rank
        world_.write(grad, GroupBytes(static_cast<size_t>(grad.bytes())));
        continue;
      }
      fill(grad, static_cast<uint64_t>(1000 * pass + 10 * group_.rank()) + p);
      world_.model->pass().mark_ready(static_cast<int32_t>(p), world_.stream());
    }
    world_.model->end_backward(world_.stream());
  }
  /// The first rank gives up before its last gradient.
  void void_pass() {
    model::Model& model = *world_.model;
    model.begin_backward(DDP_PASS_REDUCE);
    for (size_t p = world_.size(); p-- > 0;) {
      fill(world_.grad(p), 77 + p);
      if (group_.rank() > 0 || p > 0) model.pass().mark_ready(static_cast<int32_t>(p), world_.stream());
    }
    if (group_.rank() == 0)
      abandon_backward(model, "a test", world_.stream());
    else
      static_cast<void>(expect_error(DDP_ERROR_INVALID_STATE, [&] { model.end_backward(world_.stream()); }));
  }

  group::Group& group_;
  const Way way_;
  Training world_;
};

inline Trained trained(group::Group& group, ddp_dtype dtype, const Way& way, bool on_gpu) {
  Trainee trainee(group, dtype, way, on_gpu);
  trainee.train();
  return trainee.result();
}

inline void expect_equal_training(const Trained& got, const Trained& wanted, const std::string& what) {
  expect(got.values == wanted.values, what + ": parameters");
  expect(got.grads == wanted.grads, what + ": gradients");
  expect(got.state == wanted.state, what + ": state of the optimizer");
}

}  // namespace ddp::test
