/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Models: the parameters and buffers that a program lends to libddp, and what all ranks agree on.
 *
 * States: building (after create) -> ready (after commit) <-> open (between begin_backward and end_backward).
 * A model can be used from one thread at a time; only the marks (_mark_ready, _mark_range_ready, _mark_unused) from several.
 */
#ifndef DDP_MODEL_H
#define DDP_MODEL_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a pass does with parameters that were not marked. Since 0.1. */
typedef enum ddp_unused DDP_INT32 {
  DDP_UNUSED_ERROR = 0, /**< ddp_model_end_backward fails on every rank and names them */
  DDP_UNUSED_ALLOW = 1  /**< unused here: contributes its accumulated gradient, or zero; unused everywhere: untouched */
} ddp_unused;

/** Which thread does the work of reducing. The bits are the same. Since 0.1. */
typedef enum ddp_progress DDP_INT32 {
  DDP_PROGRESS_AUTO = 0,   /**< a library thread where a core is free or the transport blocks, else the caller's own */
  DDP_PROGRESS_CALLER = 1, /**< the program's own, inside its calls on the group: mark_ready (a bounded share), end_backward,
                              step and others that wait. Hooks and rules of the program then run there too, never on a thread
                              of the library. Over sockets a library thread reduces as long as there is no such function;
                              with one end_backward and step do, so passes that are open together end in one order there */
  DDP_PROGRESS_THREAD = 2  /**< the group's lane thread */
} ddp_progress;

/** What the periodic check (`check_every`) does when replicas differ. Since 0.1. */
typedef enum ddp_drift DDP_INT32 {
  DDP_DRIFT_REPORT =
      0, /**< ddp_model_end_backward fails with MISMATCH on every rank and names the first tensor and the ranks */
  DDP_DRIFT_RESEND = 1 /**< the state that most ranks hold is sent to all: parameters, buffers, optimizers and averages; it
                          is logged. Without a majority: as REPORT */
} ddp_drift;

/** What DDP_AVERAGE divides the sum over the ranks by. Since 0.1. */
typedef enum ddp_divisor DDP_INT32 {
  DDP_DIVISOR_WORLD = 0, /**< the number of ranks in the group, or of virtual ranks, even if some did not contribute */
  DDP_DIVISOR_WEIGHTS =
      1 /**< the sum of the weights of those that contributed (ddp_model_set_weight); without weights their number */
} ddp_divisor;

