// SPDX-License-Identifier: Apache-2.0
// Batch normalisation over the samples of all ranks: each rank measures its own, one message joins the measures in rank
// order (not in the tree of device/cpu/reduce.hpp: every rank has all measures, and joins them with Chan's rule).
//
// The message is [options, count, mean of each channel, sum of squared differences of each channel] in F64 forward, and the
// two sums that the gradient needs backward: 2C and a few numbers, once each. Unequal and empty batches need no case of
// their own.
// Tensors on a GPU are normalised there (gpu.hpp).
// Ioffe and Szegedy, "Batch Normalization", 2015, with the batch of all ranks; the joining is in moments.hpp.
// Promises: all ranks hold the same statistics to the last bit; nothing is written before everything was checked.
// Threads: the caller's.
// Tested by unit/extra/moments_test.cpp, conformance/batch_norm_test.cpp and capi/batch_norm_test.c.
#pragma once

#include <cstdint>
#include <optional>

#include "core/tensor.hpp"
#include "ddp/batch_norm.h"
#include "group/group.hpp"

namespace ddp::batch_norm {

using MaybeTensor = std::optional<Tensor>;

struct Forward {
  Tensor x;
  MaybeTensor weight, bias, running_mean, running_var;
  Tensor y;
  MaybeTensor saved_mean, saved_invstd;
};

struct Backward {
  Tensor dy, x;
  MaybeTensor weight;
  Tensor saved_mean, saved_invstd;
  int64_t count = 0;  // values per channel over all ranks
  MaybeTensor dx, dweight, dbias;
};

/// Returns the values per channel over all ranks (of this rank alone when not training). Throws INVALID_ARGUMENT, MISMATCH,
/// or what collectives throw.
/// `stream`: in whose order tensors on a GPU are read and written.
int64_t forward(group::Group& group, const ddp_batch_norm_options& options, const Forward& call, void* stream = nullptr);
void backward(group::Group& group, const ddp_batch_norm_options& options, const Backward& call, void* stream = nullptr);

}  // namespace ddp::batch_norm
