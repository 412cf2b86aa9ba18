/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Batch normalisation over the samples of all ranks: the same numbers as one rank with the whole batch. Experimental.
 *
 * Tensors have the shape [N, C] or [N, C, ...]: samples, channels, and any further dimensions. Data with the channel last is
 * [rows, C].
 * Ranks may have different N, also 0; C is the same on all. Statistics are kept in F64 and combined in rank order, one rank
 * after the other: the only sum over ranks that is not formed in the tree of ddp_group_all_reduce.
 */
#ifndef DDP_BATCH_NORM_H
#define DDP_BATCH_NORM_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Options of a batch normalisation. All ranks must agree. Since 0.1. */
typedef struct ddp_batch_norm_options {
  int64_t struct_size; /**< set by init */
  double epsilon;      /**< added to the variance (default 1e-5) */
  double momentum; /**< share of this batch in the running statistics, 0 to 1 (default 0.1); 1.0 / k in the k-th batch: plain
                      average */
  int32_t training;   /**< 1 (default): statistics of this batch; 0: running statistics, and nothing is sent */
  int32_t accumulate; /**< 1: backward adds to the gradients of weight and bias; 0 (default): it writes them */
} ddp_batch_norm_options;

/** Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_batch_norm_options_init(ddp_batch_norm_options *options, int64_t struct_size);

/**
 * y = (x - mean) * invstd * weight + bias for each channel, with the mean and variance of that channel over all ranks.
 * With `training` the running statistics become (1 - momentum) * old + momentum * new, with the unbiased variance (divided
 * by count - 1), the same bits on every rank that had the same before. That happens here, before the backward pass: if that
 * fails and the batch is repeated, its statistics count twice, so a program that repeats batches keeps a copy of both.
 * @param group whose ranks share the batch. Between begin_backward and end_backward of a model use a second group
 * @param options NULL: all defaults
 * @param x F32, F64, F16 or BF16, [N, C, ...]
 * @param weight [C], any of these dtypes; NULL: 1
 * @param bias [C], any of these dtypes; NULL: 0
 * @param running_mean [C], any of these dtypes; NULL: not kept
 * @param running_var [C], any of these dtypes; given if running_mean is; read when not training, otherwise both are updated
 * @param y shape and dtype of x; may be x itself when no backward follows
 * @param saved_mean F64 [C], for backward; NULL when none follows
 * @param saved_invstd F64 [C], as saved_mean
 * @param out_count values per channel over all ranks, for backward; may be NULL
 * Collective with `training` (one message), otherwise local; blocks. No two of the tensors may overlap, except x and y.
 * Errors: INVALID_ARGUMENT (shapes, dtypes; on every rank: a single value per channel in training, which has no variance),
 * MISMATCH (another number of channels, or other options on another rank), and those of collectives; then nothing was
 * written. Without any value on any rank nothing happens. Since 0.1.
 */
DDP_API ddp_status ddp_batch_norm_forward(ddp_group *group, const ddp_batch_norm_options *options, const ddp_tensor *x,
                                          const ddp_tensor *weight, const ddp_tensor *bias, const ddp_tensor *running_mean,
                                          const ddp_tensor *running_var, const ddp_tensor *y, const ddp_tensor *saved_mean,
                                          const ddp_tensor *saved_invstd, int64_t *out_count, void *stream);

/**
 * Gradients of ddp_batch_norm_forward: for x over the samples of all ranks; for weight and bias this rank's share, which is
 * reduced with all other gradients. When not training the statistics are constants, and nothing is sent.
 * @param dy gradient of y, [N, C, ...]
 * @param x as in forward
 * @param weight as in forward
 * @param saved_mean as in forward
 * @param saved_invstd as in forward
 * @param count what forward gave as out_count
 * @param dx shape and dtype of x; may be dy itself; NULL: not wanted
 * @param dweight [C], F32, F64, F16 or BF16; NULL: not wanted
 * @param dbias as dweight
 * Collective with `training` (one message), otherwise local; blocks. Errors: as ddp_batch_norm_forward. Since 0.1.
 */
DDP_API ddp_status ddp_batch_norm_backward(ddp_group *group, const ddp_batch_norm_options *options, const ddp_tensor *dy,
                                           const ddp_tensor *x, const ddp_tensor *weight, const ddp_tensor *saved_mean,
                                           const ddp_tensor *saved_invstd, int64_t count, const ddp_tensor *dx,
                                           const ddp_tensor *dweight, const ddp_tensor *dbias, void *stream);

#ifdef __cplusplus
}
#endif
#endif
