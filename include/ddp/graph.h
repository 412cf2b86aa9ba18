/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * For programs that capture whole steps into CUDA graphs; include/GPU.md, "CUDA graphs", lists which calls may be
 * captured. Experimental.
 */
#ifndef DDP_GRAPH_H
#define DDP_GRAPH_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Write what to multiply the next loss with into a tensor, for kernels that read it there. Into memory of a GPU it is
 * written in the order of `stream`, and the host does not wait: in a step that is captured into a CUDA graph each launch
 * writes the scale of its time.
 * @param tensor one element, F32 or F64; on the model's GPU, or in host memory (then it is written when the call returns, as
 * by ddp_optimizer_get_loss_scale)
 * @param stream of a tensor on a GPU: that of ddp_optimizer_step, or one that is ordered after it
 * The host waits for the stream before the first step, and if parameters are in host memory or the rule is the program's.
 * Local. Errors: INVALID_ARGUMENT (another type or size, or on another GPU than the group's), INVALID_STATE (the host would
 * have to wait for a stream that is captured). Since 0.1.
 */
DDP_API ddp_status ddp_optimizer_copy_loss_scale(ddp_optimizer *optimizer, const ddp_tensor *tensor, void *stream);

#ifdef __cplusplus
}
#endif
#endif
