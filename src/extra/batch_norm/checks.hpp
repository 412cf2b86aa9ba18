// SPDX-License-Identifier: Apache-2.0
// What can never be right about a call of batch normalisation, found before anything is sent or written.
// Any thread.
// Tested by capi/batch_norm_test.c.
#pragma once

#include "extra/batch_norm/batch_norm.hpp"

namespace ddp::batch_norm {

/// Each throws INVALID_ARGUMENT that names the argument.
void check_options(const ddp_batch_norm_options& options, const char* function);
void check_forward(const Forward& call, bool training);
void check_backward(const Backward& call, bool training);

/// Epsilon and momentum of another rank and of rank 0. Throws MISMATCH.
void check_same_options(const group::Group& group, size_t rank, const double* there, const double* here);
/// `count`: values per channel over all ranks, when training. Throws INVALID_ARGUMENT for one.
void check_total(double count);

}  // namespace ddp::batch_norm
