/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Training over slow links: each rank makes steps on its own, and now and then the movements of all ranks since the last
 * exchange are averaged and taken as the gradient of an outer optimizer.
 *
 * The method is DiLoCo (Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023); parts
 * that are exchanged at different times, overlap with the steps that follow and are sent with few bits are Streaming DiLoCo
 * (Douillard et al., 2025). With `every` = 100 a rank sends a hundredth of the bytes of a training that averages gradients.
 */
#ifndef DDP_OUTER_H
#define DDP_OUTER_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Options of an outer optimizer, equal on all ranks. Fill with ddp_outer_options_init(), then change. Since 0.1. */
typedef struct ddp_outer_options {
  int64_t struct_size; /**< set by init */
  int64_t every;       /**< steps between two exchanges of a parameter, 1 or more (default 100) */
  int64_t overlap; /**< steps for which an exchange may be under way, 0 to every - 1. 0 (default): the step in which it is
                      due waits for it */
  double rate;     /**< of the outer optimizer, above 0 (default 0.7) */
  double momentum; /**< 0 to below 1 (default 0.9) */
  double keep; /**< share of a rank's own values in what follows an exchange, 0 to below 1: value = keep * own + (1 - keep) *
                  global. 0 (default): all ranks go on from the global values. With overlap, 0.5 keeps a part of the steps
                  that were made meanwhile; the replicas then differ until ddp_outer_sync */
  int32_t fragments; /**< parts of the model that are exchanged at different steps, spread evenly over `every`, 1 to 1,024
                        (default 1): the bytes of a step at most shrink by so much */
  int32_t nesterov;  /**< 1 (default): Nesterov's momentum; 0: the plain one */
  int32_t bits; /**< of an element of a movement when it is sent: 32 (default; F64 parameters: 64), 16 (BF16), 8 or 4. With
                   8 and 4, blocks of 256 elements are scaled by their largest magnitude, rounded to integers and
                   gathered; every rank adds them in F32, in the tree over the ranks, so all hold the same bits. F64
                   parameters always travel as they are */
  int32_t error_feedback; /**< with 8 and 4 bits: 1 (default): what rounding lost is added to the next movement; 0: it is
                             lost. Costs 4 bytes a parameter */
} ddp_outer_options;

/** Numbers of an outer optimizer. Since 0.1. */
typedef struct ddp_outer_stats {
  int64_t struct_size; /**< set by the caller */
  int64_t steps;       /**< ddp_outer_step calls */
  int64_t exchanges;   /**< fragments that were exchanged */
  int64_t under_way;   /**< fragments whose exchange has begun and not ended */
  int64_t sent_bytes;  /**< bytes that this rank sent, as in ddp_model_stats */
  int64_t wait_ns;     /**< time in ddp_outer_step and ddp_outer_sync in which this rank waited for exchanges */
} ddp_outer_stats;

/** Write the defaults. Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_outer_options_init(ddp_outer_options *options, int64_t struct_size);

/**
 * Make an outer optimizer of a model. Its passes are DDP_PASS_LOCAL, its optimizer is any (not with shard), stepped on each
 * rank alone. Memory: 12 bytes a parameter (24 of F64), and 4 with error_feedback.
 * @param model ready; its parameters are F32, F64, F16 or BF16 in host memory, equal on all ranks now
 * @param options NULL: all defaults
 * @param out_outer destroy with ddp_outer_destroy
 * Local. Errors: INVALID_ARGUMENT, INVALID_STATE (not committed, a pass is open, it has an outer optimizer), NOT_SUPPORTED
 * (parameters on a GPU or complex), OUT_OF_MEMORY. Since 0.1.
 */
DDP_API ddp_status ddp_outer_create(ddp_model *model, const ddp_outer_options *options, ddp_outer **out_outer);

/** Release it. Exchanges that are under way are dropped, and the parameters keep what they hold; on all ranks after the same
 * number of steps. Local. NULL is ignored. Since 0.1. */
DDP_API void ddp_outer_destroy(ddp_outer *outer);

/**
 * One step of the rank's own optimizer has been made: begin the exchanges that are due, and take what the others that have
 * ended bring. Call after every step, on all ranks as often.
 * The first call makes a group of the model's ranks for the exchanges (as ddp_group_split), so passes and collectives of the
 * program can run at the same time. With d = global value at the last exchange - own value now, averaged over the ranks, and
 * m = momentum * m + d: global -= rate * (d + momentum * m), with nesterov = 0 rate * m. Collective, blocks only when an
 * exchange that must have ended has not, not in an open pass. Errors: those of collectives; INVALID_STATE (also after an
 * exchange that failed: recover the group, or load a checkpoint). Since 0.1.
 */
DDP_API ddp_status ddp_outer_step(ddp_outer *outer);

/**
 * Complete pending exchanges, exchange all fragments at once, and continue from the global values, whatever `keep` is:
 * afterwards the replicas are equal. Call before evaluation and before a checkpoint, which holds rank 0's parameters.
 * Rounding errors that were kept for the next exchange are sent with this one as they are, without rounding (32 bits).
 * Collective, blocks, not in an open pass. Errors: as ddp_outer_step. Since 0.1.
 */
DDP_API ddp_status ddp_outer_sync(ddp_outer *outer);

/** What the exchanges have come to. Local. Errors: INVALID_ARGUMENT. Since 0.1. */
DDP_API ddp_status ddp_outer_get_stats(const ddp_outer *outer, ddp_outer_stats *out_stats);

#ifdef __cplusplus
}
#endif
#endif
