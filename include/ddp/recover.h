/** @file
 * Going on in the same processes when ranks have died. The group must have been made with recoverable = 1.
 *
 * When a rank dies, calls on the other ranks fail with PEER_FAILED, as always. Then every rank that is left calls
 * ddp_group_recover(), which returns when they have met again, without a rendezvous and whoever of them died: ranks are
 * numbered anew in the old order, and handles stay as they are. include/README.md, "When a rank dies", has the table of what
 * survives, and the rule which ranks may go on.
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
  int64_t wait_ms;   /**< how long to wait for a rank that is alive but does not call ddp_group_recover, because it computes;
                          0: as long as it takes (default 60,000). Ranks that were silent, or are out of reach, are not
                          waited for: about a second */
  int32_t min_ranks; /**< with fewer the call fails with TOO_FEW_RANKS; 1 or more (default 1) */
  int32_t allow_half; /**< ranks that are silent may live on the other side of a cut, so more than half of those that are not
                           seen to be dead must be here. 1: half of them may go on too, if the lowest is among them; of two
                           ranks, rank 0. 0 (default) */
} ddp_recover_options;

/** What a recovery came to. The caller sets struct_size. Since 0.1. */
typedef struct ddp_recovery {
  int64_t struct_size;   /**< sizeof(ddp_recovery) */
  int64_t generation;    /**< 1 for the group as it was created, and one more with each recovery */
  int32_t rank;          /**< of this rank, now */
  int32_t size;          /**< number of ranks, now */
  int32_t previous_rank; /**< of this rank, before */
  int32_t previous_size; /**< number of ranks, before */
  int32_t source;        /**< rank (of now) whose parameters, buffers and optimizer all ranks have now, because it was not
                              ahead of others; -1: all had the same, or there is no model. What the program keeps itself
                              it sends from there (ddp_group_broadcast) */
  int32_t reserved;      /**< 0 */
  double seconds;        /**< how long the call took */
} ddp_recovery;

/** What was last heard of a rank. The caller sets struct_size. Since 0.1. */
typedef struct ddp_rank_progress {
  int64_t struct_size; /**< sizeof(ddp_rank_progress) */
  int64_t pass_index;  /**< backward pass in which it was, counted from 0; -1: none yet */
  int32_t bucket;      /**< bucket of that pass; -1: none */
  int32_t reserved;    /**< 0 */
  double silent;       /**< seconds since it was heard; about 0 for this rank */
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
 * Where a rank was when it was last heard. With ranks that are threads, and in a group of one, all are heard now.
 * @param rank 0 to size - 1
 * @param out_progress filled; struct_size set by the caller
 * Local, any thread; not while ddp_group_recover runs. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_group_get_progress(const ddp_group *group, int32_t rank, ddp_rank_progress *out_progress);

/**
 * Go on with the ranks that are left. The group, its models, optimizers, averages and memory keep their handles and
 * addresses; a pass that is open ends, and its gradients are void. All ranks then hold the parameters, buffers and optimizer
 * of the last step that every one of them has made, and repeat the next one. With an optimizer that has shard = 1 and ranks
 * that are gone, a part of its state is lost: load a checkpoint with the optimizer (until then INVALID_STATE).
 * @param options NULL: all defaults
 * @param out_recovery filled if not NULL; struct_size set by the caller
 * Collective over the ranks that are left, blocks: less than a second where deaths are seen (one host), and for ranks that
 * only fell silent about a second after dead_after_ms. If another rank dies meanwhile it begins again by itself. No other
 * call may use the group or what was made from it meanwhile. Groups made by ddp_group_split recover by themselves.
 * Errors: INVALID_STATE (the group is not broken, or was made without recoverable), INVALID_ARGUMENT, TOO_FEW_RANKS (on all
 * ranks that are here; nothing has changed, and the call may be repeated), FENCED (this rank was silent, and the others have
 * gone on without it), MISMATCH (what was sent to make the replicas equal has not come; the group can be used, the model
 * after a checkpoint was loaded), OUT_OF_MEMORY. Since 0.1.
 */
DDP_API ddp_status ddp_group_recover(ddp_group *group, const ddp_recover_options *options, ddp_recovery *out_recovery);

#ifdef __cplusplus
}
#endif
#endif
