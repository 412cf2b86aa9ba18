/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * An optimizer whose rule is the program's: libddp keeps its state, divides its work, clips its gradients and saves it like
 * a built-in one.
 */
#ifndef DDP_CUSTOM_H
#define DDP_CUSTOM_H

#include "ddp/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A rule of the program. Since 0.1. */
typedef struct ddp_custom_options {
  int64_t struct_size;   /**< set by init */
  double rate;           /**< learning rate (default 0) */
  double weight_decay;   /**< handed to the rule, which applies it (default 0) */
  int32_t whole_tensors; /**< 1: the rule gets each parameter as a whole, in one slice. With `shard` each parameter has one
                            rank that updates it, and on a GPU that is NOT_SUPPORTED. With `in_backward` a parameter is
                            updated when the last bucket with a piece of it is reduced; with `shard` too, its values reach
                            the other ranks at the end of the pass. Default 0: an element depends on nothing but its own
                            gradient and state, so slices may begin and end anywhere */
  int32_t reserved;      /**< 0 */
} ddp_custom_options;

/** Most state arrays of a rule. */
#define DDP_MAX_STATES 16

/**
 * A stretch of a parameter that a rule is to change. On the CPU `value` and `grad` are F32, for an F64 parameter F64: F16
 * and BF16 are widened before and rounded after, or `value` is the master copy. `grad` is divided by the loss scale and
 * clipped. On a GPU (`device` DDP_CUDA) they are the parameter's own memory, of its dtype, and the rule enqueues its work on
 * `stream`. Complex numbers come as their parts, each an element. Valid during the call. Since 0.1.
 */
typedef struct ddp_update_slice {
  int64_t struct_size;
  int32_t index;    /**< of the parameter */
  ddp_dtype dtype;  /**< of value and grad */
  void *value;      /**< count elements, to be changed */
  const void *grad; /**< count elements */
  void
      *state[DDP_MAX_STATES]; /**< state_count arrays of count elements, to be changed: F64 for an F64 parameter, else F32 */
  int32_t state_count;        /**< as many as state_names has */
  ddp_device_kind device;     /**< of value, grad and state */
  int32_t device_index;       /**< which GPU; 0 on the CPU */
  int32_t reserved;
  int64_t first;       /**< the first element's place in the flattened parameter */
  int64_t count;       /**< elements, 1 or more */
  int64_t step;        /**< which step of this parameter this is, from 1 */
  double rate;         /**< of this parameter: its rate_scale is in it */
  double weight_decay; /**< of this parameter */
  void *stream;        /**< a cudaStream_t; NULL on the CPU */
} ddp_update_slice;

/**
 * Changes one slice in place, the same on every rank. Each element of each used parameter comes in one slice of a step.
 * Called on the thread of ddp_optimizer_step. With `shard` or `in_backward` it is called on any thread that works on the
 * pass, one of the library's too; if the model has DDP_PROGRESS_CALLER, on threads of the program alone, inside a call of
 * theirs on the model's group (mark_ready, end_backward, step, another one that waits). Calls for different slices may come
 * at the same time and in any order. It calls no function of libddp on this model, and returns: no longjmp, and no end of a
 * thread that it did not make.
 * A value other than 0, or a C++ exception, fails the step with CALLBACK; the rule is not called again in that step. With
 * `undo` (default) parameters and state are then as they were before the step, on all ranks if the call was collective.
 */
typedef int32_t (*ddp_update_fn)(void *user_data, const ddp_update_slice *slice);

/** Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_custom_options_init(ddp_custom_options *options, int64_t struct_size);

/**
 * As ddp_optimizer_create_sgd, with a rule of the program. Everything in `options` works as for a built-in rule, and so do
 * loss scale, groups and checkpoints. On a GPU max_norm, clip_value, master_weights and a loss scale are refused
 * (NOT_SUPPORTED, when a step or pass begins).
 * @param rule NULL: all defaults; copied
 * @param options NULL: all defaults; copied. `undo` also holds for steps outside passes, which then keep values and state
 *        once more
 * @param state_names of the arrays that libddp keeps for each parameter, separated by commas, such as "exp_avg,exp_avg_sq";
 *        letters, digits and underlines, at most DDP_MAX_STATES names. They are zero at first, sharded with the parameters,
 *        and saved as "<parameter>.<name>".
 *        NULL: none
 * @param fn the rule
 * @param user_data handed to fn
 * @param release called once when the optimizer is destroyed (also if this call fails); NULL: nothing
 * Local. Errors: as ddp_optimizer_create_sgd. Since 0.1.
 */
DDP_API ddp_status ddp_optimizer_create_custom(ddp_model *model, const ddp_custom_options *rule,
                                               const ddp_optimizer_options *options, const char *state_names,
                                               ddp_update_fn fn, void *user_data, ddp_release_fn release,
                                               ddp_optimizer **out_optimizer);

#ifdef __cplusplus
}
#endif
#endif
