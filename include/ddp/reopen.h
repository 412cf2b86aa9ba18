/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Models that grow and shrink: a committed model goes back to the building state, and keeps what it has learnt.
 * Experimental.
 */
#ifndef DDP_REOPEN_H
#define DDP_REOPEN_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Lead a committed model back to the building state: parameters and buffers are added and removed, optimizers are made for
 * them, and ddp_model_commit takes it into use again. Values, gradients in memory and what was accumulated there, the state
 * of optimizers and averages, step counts and weights of what stays are kept, without a file; parts of sharded state move to
 * their new owners in ddp_model_commit. Parameters and buffers that stay keep their indices and the addresses of memory that
 * libddp owns. An average begins at the value of a parameter that was added. An optimizer without a list of parameters gets
 * those that are added; make the optimizers with lists if others are to have them.
 *
 * This ends: sums of parts of a batch (DDP_PASS_PART), marked ranges, hooks' memory, kept generations (ddp_state_keep), the
 * plan of ddp_model_set_buckets, and the numbers of ddp_model_stats. A graph that was captured with the model must not be
 * launched again. A step that the last pass has made is over; gradients that no step has taken must be computed again.
 *
 * While the model is building a recovery does not touch it: ranks that are left go on with ddp_model_commit, and a new rank
 * commits the model with them. It registers what is there now, in the same order, without the gaps: its indices may differ.
 * If a rank that is lost had parts of sharded state that a step has changed, ddp_model_commit succeeds, and a checkpoint
 * must be loaded.
 * @param stream what was enqueued on a GPU is waited for; it must not be captured
 * Collective, blocks. Errors: INVALID_STATE (not committed, building already, a pass is open, averages are swapped in, an
 * outer optimizer), OUT_OF_MEMORY (on all ranks; the model stays committed), and those of collectives. Since 0.1.
 */
DDP_API ddp_status ddp_model_reopen(ddp_model *model, void *stream);

/**
 * Take a parameter out of a model. libddp does not use its lent memory any more; memory of libddp's own for it is freed with
 * the model and its optimizers. The index is not used again, and the name is free: a parameter that is added under it is
 * another one, which begins anew.
 * @param model in the building state, without a plan of ddp_model_set_buckets
 * @param index the parameter
 * Local; all ranks remove the same, else ddp_model_commit fails with MISMATCH. Errors: INVALID_ARGUMENT (no such parameter),
 * INVALID_STATE (committed). Since 0.1.
 */
DDP_API ddp_status ddp_model_remove_parameter(ddp_model *model, int32_t index);

/**
 * The same for a buffer.
 * @param index that ddp_model_add_buffer gave
 * Local; all ranks remove the same. Errors: as ddp_model_remove_parameter. Since 0.1.
 */
DDP_API ddp_status ddp_model_remove_buffer(ddp_model *model, int32_t index);

#ifdef __cplusplus
}
#endif
#endif
