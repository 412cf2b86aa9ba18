/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Values when they are needed: with the option `late_values` of an optimizer with shard, ddp_optimizer_step returns when
 * this rank's slice is updated. The values of the other ranks come while the next forward computes, in the reverse order of
 * the buckets, which is about the order in which a forward uses parameters. Before a parameter is used, or changed, it is
 * waited for. The bits are those of the option 0.
 *
 * All of libddp that reads values waits for all of them by itself: ddp_model_begin_backward, the next step, saves and loads,
 * ddp_state_keep, ddp_model_check_replicas, ddp_model_get_hash, averages, an outer optimizer, ddp_group_recover,
 * ddp_model_destroy and the end of the process. Call ddp_model_begin_backward behind the forward, not before it.
 * include/OPTIMIZERS.md, "Values when they are needed", has an example, and how to find a missing wait.
 */
#ifndef DDP_LATE_VALUES_H
#define DDP_LATE_VALUES_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Wait until a parameter has its value of the last step. Returns at once if it has, also of an optimizer without the option
 * late_values, and before ddp_model_commit.
 * @param index of the parameter
 * @param stream of a parameter on a GPU. There a step orders its values before what follows on its stream, as without the
 *        option, and this call does nothing
 * Local, blocks; one thread at a time for each model. Errors: INVALID_ARGUMENT, INVALID_STATE (in a function that the
 * library has called), and the first cause if the group has broken: the parameters are then changed in part. Since 0.1.
 */
DDP_API ddp_status ddp_model_wait_value(ddp_model *model, int32_t index, void *stream);

/** Wait until all parameters have their values of the last steps. As ddp_model_wait_value. Since 0.1. */
DDP_API ddp_status ddp_model_wait_values(ddp_model *model);

/**
 * Has a parameter its value of the last step?
 * @param index of the parameter
 * @return 1: it has; 0: a wait would block; -1: not a model, not a parameter, or the value will not come, and
 *         ddp_last_error says why
 * Local, never blocks; one thread at a time for each model. Since 0.1.
 */
DDP_API int32_t ddp_model_value_ready(const ddp_model *model, int32_t index);

#ifdef __cplusplus
}
#endif
#endif