/** Options of a model. Fill with ddp_model_options_init(), then change what you need. All ranks must agree. Since 0.1. */
typedef struct ddp_model_options {
  int64_t struct_size;        /**< set by init */
  int64_t first_bucket_bytes; /**< size at which the first bucket of a pass closes (default 1 MiB) */
  int64_t bucket_bytes;       /**< size at which every other bucket closes; 0 (default): in host memory a 16th of all
                                 gradients, 4 to 25 MiB, on a GPU 64 MiB. A larger gradient (by default than 25, 64 MiB) is
                                 split into even pieces of at least 64 KiB, buckets of their own, the last elements first; not
                                 behind a hook (25 MiB), which gets whole gradients. Bits do not depend on it */
  ddp_reduce reduce;          /**< DDP_AVERAGE (default) or DDP_SUM over the ranks */
  ddp_unused unused;          /**< DDP_UNUSED_ERROR (default) or DDP_UNUSED_ALLOW */
  ddp_progress progress;      /**< DDP_PROGRESS_AUTO (default); ranks may differ */
  ddp_drift drift;            /**< DDP_DRIFT_REPORT (default) or DDP_DRIFT_RESEND */
  int64_t check_every;   /**< k: every k-th REDUCE pass ends with a comparison of the parameters of all ranks (one pass over
                            memory and one small message); 0 (default): only ddp_model_check_replicas compares. With an
                            optimizer that   has shard and in_backward it finds no drift: such a pass gives each owner's values
                            to all ranks   before the comparison, also values that have drifted on the owner. With shard alone
                            it   finds what   has drifted since the last ddp_optimizer_step */
  ddp_divisor divisor;   /**< DDP_DIVISOR_WORLD (default) or DDP_DIVISOR_WEIGHTS */
  int32_t uneven_inputs; /**< 1: ranks may run out of data and call ddp_model_join; costs one small message a pass, which
                              nobody waits for, and excludes optimizers with shard; 0 (default) */
  ddp_dtype wire; /**< DDP_F16 or DDP_BF16: F32 and F64 gradients are sent with 16 bits. Each rank's gradient is divided by
                     the number of ranks (DDP_AVERAGE) in its own type and rounded once; terms are added in the tree over the
                     ranks, each sum rounded to 16 bits. The same bits on every rank, transport and bucket size, also where
                     nothing travels because ranks reduce in place. What does not fit into F16 becomes infinite on all ranks,
                     NaN stays NaN; BF16 has the range of F32 and 8 bits of precision. Gradients of 16 bits, and groups of
                     one rank, are as they are. DDP_F32: gradients of 16 bits are added between GPUs as F32 and rounded once,
                     as they always are in host memory; twice the bytes. 0 (default): no other type */
  int32_t own_values; /**< 1: libddp keeps the values of parameters. ddp_model_commit copies them into memory of its own and
                         uses the lent memory no more, so that it can be freed; ddp_model_get_value tells the new addresses.
                         An optimizer with shard then gives values in place: on a GPU without a copy of them, on one host
                         through shared memory. 0 (default): values stay where they are */
} ddp_model_options;

/** Numbers of a model's passes. Since 0.1. */
typedef struct ddp_model_stats {
  int64_t struct_size;    /**< set by the caller */
  int64_t parameters;     /**< registered parameters */
  int64_t elements;       /**< elements in all parameters */
  int64_t buckets;        /**< buckets of the plan */
  int64_t passes;         /**< finished passes that reduced */
  int64_t gradient_bytes; /**< bytes of gradient reduced in one pass */
  int64_t backward_ns;    /**< last pass: from begin_backward to the return of end_backward */
  int64_t comm_ns;        /**< last pass: from the start of the first bucket to the end of the last */
  int64_t exposed_ns;     /**< last pass: part of it that the caller spent inside libddp (not hidden behind computation) */
  int64_t total_backward_ns; /**< sums over all passes */
  int64_t total_comm_ns;
  int64_t total_exposed_ns;
  int64_t checks;     /**< comparisons of the replicas by check_every */
  int64_t repairs;    /**< of them, those after which the majority's state was sent again */
  int64_t sent_bytes; /**< last pass, and the step after it that gives values to the other ranks (shard): all bytes that this
                         rank sent to other hosts, with headers and Gloo's frames but without TCP's and heartbeats, or copied
                         to where the other ranks of its host read them; what they read where it lies is not counted */
  int64_t total_sent_bytes; /**< sum over all passes and steps */
} ddp_model_stats;

/** Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_model_options_init(ddp_model_options *options, int64_t struct_size);

/**
 * Make an empty model. Local.
 * @param group the ranks that train it; kept alive by the model
 * @param options NULL: all defaults; copied
 * @param out_model destroy with ddp_model_destroy
 * Errors: INVALID_ARGUMENT, INVALID_STATE (group destroyed), OUT_OF_MEMORY. Since 0.1.
 */
DDP_API ddp_status ddp_model_create(ddp_group *group, const ddp_model_options *options, ddp_model **out_model);

/**
 * Release the model. After it returns libddp does not use the lent tensors any more; gradients that libddp owned are freed.
 * Local. In an open pass the group is aborted, because the other ranks wait for this one. NULL and a destroyed model are
 * ignored. Optimizers and averages made from the model stay valid objects; their calls then return INVALID_STATE. Since 0.1.
 */
DDP_API void ddp_model_destroy(ddp_model *model);

