/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Optimizers over the parameters of a model: one pass over memory, the same bits on every rank.
 * Formulas are those that PyTorch documents for torch.optim.SGD, Adam and AdamW. Arithmetic is in the parameter's
 * precision (F32 for F16 and BF16, rounded once); step-dependent factors are computed in F64.
 */
#ifndef DDP_OPTIMIZER_H
#define DDP_OPTIMIZER_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a step does about gradients with infinite or NaN elements; every rank does the same. Since 0.1. */
typedef enum ddp_nonfinite DDP_INT32 {
  DDP_NONFINITE_KEEP = 0, /**< nothing: they reach the parameters */
  DDP_NONFINITE_SKIP = 1, /**< leave the step out and count it (ddp_optimizer_get_skipped_count) */
  DDP_NONFINITE_FAIL = 2  /**< INVALID_STATE with the parameter's name; nothing changes */
} ddp_nonfinite;

/**
 * Common options of all rules: where a rule runs, how it takes gradients, and its state. Since 0.1.
 */
typedef struct ddp_optimizer_options {
  int64_t struct_size; /**< set by init */
  int32_t shard; /**< 1: each rank keeps the state of its slice of the parameters alone, updates that slice and gives the
                    values to the others; memory of the state divided by the ranks. After a REDUCE pass a rank's gradients
                    hold the mean in its own slice only, and ddp_optimizer_step, ddp_model_get_grad_norm and saving are
                    collective. All ranks the same. Default 0 */
  int32_t in_backward; /**< 1: the update of a bucket follows its reduction at once, within the pass; ddp_optimizer_step then
                          ends the step and is called after every REDUCE pass. Mark a parameter only when its value is no
                          longer read in this pass. With max_norm, nonfinite or a dynamic loss scale the update waits for
                          ddp_optimizer_step after all. Default 0 */
  int32_t undo; /**< with in_backward, and with a rule of the program: 1 (default) keeps what a pass or step changes (values
                   and state once more), and takes it back when the pass or the rule fails; 0 saves that memory, and
                   after such a failure nothing goes on (INVALID_STATE) until parameters and optimizer are loaded again.
                   On GPUs, with in_backward, each rank keeps its slice alone, and the ranks take a void pass back together;
                   when the group breaks in a pass that had begun to update, it is as with 0. Ranks keep all that they change
                   with a rule of the program, with uneven_inputs, and from a LOCAL pass on */
  int32_t master_weights;  /**< 1: F16 and BF16 parameters are rounded copies of F32 master weights, which belong to the
                              state. Default 0 */
  ddp_nonfinite nonfinite; /**< gradients of the optimizer's parameters with infinite or NaN elements: DDP_NONFINITE_KEEP
                              (default), SKIP or FAIL */
  int32_t divide_in_step;  /**< 1: a pass may leave sums over the ranks in gradients on a GPU, and ddp_optimizer_step divides
                              what it reads and writes the mean back: the same bits, and one pass over gradient memory less.
                              From the pass to the step the program neither uses nor changes gradients; libddp's functions
                              that would (norm, scale, clip) return INVALID_STATE. Without effect where sums cost nothing: in
                              host memory, with in_backward, max_norm, nonfinite, a dynamic loss scale, or a frozen parameter.
                              All ranks the same. Default 0 */
  double max_norm;   /**< above 0: scale the gradients down so that their 2-norm over the optimizer's parameters is at most
                        this, as torch.nn.utils.clip_grad_norm_. The gradients in memory stay as they are. With shard, change
                        them after the pass only with ddp_model_scale_grad. Default 0: no clipping */
  double clip_value; /**< above 0: limit every element to this magnitude, after max_norm. Default 0: no clipping */
  const int32_t *parameters; /**< `parameter_count` different indices: the parameters that the optimizer changes; copied.
                                NULL (default): all that have no optimizer, also those that are registered later. All ranks
                                the same */
  int64_t parameter_count;   /**< of `parameters`, 1 or more; 0 (default): NULL */
  int32_t late_values; /**< with shard, not with in_backward. 1: ddp_optimizer_step returns when the own slice is updated,
                          and the values of the other ranks come while the next forward computes. Wait for a parameter before
                          it is used (ddp_model_wait_value). All ranks the same. Default 0 */
  int32_t reserved;    /**< 0 */
} ddp_optimizer_options;

/** The rule of stochastic gradient descent. Since 0.1. */
typedef struct ddp_sgd_options {
  int64_t struct_size; /**< set by init */
  double rate;         /**< learning rate (default 0.01) */
  double momentum;     /**< default 0: no momentum buffer is kept */
  double dampening;    /**< default 0 */
  double weight_decay; /**< default 0; added to the gradient */
  int32_t nesterov;    /**< 0 (default) or 1; needs momentum above 0 and dampening 0 */
  int32_t reserved;    /**< 0 */
} ddp_sgd_options;

