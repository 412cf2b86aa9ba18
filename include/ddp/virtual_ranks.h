/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * The same bits at any number of ranks.
 *
 * The group option `virtual_ranks = V` divides the global batch into V parts, whatever the number of ranks, which is V or
 * less. Each rank works on the parts that ddp_group_get_virtual_ranks gives it, one after the other: a pass with
 * DDP_PASS_PART for each but the last, a pass with DDP_PASS_REDUCE for that one. Sums are formed in the tree over the parts,
 * so gradients, parameters and optimizer have the bits of V ranks with one part each. libddp guarantees the sum, not the
 * gradient: the program must compute the same gradient for the same part on every rank. include/BITS.md, "The same bits at
 * any number of ranks", lists the requirements.
 */
#ifndef DDP_VIRTUAL_RANKS_H
#define DDP_VIRTUAL_RANKS_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Which parts of the global batch a rank works on. The caller sets struct_size. Since 0.1. */
typedef struct ddp_virtual_ranks {
  int64_t struct_size; /**< sizeof(ddp_virtual_ranks) */
  int32_t total;       /**< parts in all: the group option virtual_ranks, or without it the number of ranks */
  int32_t first;       /**< of this rank; the `rank` of a ddp_sampler whose `size` is `total` */
  int32_t count;       /**< of this rank, 1 or more: `first` to first + count - 1 */
  int32_t reserved;    /**< 0 */
} ddp_virtual_ranks;

/**
 * Which parts are this rank's. They change when ddp_group_recover has returned. Local, any thread. Errors: INVALID_ARGUMENT,
 * INVALID_STATE (destroyed). Since 0.1.
 */
DDP_API ddp_status ddp_group_get_virtual_ranks(const ddp_group *group, ddp_virtual_ranks *out_ranks);

/**
 * A key for the random numbers (dropout, augmentation) of one part in one step, the same wherever the part runs. The
 * sequence is frozen: the same arguments give the same key in every version.
 * @param seed of the training
 * @param step its number, 0 or more, which the program counts (and restores from a checkpoint)
 * @param virtual_rank of the part, 0 or more
 * @param out_key 64 bits, any pattern
 * Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_virtual_rank_key(int64_t seed, int64_t step, int32_t virtual_rank, int64_t *out_key);

/**
 * As ddp_group_reduce_metrics, with one value for each part: summed in the tree over all parts, so the result has the same
 * bits at any number of ranks. DDP_AVERAGE divides by the number of parts.
 * @param part_values the numbers of this rank's parts, one part after the other: `count` doubles for each. The first `count`
 *        are replaced by the result, the same bits on every rank; what the others hold afterwards is undefined
 * @param count of each part, 1 to 1,024
 * Collective, blocks. Errors: as ddp_group_all_reduce. Since 0.1.
 */
DDP_API ddp_status ddp_group_reduce_part_metrics(ddp_group *group, double *part_values, int64_t count, ddp_reduce op);

#ifdef __cplusplus
}
#endif
#endif
