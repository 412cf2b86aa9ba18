/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Hooks replace the plain reduction of a bucket. PowerSGD is built in; a program may set its own, as a callback or pulled on
 * its own thread.
 *
 * A hook of your own gets a flat copy of a bucket's gradients, as they are on this rank (nothing is divided), and leaves in
 * it what the gradients become, the same on every rank. It runs bucket after bucket, in the same order on all ranks, and may
 * use the collectives of the group that ddp_bucket_get_group gives, as straight-line code. It sees no bucket in which a
 * gradient is missing, and its result for a gradient that no rank used is dropped. If it fails on one rank, or the ranks
 * make different calls, the pass fails on all ranks with that rank's text; the gradients are undefined until the next
 * zero_grad, but the group stays whole.
 */
#ifndef DDP_HOOK_H
#define DDP_HOOK_H

#include "ddp/optimizer.h"
#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_bucket ddp_bucket; /**< a bucket inside a hook */

/**
 * Reduces one bucket. It runs on a library thread (the lane), or with DDP_PROGRESS_CALLER inside ddp_model_end_backward on
 * the thread of that call, whatever the transport. Of the model and its own group it may call the getters alone;
 * ddp_bucket_get_group gives what collectives take there.
 * It returns: no longjmp, and no end of its thread.
 * @param bucket usable until the hook returns
 * Returns 0, or any other number if it failed (set the text with ddp_bucket_set_error). A C++ exception that leaves it is a
 * failure with its text. Since 0.1.
 */
typedef int32_t (*ddp_hook_fn)(void *user_data, ddp_bucket *bucket);

/**
 * Give the model a hook, before ddp_model_commit; all ranks give the same kind. NULL: the plain reduction, which is the
 * default.
 * @param fn ddp_hook_powersgd or your own
 * @param release called once when the hook is not used any more (also if this call fails); NULL: nothing
 * Local. Errors: INVALID_ARGUMENT, INVALID_STATE (committed, or the model has the option `wire`, which is for the plain
 * reduction). Since 0.1.
 */
DDP_API ddp_status ddp_model_set_hook(ddp_model *model, ddp_hook_fn fn, void *user_data, ddp_release_fn release);

/** Options of PowerSGD. Fill with ddp_powersgd_options_init(), then change what you need. All ranks must agree.
 * Since 0.1. */
typedef struct ddp_powersgd_options {
  int64_t struct_size;         /**< set by init */
  int64_t seed;                /**< of the first vectors (default 0) */
  int64_t start_pass;          /**< REDUCE passes that are reduced plainly first (default 1,000) */
  double min_compression_rate; /**< compress an n x m gradient if (n + m) rank rate < n m (default 2; 1 or more) */
  int32_t rank;                /**< vectors that stand for a matrix (default 1; 1 to 1,024) */
  int32_t warm_start;          /**< 1 (default): begin a pass with the vectors of the one before */
  int32_t error_feedback;      /**< 1 (default): what was lost is added to the next pass's gradient */
} ddp_powersgd_options;

/** Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_powersgd_options_init(ddp_powersgd_options *options, int64_t struct_size);

/**
 * Built-in hook: PowerSGD (Vogels, Karimireddy, Jaggi, 2019). Instead of an n x m gradient (n is its first dimension, m the
 * product of the others) `rank` vectors of n and of m elements are sent; F32 and F64 gradients that gain too little by that,
 * or have one dimension, are sent unchanged. The result has the same bits on all ranks; it approximates the mean, exactly
 * for matrices of that rank. The error of a rank's gradient is kept and added to its next one. This memory, twice as large
 * as the gradients, and the vectors belong to the model; a pass that fails leaves them as they were. They are not part of
 * checkpoints and begin empty after a restart or a load. A gradient that is not finite on some rank becomes NaN on all.
 * @param user_data given to ddp_model_set_hook: const ddp_powersgd_options *, copied; NULL: the defaults. The same where a
 *        hook of your own calls it (collective); the first call's options stay.
 * Local as a name. Errors (called on a bucket): INVALID_ARGUMENT, OUT_OF_MEMORY, and as ddp_group_all_reduce. Since 0.1.
 */
DDP_API int32_t ddp_hook_powersgd(void *user_data, ddp_bucket *bucket);

/**
 * The program itself reduces the buckets, on its own thread: for languages that cannot be called from a foreign thread.
 * Before ddp_model_commit. Then, in every REDUCE pass, between the marks and after them:
 *   while (ddp_model_next_bucket(model, 1, &bucket) == DDP_OK && bucket != NULL) { ...; ddp_model_finish_bucket(model, 0,
 *   NULL); }
 * Local. Errors: INVALID_ARGUMENT, INVALID_STATE (committed). Since 0.1.
 */
