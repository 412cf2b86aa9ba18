/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Sparse sums: rows of a table, of which every rank has some. Experimental.
 */
#ifndef DDP_ROWS_H
#define DDP_ROWS_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Reduce rows of a table, of which every rank has some: the gradient of an embedding, without the rows that no rank touched.
 * All ranks get the union of the indices, in rising order, and for each the sum or mean over all ranks, a rank without the
 * row counting as zero: the same bits that dense gradients would have given. ddp_group_get_rows() fetches the result.
 * @param indices I64 [k], each 0 or more, in any order; k may differ from rank to rank and be 0. Rows of an index that is
 *        given several times are added first, in the order given
 * @param rows [k, ...], any dtype; row shape and dtype are the same on all ranks
 * @param op AVERAGE (divides by the number of ranks) or SUM
 * @param out_count rows of the result, the same on every rank
 * Collective, blocks on CPU; two small messages and one of the size of the result. Errors: as ddp_group_all_reduce; MISMATCH
 * (rows of another dtype or width on another rank: the group stays whole), OUT_OF_MEMORY (on every rank). Since 0.1.
 */
DDP_API ddp_status ddp_group_all_reduce_rows(ddp_group *group, const ddp_tensor *indices, const ddp_tensor *rows,
                                             ddp_reduce op, int64_t *out_count, void *stream);

/**
 * Copy the result of the last ddp_group_all_reduce_rows on this group.
 * @param indices receives I64 [count]
 * @param rows receives [count, ...], of the dtype and with rows of the size that were reduced
 * Local. Errors: INVALID_ARGUMENT (they do not fit the result), INVALID_STATE (there is no result). Since 0.1.
 */
DDP_API ddp_status ddp_group_get_rows(const ddp_group *group, const ddp_tensor *indices, const ddp_tensor *rows);

#ifdef __cplusplus
}
#endif
#endif