/**
 * Lend a parameter. Registration order should be the order of the forward computation: gradients then arrive in reverse, as
 * the buckets expect them.
 * @param model in the building state
 * @param name unique, 1 to 1,024 bytes of UTF-8; used in errors and in checkpoints, unchanged
 * @param value the parameter: F32, F64, F16, BF16, C64 or C128, in host memory or on this rank's GPU; used until the model
 *        is destroyed (with own_values: until ddp_model_commit, on a GPU in the order of its stream)
 * @param grad its gradient, of the same shape and dtype, in the same place; used until the model is destroyed. NULL: libddp
 *        owns the gradient, inside the bucket, where it is reduced without a copy; ask ddp_model_get_grad() after commit
 * @param out_index its number, counted from 0; may be NULL
 * Local. Errors: INVALID_ARGUMENT (NULL, name taken, memory overlaps another tensor, memory of a GPU given as the host's),
 * INVALID_STATE (committed), NOT_SUPPORTED (dtype; a GPU without module or driver). Since 0.1.
 */
DDP_API ddp_status ddp_model_add_parameter(ddp_model *model, const char *name, const ddp_tensor *value,
                                           const ddp_tensor *grad, int32_t *out_index);

/**
 * ddp_model_add_parameter for the common case: a flat F32 array with its gradient.
 * @param name as for ddp_model_add_parameter
 * @param data the parameter: `count` elements in host memory
 * @param grad its gradient, as many elements; NULL: libddp owns it
 * @param count elements, 0 or more
 * @param out_index its number, counted from 0; may be NULL
 * Local. Errors: as ddp_model_add_parameter. Since 0.1.
 */
DDP_API ddp_status ddp_model_add_array(ddp_model *model, const char *name, float *data, float *grad, int64_t count,
                                       int32_t *out_index);

/**
 * Lend a parameter whose gradient comes later, for frameworks that allocate gradients in each pass: ddp_model_set_grad gives
 * it, and may do so before ddp_model_commit. Until then libddp writes nothing to the parameter's gradient. Refused with
 * INVALID_STATE and the parameter's name, while it has no gradient: its marks; a pass that ends without its mark, also with
 * DDP_UNUSED_ALLOW, because the result has no place (on all ranks); ddp_model_skip_backward; ddp_optimizer_step; and what
 * reads or changes gradients, but ddp_model_zero_grad leaves it out. ddp_model_abandon_backward and ddp_model_join need
 * none: they may take as much memory as the gradient has.
 * @param name as for ddp_model_add_parameter
 * @param value as for ddp_model_add_parameter, in host memory
 * @param out_index its number, counted from 0; may be NULL
 * Local. Errors: as ddp_model_add_parameter; NOT_SUPPORTED (a value on a GPU), OUT_OF_MEMORY (addresses for as many bytes,
 * which take no memory). Since 0.1.
 */
DDP_API ddp_status ddp_model_add_parameter_without_grad(ddp_model *model, const char *name, const ddp_tensor *value,
                                                        int32_t *out_index);

/**
 * Lend a tensor that is not trained but belongs to the model (running statistics, tables): any dtype. It gets rank 0's
 * values at commit and is part of checkpoints. Arguments and errors as in ddp_model_add_parameter; buffers and parameters
 * share one space of names. Local. Since 0.1.
 */
DDP_API ddp_status ddp_model_add_buffer(ddp_model *model, const char *name, const ddp_tensor *value, int32_t *out_index);

/**
 * Agree with all ranks on the model: names, shapes, dtypes, order and options are compared in one exchange; rank 0's values
 * go to every rank; buckets are planned; gradients that libddp owns are allocated and zeroed.
 * Collective, blocks. Errors: MISMATCH (the same text on every rank: the first difference and which rank has which; the
 * model stays in the building state), INVALID_STATE (already committed), OUT_OF_MEMORY, and those of collectives. Since 0.1.
 */