/** The rule of Adam and AdamW. Since 0.1. */
typedef struct ddp_adam_options {
  int64_t struct_size; /**< set by init */
  double rate;         /**< learning rate (default 0.001) */
  double beta1;        /**< default 0.9 */
  double beta2;        /**< default 0.999 */
  double epsilon; /**< default 1e-8. Not 0, nor below what F32 can hold: an element whose gradients were all 0 would become 0
                     / 0 */
  double weight_decay; /**< default 0.01 */
  int32_t decoupled;   /**< 1 (default): AdamW; 0: Adam, the decay is added to the gradient */
  int32_t reserved;    /**< 0 */
} ddp_adam_options;

/**
 * Options of the loss scale, a factor on the loss that keeps small F16 gradients from vanishing. The
 * optimizer divides the gradients by it. Dynamic (interval above 0): a step whose gradients are not finite is left out and
 * the scale multiplied by `backoff`; after `interval` good steps in a row it is multiplied by `growth`. Since 0.1.
 */
typedef struct ddp_loss_scale_options {
  int64_t struct_size; /**< set by init */
  double initial;      /**< default 65536 */
  double growth;       /**< default 2 */
  double backoff;      /**< default 0.5 */
  double minimum;      /**< default 1 */
  double maximum;      /**< default 16777216 */
  int64_t interval;    /**< default 2000; 0: the scale stays at `initial` */
} ddp_loss_scale_options;

/** Called exactly once, when libddp needs a callback's user data no more; may be NULL. A C++ exception that leaves it is
 * logged. */
typedef void (*ddp_release_fn)(void *user_data);

/** Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_optimizer_options_init(ddp_optimizer_options *options, int64_t struct_size);

/** Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_sgd_options_init(ddp_sgd_options *options, int64_t struct_size);

/** Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_adam_options_init(ddp_adam_options *options, int64_t struct_size);

/**
 * Make an optimizer for the parameters in `options`, by default for all that have none. A model may have several, such as
 * one rule for matrices and another one for the rest; a parameter has one optimizer. ddp_optimizer_step of each is called
 * after each pass. May come before or after ddp_model_commit and ddp_state_load_file; the result is the same. One exception:
 * a bucket has the parameters of one optimizer with shard, in_backward or divide_in_step, or of none, and commit cuts the
 * buckets. So where optimizers with one of these options do not have all parameters together in one, all of them are made
 * before ddp_model_commit; on a rank that joins others too.
 * @param rule NULL: all defaults; copied
 * @param options NULL: all defaults; copied
 * @param out_optimizer destroy with ddp_optimizer_destroy
 * Local. Errors: INVALID_ARGUMENT (a value out of its range; an index that is no parameter's, or twice), INVALID_STATE (a
 * parameter has another optimizer: the text names the parameter and both optimizers; or the exception above),
 * NOT_SUPPORTED (shard on a model with uneven_inputs), MISMATCH (on a rank that has joined others: not what they have),
 * OUT_OF_MEMORY. ddp_model_commit: MISMATCH if the ranks have given other parameters, or `shard` for others. Since 0.1.
 */
DDP_API ddp_status ddp_optimizer_create_sgd(ddp_model *model, const ddp_sgd_options *rule,
                                            const ddp_optimizer_options *options, ddp_optimizer **out_optimizer);

/** As ddp_optimizer_create_sgd, for Adam and AdamW. Since 0.1. */
DDP_API ddp_status ddp_optimizer_create_adam(ddp_model *model, const ddp_adam_options *rule,
                                             const ddp_optimizer_options *options, ddp_optimizer **out_optimizer);

/** Release an optimizer; its parameters are free for another one. Local. NULL and an already destroyed optimizer are
 * ignored. Since 0.1. */
DDP_API void ddp_optimizer_destroy(ddp_optimizer *optimizer);

/** Set the learning rate for the steps that follow; schedules are the caller's. All ranks must set the same. Once a step was
 * captured into a CUDA graph: also for launches that follow; the call then waits until the GPU is idle, as do
 * ddp_optimizer_set_parameter_options, ddp_optimizer_set_loss_scale and a load.
 * Local. Errors: INVALID_ARGUMENT (negative or not finite), INVALID_STATE (of an optimizer with in_backward: within a pass,
 * or behind a pass that has made the step, until ddp_optimizer_step). Since 0.1. */
DDP_API ddp_status ddp_optimizer_set_rate(ddp_optimizer *optimizer, double rate);

