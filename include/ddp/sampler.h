/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Which samples are mine: the partition of a data set over the ranks. No handle: a pure function of its fields.
 */
#ifndef DDP_SAMPLER_H
#define DDP_SAMPLER_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * A data set's partition. The order of an epoch is a permutation made from seed and epoch (or the identity); rank r takes
 * every `size`-th index of it, from position r. All ranks get the same number of indices: the order is padded by starting
 * over, or its tail is dropped. Padding gives some samples twice, so sums over an epoch (ddp_group_reduce_metrics) count
 * them twice: an exact evaluation leaves out the positions seen + first * size + rank that are dataset_size or more.
 *
 * When the number of ranks changes in the middle of an epoch, `seen` carries over what is done: after all ranks have used
 * the positions below `first` of their shares, add first * size to `seen`, set the new rank and size, and begin again at
 * position 0. Rank r then takes the positions seen + r, seen + r + size, ... of the same order, so no sample of the epoch is
 * repeated or left out; only the end of the epoch is padded (from the start of the order) or dropped, by less than one
 * sample a rank. Parts of a virtual rank need none of it: their `size` never changes. Since 0.1.
 */
typedef struct ddp_sampler {
  int64_t struct_size;  /**< set by init */
  int64_t dataset_size; /**< samples in all, 0 or more */
  int64_t seed;         /**< default 0 */
  int32_t rank;         /**< default 0 */
  int32_t size;         /**< number of ranks (default 1) */
  int32_t shuffle;      /**< 1 (default) or 0 */
  int32_t drop_last;    /**< 0 (default): pad by starting over; 1: drop the tail */
  int64_t seen;         /**< default 0. Samples of the epoch that all ranks together have seen before the number of ranks
                           changed: what is left is dealt out over `size` ranks. 0 to dataset_size */
} ddp_sampler;

/** Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_sampler_init(ddp_sampler *sampler, int64_t struct_size);

/** How many indices each rank gets per epoch. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_sampler_get_count(const ddp_sampler *sampler, int64_t *out_count);

/**
 * Write indices `first` to `first + count` of this rank's share of an epoch. Resuming in the middle of an epoch is passing
 * `first`.
 * The sequence is frozen: the same fields give the same indices in every version.
 * @param epoch 0 or more; pass it, or every epoch has the same order
 * @param first position in this rank's share
 * @param count how many; first + count must not exceed ddp_sampler_get_count
 * @param out_indices `count` numbers from 0 to dataset_size - 1
 * Local, any thread, no allocation, constant time per index. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_sampler_fill(const ddp_sampler *sampler, int64_t epoch, int64_t first, int64_t count,
                                    int64_t *out_indices);

#ifdef __cplusplus
}
#endif
#endif
