/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Memory that outlives its owner, for bindings whose arrays the collector takes away. Experimental.
 */
#ifndef DDP_MEMORY_H
#define DDP_MEMORY_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Keep memory of the library readable and writable, with its contents, after its owner was destroyed: after the model, the
 * group, ddp_group_free. For languages whose slices and arrays may outlive the object that they came from. The memory is
 * given back when its owner and as many ddp_memory_release as there were ddp_memory_retain are done; nothing else of a
 * destroyed group or model stays.
 * @param data any address in a gradient that libddp owns, in memory of ddp_group_alloc, or in the contents of a bucket; all
 *        of the block around it is kept, which for a gradient is its bucket
 * Local, never blocks, any thread, also within callbacks. Errors: INVALID_ARGUMENT (not such memory, or on a GPU).
 * Since 0.1.
 */
DDP_API ddp_status ddp_memory_retain(const void *data);

/**
 * Undo one ddp_memory_retain. In a fork of the process the memory stays as it is.
 * @param data any address in the same block; NULL is ignored
 * Local, never blocks, any thread. Errors: INVALID_ARGUMENT (it is not retained). Since 0.1.
 */
DDP_API ddp_status ddp_memory_release(const void *data);

#ifdef __cplusplus
}
#endif
#endif