DDP_API ddp_status ddp_model_set_pulled_hook(ddp_model *model);

/**
 * The next bucket of the open pass. Buckets come in the same order on all ranks.
 * @param rest 0: only if all its gradients are marked on this rank; 1: nothing more will be marked on this rank
 * @param out_bucket usable until ddp_model_finish_bucket; NULL: none now (rest 0), or none any more (rest 1, or the pass has
 *        failed)
 * Collective when it gives a bucket: waits until every rank has come to it. Do not call it while other threads mark
 * gradients with rest 1. Errors: INVALID_ARGUMENT, INVALID_STATE (no open pass, the last bucket was not finished, not a
 * pulled hook), and those of collectives. Since 0.1.
 */
DDP_API ddp_status ddp_model_next_bucket(ddp_model *model, int32_t rest, ddp_bucket **out_bucket);

/**
 * Finish the bucket that ddp_model_next_bucket returned: its contents become the gradients if every rank passes 0.
 * @param status 0, or any other number if it failed here
 * @param text what went wrong, for all ranks; NULL: the text of ddp_bucket_set_error
 * Collective. Errors: CALLBACK (it failed on some rank; the pass is void, end it), MISMATCH (the ranks made different
 * calls), INVALID_STATE (no bucket was given), and those of collectives. Since 0.1.
 */
DDP_API ddp_status ddp_model_finish_bucket(ddp_model *model, int32_t status, const char *text);

/** Number of the bucket in plan order, from 0; -1 if `bucket` is not in a hook now. Local. Since 0.1. */
DDP_API int32_t ddp_bucket_get_index(const ddp_bucket *bucket);

/** Is it the last bucket of the pass? 1 yes, 0 no; -1 if `bucket` is not in a hook now. Local. Since 0.1. */
DDP_API int32_t ddp_bucket_is_last(const ddp_bucket *bucket);

/**
 * The bucket's gradients as one flat array, in memory that the group's collectives reach without a copy. Gradients start on
 * 64-byte boundaries, with zeros between them; after ddp_model_set_buckets they follow each other with no gap.
 * Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not in a hook now). Since 0.1.
 */
DDP_API ddp_status ddp_bucket_get_contents(const ddp_bucket *bucket, ddp_tensor *out_contents);

/** How many parameters have their gradient in the bucket; -1 if `bucket` is not in a hook now. Local. Since 0.1. */
DDP_API int32_t ddp_bucket_get_parameter_count(const ddp_bucket *bucket);

/**
 * One gradient of the bucket.
 * @param position 0 to the number of parameters in the bucket
 * @param out_index the parameter's index in the model; may be NULL
 * @param out_grad its part of the contents, with the shape of the parameter; may be NULL
 * Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not in a hook now). Since 0.1.
 */
DDP_API ddp_status ddp_bucket_get_parameter(const ddp_bucket *bucket, int32_t position, int32_t *out_index,
                                            ddp_tensor *out_grad);

/**
 * Did any rank contribute to the gradient at `position` of the bucket? 1 yes; 0 no: the hook's result is dropped; -1
 * if the arguments are wrong. Local. Since 0.1.
 */
DDP_API int32_t ddp_bucket_is_used(const ddp_bucket *bucket, int32_t position);

/**
 * The model's group as a hook may use it. Usable until the hook returns; the library's, not to be destroyed. It takes
 * ddp_group_all_reduce, ddp_group_all_gather, ddp_group_reduce_scatter and ddp_group_broadcast, on the contents or on host
 * memory of your own (`stream` is not looked at), and ddp_group_get_rank and ddp_group_get_size. Other functions refuse it
 * with INVALID_ARGUMENT. Its collectives also answer CALLBACK or MISMATCH: the hook failed on another rank, or did something
 * else there. Return at once then.
 * @param bucket in a hook now
 * Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not in a hook now). Since 0.1.
 */
DDP_API ddp_status ddp_bucket_get_group(ddp_bucket *bucket, ddp_group **out_group);

/**
 * Set the error text of a bucket, before the hook returns a number other than 0: every rank gets the text.
 * @param text copied; at most 479 bytes are sent
 * Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not in a hook now). Since 0.1.
 */
DDP_API ddp_status ddp_bucket_set_error(ddp_bucket *bucket, const char *text);

#ifdef __cplusplus
}
#endif
#endif
