// What can never be right about a call of batch normalisation, found before anything is sent or written.
// Any thread. Tested by capi/batch_norm_test.c.
#pragma once

#include "norm/batch_norm.hpp"

namespace ddp::norm {

/// Each throws INVALID_ARGUMENT that names the argument.
void check_options(const ddp_batch_norm_options& options, const char* function);
void check_forward(const Forward& call, bool training);
void check_backward(const Backward& call, bool training);

}  // namespace ddp::norm
