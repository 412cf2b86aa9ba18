// SPDX-License-Identifier: Apache-2.0
// What a training of a test (support/training.hpp) may be like.
#pragma once

#include "parts/model_pass.hpp"
#include "support/gpu_world.hpp"

namespace ddp::test {

/// kNesterov has a weight decay too. The last two are only rules of the program.
enum class Rule { kSgd, kMomentum, kAdamW, kLion, kAdagrad, kNesterov };

/// One is larger than a bucket and is split in two if it is F32, some are smaller than a slice's block.
inline const std::vector<int64_t> kFusedShapes = {7, 5000, 1, 1024, 3000, 64, 20'000, 900};
/// All types; more than one block of a norm, one element, none.
inline const std::vector<ddp_dtype> kMixedDtypes = {DDP_F32, DDP_F64, DDP_F16,  DDP_BF16,
                                                    DDP_F32, DDP_F32, DDP_BF16, DDP_F64};
inline const std::vector<int64_t> kMixedShapes = {3000, 13, 1500, 2049, 1, 0, 5, 1025};

/// Where and how an optimizer makes steps.
struct StepWays {
  bool shard = false;
  bool in_backward = false;
  bool late_values = false;
  bool divide_in_step = false;
  double max_norm = 0;
  double clip_value = 0;
  ddp_nonfinite nonfinite = DDP_NONFINITE_KEEP;
  bool undo = true;
  bool master_weights = false;
  bool custom = false;         // the rule is the program's
  bool whole_tensors = false;  // and wants them
  double rate = 0.05;
  double momentum = 0.9;
  double epsilon = 1e-8;
};

/// One of several optimizers.
struct Stepper : StepWays {
  Rule rule = Rule::kSgd;
  std::vector<int32_t> parameters{};  // by their numbers; none: the rest

  Stepper(Rule of, std::vector<int32_t> list = {}, bool is_sharded = false, bool steps_in_backward = false)
      : rule(of), parameters(std::move(list)) {
    shard = is_sharded;
    in_backward = steps_in_backward;
  }
};

struct Ways : StepWays {
  Home home = Home::kOfPath;
  bool values_in_group = false;  // parameters in ddp_group_alloc memory
  bool own_values = false;       // libddp keeps them from commit on; what was lent is spoiled then
  bool owned_grads = true;
  bool every_second_lent = false;  // of the gradients that would be owned
  bool later_grads = false;        // each pass gets them in memory of its own, which does not exist before and afterwards
  bool enqueued = false;  // a mark writes the gradient first, on a GPU by a kernel of the program on its stream: F32
  std::vector<int64_t> grads_at{};  // the element of each in one block of the group's memory; none: apart
  ddp_progress progress = DDP_PROGRESS_CALLER;
  ddp_dtype dtype = DDP_F32;
  std::vector<ddp_dtype> dtypes{};  // of each shape; none: all are `dtype`
  ddp_dtype wire{};
  ddp_unused unused = DDP_UNUSED_ALLOW;
  ddp_divisor divisor = DDP_DIVISOR_WORLD;
  parts::Hook hook{};
  int32_t uneven_inputs = 0;
  int64_t first_bucket_bytes = 8'000;
  int64_t bucket_bytes = 60'000;
  std::vector<int64_t> shapes = kFusedShapes;
  std::vector<int64_t> columns{};   // of each shape, which is a matrix then; none: all are flat
  std::vector<int32_t> numbers{};   // the shapes that this model has; none: all
  std::vector<int32_t> buckets{};   // of the program, with -1 between two; none: the library's
  std::vector<Stepper> steppers{};  // none: one optimizer, of the rule that the constructor gets
  bool is_stepped = true;           // false: no optimizer
  bool is_committed = true;         // false: the test calls commit()
  bool whole_gradients = false;     // exact sums in every type and order, as on GPUs
};

inline Ways mixed_ways(Home home = Home::kOfPath) {
  Ways ways;
  ways.home = home;
  ways.shapes = kMixedShapes;
  ways.dtypes = kMixedDtypes;
  ways.first_bucket_bytes = 4'000;
  ways.bucket_bytes = 16'000;
  ways.owned_grads = false;
  return ways;
}

}  // namespace ddp::test
