/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Who holds up the others: how long each rank has waited for each other one.
 */
#ifndef DDP_WAITS_H
#define DDP_WAITS_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The cost of stragglers: how long this rank's program waited in collectives and at the end of passes because another
 * rank had not come yet, or its data had not, since the group was made or recovered. It is counted for the rank that came
 * last, whose message was awaited, or that those had to wait for on their host. Waiting that computation hides is not
 * counted. The sum of each element over the ranks (ddp_group_reduce_metrics) tells who holds up the others. Tensors on GPUs:
 * only waiting on the host is counted.
 * @param seconds element r: for rank r; 0 for this rank. At most `capacity` elements are written; NULL if capacity is 0
 * @param out_count number of ranks, whatever the capacity
 * Local, any thread; not while ddp_group_recover runs. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_group_get_waits(const ddp_group *group, double *seconds, int32_t capacity, int32_t *out_count);

#ifdef __cplusplus
}
#endif
#endif
