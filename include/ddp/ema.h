/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Exponential moving averages of the parameters: equal on all ranks without communication, because the parameters are.
 */
#ifndef DDP_EMA_H
#define DDP_EMA_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Start averages of all parameters of a model, one for each decay, from their values at the first update (or load).
 * average = decay * average + (1 - decay) * value, in F32 (F64 for F64 parameters).
 * @param decays `count` different numbers from 0 to below 1
 * @param count 1 to 16
 * @param out_ema destroy with ddp_ema_destroy
 * Local. May come before or after ddp_model_commit. Errors: INVALID_ARGUMENT, MISMATCH (on a rank that has joined others:
 * not what they have), OUT_OF_MEMORY. Since 0.1.
 */
DDP_API ddp_status ddp_ema_create(ddp_model *model, const double *decays, int32_t count, ddp_ema **out_ema);

/** Release the averages. The parameters keep what they hold at the moment. Local. NULL is ignored. Since 0.1. */
DDP_API void ddp_ema_destroy(ddp_ema *ema);

/**
 * Take the current parameters into every average, in one pass over memory. Call after each step.
 * @param stream of parameters on a GPU: that of ddp_optimizer_step; their averages are on the GPU too, and the host waits in
 *        the first update only (it allocates)
 * Local. Errors: INVALID_STATE (not committed, swapped, or the stream is being captured into a CUDA graph), OUT_OF_MEMORY
 * (first update).
 * Since 0.1.
 */
DDP_API ddp_status ddp_ema_update(ddp_ema *ema, void *stream);

/**
 * Exchange the parameters with one of the averages, for evaluation; call again with the same `which` to swap back.
 * @param which position of the decay given to ddp_ema_create
 * @param stream of parameters on a GPU: they are exchanged in its order; F16 and BF16 ones make the host wait, because their
 *        bits are kept in memory that is allocated and freed
 * While an average is swapped in, what would change the parameters is refused (INVALID_STATE): ddp_optimizer_step, passes
 * with in_backward, loads, ddp_model_average_parameters, ddp_model_join and other averages. Passes and saving the model
 * alone are allowed.
 * Local. Errors: INVALID_ARGUMENT, INVALID_STATE (no update yet, another average is swapped in, or the stream is captured),
 * OUT_OF_MEMORY.
 * Since 0.1.
 */
DDP_API ddp_status ddp_ema_swap(ddp_ema *ema, int32_t which, void *stream);

#ifdef __cplusplus
}
#endif
#endif
