/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Recovery in the same processes after ranks have died. The group must have been made with recoverable = 1. Models may be in
 * host memory or on GPUs (include/GPU.md, "Recovery").
 *
 * When a rank dies, calls on the other ranks fail with PEER_FAILED, as always, and ddp_group_status gives that cause. Then
 * every surviving rank calls ddp_group_recover(), which returns when they have met again. It needs no rendezvous, and any
 * rank may have died. Call it also if no rank died and another cause broke the group (TIMED_OUT, ABORTED, DIFFERENT_CALLS).
 * Ranks are renumbered in the old order, and handles stay valid. include/RECOVERY.md, "When a rank dies", has the table of
 * what survives, and the rule which ranks may continue.
 */
#ifndef DDP_RECOVER_H
#define DDP_RECOVER_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Options of a recovery. Fill with ddp_recover_options_init(). Equal on all ranks. Since 0.1. */
typedef struct ddp_recover_options {
  int64_t struct_size; /**< set by init */
  int64_t wait_ms;   /**< how long to wait for a rank that is alive but does not call ddp_group_recover, because it computes,
                          and for a new rank that does not commit its models; 0: as long as it takes, for a new rank
                          timeout_ms (default 60,000). Ranks that were silent, or are out of reach, are not waited for:
                          about a second */
  int32_t min_ranks; /**< with fewer the call fails with TOO_FEW_RANKS; 1 or more (default 1) */
  int32_t allow_half; /**< ranks that are silent may live on the other side of a cut, so more than half of those that are not
                           seen to be dead must be here, else NO_MAJORITY. 1: half of them may go on too, if the lowest is
                           among them; of two ranks, rank 0. 0 (default) */
  int64_t cool_down_ms; /**< new ranks of a host on which three ranks have died within 10 minutes are kept out for so long
                           after the last death, and twice as long after each further one, up to 10 minutes (default
                           10,000). Not where the group has no rank on another host. 0: never */
} ddp_recover_options;

/** What a recovery came to. The caller sets struct_size. Since 0.1. */
typedef struct ddp_recovery {
  int64_t struct_size;   /**< sizeof(ddp_recovery) */
  int64_t generation;    /**< 1 for the group as it was created, and one more with each recovery; the same on all ranks */
  int32_t rank;          /**< of this rank, now */
  int32_t size;          /**< number of ranks, now */
  int32_t previous_rank; /**< of this rank, before */
  int32_t previous_size; /**< number of ranks, before */
  int32_t source;        /**< rank (of now) whose parameters, buffers and optimizer all ranks have now, because it was not
                              ahead of others; -1: all had the same, or there is no model, or the group went back to what
                              was kept. What the program keeps itself it sends from there (ddp_group_broadcast) */
  int32_t reserved;      /**< 0 */
  double seconds;        /**< how long the call took */
  int64_t step;          /**< of the state that all ranks have now: steps that all optimizers have made, as they count them.
                              Repeat step + 1. -1: no optimizer counts, or a checkpoint has to be loaded */
  int64_t went_back;     /**< steps that had been made and have to be repeated, because the group went back to what
                              ddp_state_keep had kept; 0 if it did not */
  int64_t kept_epoch;    /**< `epoch` of the state that was kept; -1: the group did not go back to one */
  int64_t kept_step;     /**< `step` of the same; ddp_group_get_kept gives the program's own bytes. All that the program
                              keeps itself goes back with it. -1: as above */
} ddp_recovery;

/** The last known progress of a rank. The caller sets struct_size. Since 0.1. */
typedef struct ddp_rank_progress {
  int64_t struct_size; /**< sizeof(ddp_rank_progress) */
  int64_t pass_index;  /**< backward pass in which it was, counted from 0; -1: none yet */
  int32_t bucket;      /**< bucket of that pass; -1: none */
  int32_t in_call;     /**< 1: it was in `call`; 0: it had returned from it, and computed */
  double silent;       /**< seconds since its last heartbeat; about 0 for this rank */
  int32_t call;        /**< the last collective call that it made, for ddp_call_name(); 0: none yet */
  int32_t reserved;    /**< 0 */
} ddp_rank_progress;