DDP_API ddp_status ddp_model_commit(ddp_model *model, void *stream);

/** Number of parameters registered so far; -1 if `model` is not a model. Local. Since 0.1. */
DDP_API int32_t ddp_model_get_parameter_count(const ddp_model *model);

/**
 * Where the gradient of a parameter lives. The address never changes until ddp_model_set_grad or ddp_model_destroy.
 * Local. Errors: INVALID_ARGUMENT, INVALID_STATE (libddp owns it and the model is not committed; or the parameter was added
 * without a gradient and has none). Since 0.1.
 */
DDP_API ddp_status ddp_model_get_grad(const ddp_model *model, int32_t index, ddp_tensor *out_grad);

/**
 * Where the value of a parameter lives: the lent tensor, or with own_values from ddp_model_commit on memory of libddp, which
 * is freed with the model. The address never changes after ddp_model_commit.
 * Local. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_model_get_value(const ddp_model *model, int32_t index, ddp_tensor *out_value);

/**
 * Give this pass's memory of a gradient, for frameworks whose gradients move. Call before ddp_model_mark_ready of that
 * parameter. For a parameter with a gradient of the program, or added by ddp_model_add_parameter_without_grad.
 * @param grad as many elements as the parameter has, of its dtype and in the same place; its shape does not matter. Its
 *        memory is used until the next set_grad. It may be memory that another gradient had in an earlier pass; two
 *        gradients of one pass must not overlap (ddp_model_mark_ready). NULL, for a parameter that was added without a
 *        gradient: it has none any more, and libddp does not use its memory again
 * Local. Errors: INVALID_ARGUMENT (also: another dtype, number of elements or place; it overlaps a parameter, a buffer, or a
 * gradient that libddp owns), INVALID_STATE (already marked in this pass, libddp owns the gradient, or it is in
 * ddp_group_alloc memory and is reduced there). Since 0.1.
 */
DDP_API ddp_status ddp_model_set_grad(ddp_model *model, int32_t index, const ddp_tensor *grad);

/**
 * Copy all buffers from one rank to the others. No other call does this: call it before evaluation, before saving, or before
 * forward if the model needs it.
 * @param root the rank whose values win
 * Collective, blocks. Errors: as for collectives, INVALID_STATE (not committed, or a pass is open). Since 0.1.
 */
DDP_API ddp_status ddp_model_sync_buffers(ddp_model *model, int32_t root, void *stream);

/**
 * Are parameters and buffers bitwise equal on all ranks? Compares content hashes. The option check_every does the same for
 * parameters after every k-th pass.
 * Collective, blocks. Errors: MISMATCH names the first tensor that differs, parameters before buffers, and the ranks in the
 * minority. If only buffers differ, as the running means of batch normalisation do, the text advises ddp_model_sync_buffers.
 * Since 0.1.
 */
DDP_API ddp_status ddp_model_check_replicas(ddp_model *model, void *stream);

/**
 * One 64-bit hash over the names and contents of all parameters, on this rank (XXH3). Equal on all ranks if they hold the
 * same model.
 * Local. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_model_get_hash(const ddp_model *model, int64_t *out_hash);

/**
 * Numbers of the last and of all passes. `out_stats->struct_size` must be set to sizeof(ddp_model_stats) by the caller.
 * Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not committed). Since 0.1.
 */
DDP_API ddp_status ddp_model_get_stats(const ddp_model *model, ddp_model_stats *out_stats);

/**
 * The bucket plan as text: one line per bucket with its size, way (in place, staged) and parameters.
 * @param buffer receives at most `capacity` bytes, terminated; NULL is allowed when capacity is 0
 * @param out_needed bytes the whole text needs with its terminator; may be NULL
 * Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not committed). Since 0.1.
 */
DDP_API ddp_status ddp_model_describe_plan(const ddp_model *model, char *buffer, int64_t capacity, int64_t *out_needed);

#ifdef __cplusplus
}
#endif
#endif
