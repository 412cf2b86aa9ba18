/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Peer checkpoints: the state of models in the memory of the ranks, to which a recovery can go back.
 */
#ifndef DDP_KEEP_H
#define DDP_KEEP_H

#include "ddp/state.h"
#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Keep the state of these models in the memory of the ranks. Each rank copies its own part of parameters, buffers,
 * optimizers and averages, and its share of what every rank has whole. On one host over shared memory the other ranks have
 * the copy mapped; else it also goes to a rank of the next host. ddp_group_recover goes back to this state where it would
 * ask for a checkpoint otherwise: a rank that had a part of an optimizer's state (shard = 1) has died, or a step has ended
 * on some ranks only. Nothing of it is lost when any one rank dies, also in a keep and in a recovery, nor when any one host
 * dies if the group has ranks on several. Call it where the program would save: behind the step, the average and the
 * schedule. All sharded models of the group must be among the states, or a recovery cannot go back.
 * @param states of models of one group, the same on all ranks, in the same order. A model is kept with all its optimizers
 * and averages, whatever else its state names. `epoch` and `step` are those of the first one, and equal on all ranks
 * @param count of `states`; 1 or more
 * @param stream as for a model
 * Cost: a copy of the own part, and between hosts its transfer. Memory: twice the own part, and twice each part of another
 * host that this rank keeps. The algorithm is that of Gemini (Wang et al., SOSP 2023). A later keep replaces what was kept,
 * and a load ends it. Collective, blocks; not in an open pass, nor between parts of a batch, nor while ddp_ema_swap has put
 * averages into the parameters, nor after DDP_PASS_LOCAL, which makes the ranks differ. Errors: INVALID_STATE (also if the
 * group was made without recoverable = 1), INVALID_ARGUMENT, MISMATCH (the ranks keep different steps or tensors),
 * OUT_OF_MEMORY, and those of collectives. Since 0.1.
 */
DDP_API ddp_status ddp_state_keep(const ddp_state *states, int32_t count, void *stream);

/**
 * The program's own bytes of the state to which a recovery of the group went back last (`own` of ddp_state). All ranks have
 * them, also a rank that has joined in that recovery.
 * @param data filled with at most `capacity` bytes; NULL if capacity is 0
 * @param capacity bytes of `data`
 * @param out_bytes how many there are, whatever the capacity; 0 before the first time
 * Local, any thread; not while ddp_group_recover runs. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_group_get_kept(const ddp_group *group, void *data, int64_t capacity, int64_t *out_bytes);

#ifdef __cplusplus
}
#endif
#endif