/**
 * Write the defaults.
 * @param options filled; not NULL
 * @param struct_size sizeof(ddp_recover_options) as the caller sees it
 * Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_recover_options_init(ddp_recover_options *options, int64_t struct_size);

/**
 * Ranks that broke the group: the one that the first cause names, and those that were silent when it broke. Ranks are
 * numbered as in the broken group.
 * @param ranks filled with at most `capacity` ranks, ascending; NULL if capacity is 0
 * @param out_count how many there are, whatever the capacity; 0: the group is whole, or was ended on purpose
 * Local, any thread; not while ddp_group_recover runs. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_group_get_failed(const ddp_group *group, int32_t *ranks, int32_t capacity, int32_t *out_count);

/**
 * The last known progress of a rank: ranks send it every heartbeat_ms. With ranks that are threads, and in a group of one,
 * it is current. In groups of more than 64 ranks it is up to date for the ranks that are furthest behind.
 * @param rank 0 to size - 1
 * @param out_progress filled; struct_size set by the caller
 * Local, any thread; not while ddp_group_recover runs. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_group_get_progress(const ddp_group *group, int32_t rank, ddp_rank_progress *out_progress);

/**
 * Continue with the surviving ranks. The group, its models, optimizers, averages and memory keep their handles and
 * addresses; an open pass ends, and its gradients are undefined. All ranks then hold the parameters, buffers and optimizer
 * of the last step that every one of them has made, and repeat the next one. If ranks were lost, part of the state of an
 * optimizer with shard = 1 is lost, unless it has no master weights and has made no step: all ranks go back to what
 * ddp_state_keep (ddp/keep.h) has kept; without that, load a checkpoint with the optimizer (until then INVALID_STATE).
 * @param options NULL: all defaults
 * @param out_recovery filled if not NULL; struct_size set by the caller
 * Collective over the ranks that are left, blocks: less than a second where deaths are seen (one host), and for ranks that
 * only fell silent about a second after dead_after_ms. If another rank dies meanwhile it begins again by itself; if a new
 * rank fails or does not fit (another model, other options), it begins again without new ranks. No other call may use the
 * group or what was made from it meanwhile. Groups made by ddp_group_split recover by themselves. After an error the group
 * is broken as before the call, and the call may be repeated, unless stated otherwise below. Errors: INVALID_STATE (the
 * group is not broken, or was made without recoverable), INVALID_ARGUMENT, TOO_FEW_RANKS (on all present ranks; nothing has
 * changed, and the call may be repeated), NO_MAJORITY (the same, but unreachable ranks may continue: end this process),
 * FENCED (this rank was silent, and the other ranks have continued without it), MISMATCH (the replicas still differ after
 * the state was sent; the group can be used, the model after a checkpoint was loaded), OUT_OF_MEMORY. Since 0.1.
 */
DDP_API ddp_status ddp_group_recover(ddp_group *group, const ddp_recover_options *options, ddp_recovery *out_recovery);

/**
 * Ranks that were lost in the last recovery, by their numbers before it.
 * @param ranks filled with at most `capacity` ranks, ascending; NULL if capacity is 0
 * @param out_count how many there are, whatever the capacity; 0 also before the first recovery with this rank
 * Local, any thread; not while ddp_group_recover runs. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_group_get_gone(const ddp_group *group, int32_t *ranks, int32_t capacity, int32_t *out_count);

/**
 * Ranks that the last recovery took in, numbered as now. A rank that has joined is among them, until the next recovery.
 * @param ranks filled with at most `capacity` ranks, ascending; NULL if capacity is 0
 * @param out_count how many there are, whatever the capacity
 * Local, any thread; not while ddp_group_recover runs. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_group_get_joined(const ddp_group *group, int32_t *ranks, int32_t capacity, int32_t *out_count);

/**
 * New number of each rank after the last recovery: element r is the new number of old rank r, or -1 if it was lost.
 * @param ranks filled with at most `capacity` ranks; NULL if capacity is 0
 * @param out_count number of ranks before it, whatever the capacity; 0 before the first recovery with this rank
 * Local, any thread; not while ddp_group_recover runs. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_group_get_renumbered(const ddp_group *group, int32_t *ranks, int32_t capacity, int32_t *out_count);

#ifdef __cplusplus
}
#endif
#endif
