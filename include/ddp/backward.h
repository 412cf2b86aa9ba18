/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * One backward pass: gradients are marked as they become ready, and full buckets are reduced meanwhile.
 */
#ifndef DDP_BACKWARD_H
#define DDP_BACKWARD_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a pass does. Since 0.1. */
typedef enum ddp_pass DDP_INT32 {
  DDP_PASS_REDUCE = 0,     /**< gradients are reduced over the ranks; what was accumulated before is part of them */
  DDP_PASS_ACCUMULATE = 1, /**< nothing is sent: the caller adds to its gradients, a later REDUCE pass sends the whole */
  DDP_PASS_LOCAL = 2,      /**< nothing is sent, and the gradients are final on this rank alone: local SGD, with
                                ddp_model_average_parameters every few steps */
  DDP_PASS_PART = 3        /**< of a rank that has several virtual ranks (ddp/virtual_ranks.h): nothing is sent,
                                the gradients of one virtual rank are complete; libddp takes them and sets them to
                                zero */
} ddp_pass;

/**
 * Open a pass. While it is open the user's blocking collectives on the same group are refused; code that must make them
 * inside backward uses a second group.
 * The passes of several models of a group may be open at the same time: a generator's loss goes through a discriminator, or
 * one model is a part of another. Their gradients may be marked in any order. End the passes in the same order on all ranks.
 * The first 8 models of a group can do so; passes that reduce gradients on a GPU are open one at a time.
 * Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not committed; a pass of the model, or one that excludes it, is open; the
 * step that an optimizer with in_backward made within the last pass was not ended by ddp_optimizer_step; or a failed pass or
 * load has changed a part of the parameters, which a load mends), and the first cause if the group is broken. Since 0.1.
 */
DDP_API ddp_status ddp_model_begin_backward(ddp_model *model, ddp_pass mode);

/**
 * The gradient of parameter `index` is complete. When it completes the next bucket in plan order, that bucket's reduction
 * starts, whatever the order of marking (src/README.md, "Why order is fixed").
 * From here to the return of ddp_model_end_backward the gradient belongs to libddp: neither read nor write it.
 * @param stream of a gradient on a GPU: the stream on which it was written, valid until the pass has ended; what is enqueued
 *        there by now comes before the reduction. Gradients of one pass may come on several streams. NULL: the legacy
 *        default stream
 * Local, never waits, constant time, no allocation. Any thread, between begin and end.
 * Errors: INVALID_ARGUMENT (index; or ddp_model_set_grad gave memory that overlaps the gradient of another parameter in this
 * pass: the text names both, and the gradient is not marked), INVALID_STATE (no open pass, or marked twice: mark a shared
 * parameter on its last use), and the first cause if the group is broken and no pass is open. A failed communication is
 * reported by ddp_model_end_backward. Since 0.1.
 */
DDP_API ddp_status ddp_model_mark_ready(ddp_model *model, int32_t index, void *stream);

/**
 * As ddp_model_mark_ready, for a part of a gradient: one tensor that holds many layers, of which each is final at its own
 * time. The gradient is marked when each of its elements is, once. In a pass a gradient is marked either by ranges or as a
 * whole. Of a gradient that is larger than a bucket (bucket_bytes) a piece is reduced, and with in_backward updated, as soon
 * as its elements are marked; pieces are taken from the last elements on.
 * @param first the first element of the range, in the flattened gradient
 * @param count elements, 1 or more
 * Local, any thread, time by the number of ranges that do not touch. Errors: INVALID_ARGUMENT (index; a range outside the
 * gradient; overlapping gradients), INVALID_STATE (no open pass, elements that are marked already), and the first cause, as
 * ddp_model_mark_ready; then nothing is marked. A pass that ends with a
 * part of a gradient missing fails as one with parameters that are not marked, also with DDP_UNUSED_ALLOW, and names the
 * elements. Since 0.1.
 */
DDP_API ddp_status ddp_model_mark_range_ready(ddp_model *model, int32_t index, int64_t first, int64_t count, void *stream);

/**
 * The gradient of parameter `index` will not come in this pass on this rank; its bucket need not wait for it. What passes
 * have accumulated in it since the last reduction contributes, else zero. Needs DDP_UNUSED_ALLOW.
 * The mark brings no stream. Of a gradient on a GPU, what is on the stream of ddp_model_end_backward by then comes before
 * the result is written into it. A bucket of a gradient that was accumulated before starts in that order too.
 * Local, constant time, any thread. Errors: as ddp_model_mark_ready. Since 0.1.
 */
DDP_API ddp_status ddp_model_mark_unused(ddp_model *model, int32_t index);