/** The learning rate in use (after a load: the saved one). Local. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_optimizer_get_rate(const ddp_optimizer *optimizer, double *out_rate);

/**
 * Steps taken so far (after a load: the saved number). A step that a pass makes (in_backward) counts when
 * the pass has ended. If a GPU decides about steps (ddp_optimizer_step), this call, ddp_optimizer_get_loss_scale,
 * ddp_optimizer_get_skipped_count, ddp_optimizer_get_grad_norm and saving wait for the last step; once a step was captured
 * into a CUDA graph they wait until the GPU is idle, so they cannot be called while a stream is captured.
 * Local. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_optimizer_get_step_count(const ddp_optimizer *optimizer, int64_t *out_count);

/** Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_loss_scale_options_init(ddp_loss_scale_options *options, int64_t struct_size);

/**
 * Use a loss scale from the next step on. It is that of all optimizers of the model, because there is one loss: a call with
 * any of them sets it for all, and with a dynamic one a gradient that is not finite, of whichever optimizer, leaves out the
 * steps of all. It is saved with the optimizers. All ranks must set the same.
 * @param options NULL: dynamic, with the defaults
 * Local. Errors: INVALID_ARGUMENT, INVALID_STATE (as ddp_optimizer_set_rate). Since 0.1.
 */
DDP_API ddp_status ddp_optimizer_set_loss_scale(ddp_optimizer *optimizer, const ddp_loss_scale_options *options);

/** What to multiply the next loss with; 1 without a loss scale. Local. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_optimizer_get_loss_scale(const ddp_optimizer *optimizer, double *out_scale);

/** Steps left out because of gradients that were not finite. Local. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_optimizer_get_skipped_count(const ddp_optimizer *optimizer, int64_t *out_count);

/**
 * 2-norm of the gradients at the last step, before clipping and without the loss scale; -1 unless max_norm, nonfinite or a
 * dynamic loss scale made the step look at it. Waits for the step's stream if the norm was taken on a GPU. Local. Errors:
 * INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_optimizer_get_grad_norm(const ddp_optimizer *optimizer, double *out_norm);

/**
 * Give one parameter of the optimizer its own weight decay and a factor on the learning rate (biases and norms without
 * decay, layer-wise rates). Default: the optimizer's decay, and 1. All ranks must set the same.
 * @param weight_decay 0 or more
 * @param rate_scale 0 or more; 0 freezes the parameter: it keeps its value, and also its moments and step count, as if no
 *        rank had used it
 * Local. Errors: INVALID_ARGUMENT, INVALID_STATE (as ddp_optimizer_set_rate). Since 0.1.
 */
DDP_API ddp_status ddp_optimizer_set_parameter_options(ddp_optimizer *optimizer, int32_t index, double weight_decay,
                                                       double rate_scale);

/**
 * Update every parameter of the optimizer that was used in the last REDUCE pass. Parameters that no rank used keep their
 * value and their optimizer state. The gradients of a pass are good for one step of each optimizer. Gradients for a step of
 * this rank alone come from a DDP_PASS_LOCAL pass; gradients that the program has reduced itself are announced by
 * ddp_model_mark_reduced. In a group of one the first step needs no pass. (Launches of a pass that was captured into a CUDA
 * graph are not visible to libddp, so from then on every step is made.) Parameters on a GPU change in the order of `stream`.
 * The first step allocates and may wait for the GPU; later ones wait for the stream only where the host has to decide: with
 * nonfinite FAIL; and with max_norm, nonfinite SKIP or a dynamic loss scale if some parameters are in host memory or the
 * rule is the program's (max_norm alone: also with `shard`). Otherwise the GPU decides and counts.
 *
 * A step may be captured into a CUDA graph, together with its pass or alone, if all parameters are on the GPU, the rule is
 * SGD or Adam, in_backward is 0 and nonfinite is not FAIL (or the loss scale is dynamic, and the model has no other
 * optimizer). Make one step with the same
 * options before. Each launch makes a step with the learning rate, groups and counts that are current then.
 * include/GPU.md, "CUDA graphs", lists when a graph may be launched.
 * @param stream that of ddp_model_end_backward, or one that is ordered after it
 * Local; collective with the option shard, and with a dynamic loss scale if another optimizer of the model has that option.
 * Errors: INVALID_STATE (not committed, a pass is open, the stream is captured and
 * the step is not one of these;
 * with several ranks, gradients that no pass has made; gradients that this optimizer has stepped with already, that were
 * accumulated and not reduced, or that a failed pass left; gradients of which each rank has its slice, because of an
 * optimizer with shard that had the parameter in the last pass; with a dynamic loss scale, another optimizer of the model
 * that has left out a step; averages in the place of the parameters (ddp_ema_swap); a failed pass or load that changed a
 * part of the parameters; or gradients that are not finite with DDP_NONFINITE_FAIL), CALLBACK, OUT_OF_MEMORY (first step),
 * and the first cause if the group is broken. Since 0.1.
 */
DDP_API ddp_status ddp_optimizer_step(ddp_optimizer *optimizer, void *stream);

#ifdef __cplusplus
}
#endif
#endif
