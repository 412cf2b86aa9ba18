// SPDX-License-Identifier: Apache-2.0
// Batch normalisation of tensors on a GPU: the same steps as in batch_norm.cpp, enqueued on the caller's stream.
//
// Moments and sums are sent by NCCL in F64; the ranks' counts and options are exchanged over the host first, because
// out_count and errors are returned at once. The host waits for other ranks there, never for the device. Forward joins the
// ranks' moments in rank order, so all hold the same bits; the two sums of backward are added in NCCL's order, again the
// same bits on all ranks. Working memory is the group's scratch memory. Threads: the caller's. Tested by
// gpu_host/batch_norm_test.cpp and gpu/batch_norm_test.cpp.
#pragma once

#include "extra/batch_norm/batch_norm.hpp"

namespace ddp::batch_norm {

/// The call has been checked. As forward() and backward(), and INVALID_STATE while the stream is captured into a graph.
int64_t forward_on_gpu(group::Group& group, const ddp_batch_norm_options& options, const Forward& call, void* stream);
void backward_on_gpu(group::Group& group, const ddp_batch_norm_options& options, const Backward& call, void* stream);

}  // namespace ddp::batch_norm