/**
 * Close the pass: send what is left, wait for all ranks, and leave the reduced gradients where the gradients live.
 * The pass is over whatever the result.
 * Gradients on a GPU: the call waits until the other ranks have called it. It does not wait for the GPU, unless the group
 * was made with recoverable = 1. The reduced gradients are there in the order of `stream`. A pass may be captured into a
 * CUDA graph if all its streams are, on all ranks; include/GPU.md, "CUDA graphs", has what else may be captured.
 * Of the parameters of an optimizer that has `shard`, a rank's gradients are the mean in its own slice only, and values that
 * a program writes into them between this call and the step counts in that slice alone: a gradient that one rank clears is
 * not cleared on the others. Use ddp_model_scale_grad, on all ranks.
 * @param stream on which the gradients are used next; the reduction comes before what is enqueued there from now on. It
 *        comes after all uses of gradients that were not marked, or marked as unused
 * Collective in a REDUCE pass (blocks on CPU), local in the others. Errors: INVALID_STATE (no open pass; or, with
 * DDP_UNUSED_ERROR, parameters that some rank did not mark: the same text on every rank with their names, and the gradients
 * are undefined until the next zero_grad, but the group stays usable), MISMATCH (with the model option check_every, when
 * replicas differ; the gradients are reduced), and those of collectives. Since 0.1.
 */
DDP_API ddp_status ddp_model_end_backward(ddp_model *model, void *stream);

/**
 * Did any rank contribute to this parameter in the last REDUCE pass that ended well, or in the accumulation before it
 * (after a LOCAL pass: did this rank; after ddp_model_mark_reduced: yes)? 1 yes, 0 no (leave its optimizer state alone), -1
 * if the arguments are wrong or no pass has ended. Local. Since 0.1.
 */
DDP_API int32_t ddp_model_was_used(const ddp_model *model, int32_t index);

/**
 * Set all gradients to zero. What was accumulated is forgotten: a parameter counts as used in the next REDUCE pass only if
 * it is marked again.
 * Local, not in an open pass. Errors: INVALID_ARGUMENT, INVALID_STATE. Since 0.1.
 */
DDP_API ddp_status ddp_model_zero_grad(ddp_model *model, void *stream);

/**
 * The program has reduced all gradients of the model over the ranks itself, for example with MPI or ddp_group_all_reduce,
 * and not in a pass. They then count as the gradients of a REDUCE pass that ended well, in which every parameter was used:
 * they are good for one step of each optimizer. Call it on all ranks before each such step. The gradients must have the same
 * bits on all ranks, else the replicas drift apart (ddp_model_check_replicas finds it). What was accumulated is forgotten.
 * Local, constant time for each parameter, not in an open pass. Errors: INVALID_ARGUMENT, INVALID_STATE (not committed; a
 * pass is open; the step that an optimizer with in_backward made within the last pass was not ended by ddp_optimizer_step;
 * the gradients are sums that a step with divide_in_step will divide; or virtual ranks of a step are done and not reduced,
 * see ddp/virtual_ranks.h). Since 0.1.
 */
DDP_API ddp_status ddp_model_mark_reduced(ddp_model *model);

/**
 * Norm over all gradients as one vector, in F64: the same bits on every rank after a REDUCE pass.
 * @param p 1, 2 or INFINITY
 * @param stream of gradients on a GPU: the host waits for it, so it is not being captured
 * Local, collective if an optimizer with `shard` is attached; not in an open pass. Errors: INVALID_ARGUMENT, INVALID_STATE
 * (a pass is open; or the optimizer with `shard` whose slices the gradients are was destroyed). Since 0.1.
 */
DDP_API ddp_status ddp_model_get_grad_norm(ddp_model *model, double p, double *out_norm, void *stream);

/**
 * Multiply all gradients by `factor` (with the norm above: clipping). Local, not in an open pass.
 * Errors: INVALID_ARGUMENT, INVALID_STATE (a pass is open; or an optimizer with in_backward has made its step within the
 * last pass, so that the change would come too late: until ddp_optimizer_step). Since 0.1.
 */
DDP_API ddp_status ddp_model_scale_grad(ddp_model *model, double factor, void *stream);

/**
 * Scale all gradients down together so that their norm is at most `max_norm`, as torch.nn.utils.clip_grad_norm_: the factor
 * is max_norm / (norm + 1e-6), and 1 if that is more. A norm that is not finite makes them NaN or zero. For an optimizer of
 * your own; the built-in ones clip within their step (max_norm, clip_value).
 * @param max_norm above 0
 * @param p 1, 2 or INFINITY
 * @param out_norm the norm before; may be NULL
 * @param stream as for ddp_model_get_grad_norm
 * Local, collective if an optimizer with `shard` is attached; not in an open pass. Errors: INVALID_ARGUMENT, INVALID_STATE
 * (as ddp_model_scale_grad and ddp_model_get_grad_norm). Since 0.1.
 */
DDP_API ddp_status ddp_model_clip_grad_norm(ddp_model *model, double max_norm, double p, double *out_norm, void *stream);

/**
 * Limit every element of the gradients to a magnitude of `limit`; a NaN stays. Local, not in an open pass.
 * @param limit above 0
 * Errors: INVALID_ARGUMENT, INVALID_STATE (as ddp_model_scale_grad). Since 0.1.
 */
DDP_API ddp_status ddp_model_clip_grad_value(ddp_model *model, double limit, void *stream);

#ifdef __cplusplus
}
#endif
#endif
