/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Ranks with unequal data: gradients that count by weight, a rank that has no batch for a pass, and a step at which all
 * stop. (A rank that has run out of data: ddp/join.h.)
 * include/README.md, "Unequal data", explains which to use; src/parts/README.md lists the answers of a joined rank.
 */
#ifndef DDP_UNEVEN_H
#define DDP_UNEVEN_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Who took part in a pass, the same on all ranks. With virtual ranks (ddp/virtual_ranks.h) they are counted and named in
   the place of ranks. Since 0.1. */
typedef struct ddp_pass_report {
  int64_t struct_size;  /**< set by the caller */
  int32_t contributors; /**< ranks whose gradients counted: they neither skipped nor joined, and their weight was above 0 */
  int32_t last;         /**< 1: some rank has no batch for the next pass (ddp_model_set_last_pass, ddp_model_join) */
  double weight;        /**< sum of their weights, formed in the tree over the ranks */
  int32_t absent_count; /**< ranks that are not among the contributors: ddp_model_get_absent lists them */
  int32_t reserved;     /**< 0 */
} ddp_pass_report;

/**
 * How much this rank's gradients count in the passes that reduce, from the next bucket that starts on: its number of samples
 * or tokens.
 * The result of a pass is sum(weight * gradient) / sum(weight) over the ranks. A rank with weight 0 contributes nothing, not
 * even a NaN; it receives the result. The weight is sent with the gradients, so it must be known before the first bucket
 * starts: set it before the first ddp_model_mark_ready of the pass. It holds until it is set again; at first it is 1.
 * @param weight 0, or from 2^-40 to 2^40
 * Local. Errors: INVALID_ARGUMENT (negative, NaN, out of range), INVALID_STATE (the model option divisor is not
 * DDP_DIVISOR_WEIGHTS, not committed, or a bucket of this pass has started). Since 0.1.
 */
DDP_API ddp_status ddp_model_set_weight(ddp_model *model, double weight);

/**
 * Say that this rank has no batch after the open pass (or the next one, if none is open). When that pass has ended, every
 * rank finds it in ddp_model_get_pass_report, so all can stop at the same step without a collective of their own. Call it
 * before the first ddp_model_mark_ready of the pass.
 * Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not committed, or a bucket of this pass has started). Since 0.1.
 */
DDP_API ddp_status ddp_model_set_last_pass(ddp_model *model);

/**
 * Take part in one REDUCE pass without a batch, in the place of begin_backward, mark_ready and end_backward: this rank
 * contributes nothing and receives the result, so it can step the optimizer like the others. What its gradients held is
 * overwritten; to send what was accumulated before, open a pass and mark everything.
 * Collective, blocks; not in an open pass. Errors: as ddp_model_end_backward, and NOT_SUPPORTED (a pulled hook). Since 0.1.
 */
DDP_API ddp_status ddp_model_skip_backward(ddp_model *model, void *stream);

/**
 * Leave the open pass because this rank failed in it: its remaining gradients are not sent, and ddp_model_end_backward
 * returns INVALID_STATE with this rank's reason on the other ranks instead of waiting. The gradients of the pass are
 * undefined, the group stays usable. Marks of the pass do not count. No mark of this pass may be in progress on another
 * thread.
 * @param reason one sentence for the error text; NULL is allowed
 * Collective in a REDUCE pass, as the end that it replaces (blocks), local in an ACCUMULATE or LOCAL pass. Errors:
 * INVALID_STATE (no open pass; or all gradients had been sent: the pass then ended well on every rank), and those of
 * collectives. Since 0.1.
 */
DDP_API ddp_status ddp_model_abandon_backward(ddp_model *model, const char *reason, void *stream);

/**
 * Who took part in the last REDUCE pass. `out_report->struct_size` must be set to sizeof(ddp_pass_report) by the caller.
 * Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not committed, or no REDUCE pass has ended). Since 0.1.
 */
DDP_API ddp_status ddp_model_get_pass_report(const ddp_model *model, ddp_pass_report *out_report);

/**
 * The ranks that are not among the contributors of the last REDUCE pass, the same on all ranks; with virtual ranks their
 * numbers. (Which ranks did not mark which parameters: ddp_get_error_details of the failed ddp_model_end_backward.)
 * @param ranks filled with at most `capacity` ranks, ascending; NULL if capacity is 0
 * @param out_count how many there are, whatever the capacity
 * Cost: a pass in which ranks are absent exchanges one more small message if the group has more than 63 ranks.
 * Local. Errors: as ddp_model_get_pass_report. Since 0.1.
 */
DDP_API ddp_status ddp_model_get_absent(const ddp_model *model, int32_t *ranks, int32_t capacity, int32_t *out_count);

#ifdef __cplusplus
}
#endif
#endif
