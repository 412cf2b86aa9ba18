/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * A rank that has run out of data answers the others until all have.
 * src/parts/README.md lists the answers of such a rank.
 */
#ifndef DDP_JOIN_H
#define DDP_JOIN_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * This rank is out of data: answer the other ranks' passes without contributing, until every rank has joined. Then all ranks
 * hold the parameters, buffers, optimizers and averages of the lowest rank among those that trained to the end, and continue
 * together. Meanwhile the other ranks may open passes of this model, call ddp_model_sync_buffers, and make local calls
 * (optimizer, averages). Their other collectives on the group are refused with INVALID_STATE; one that is made before they
 * learn of the joined rank, from a pass or ddp_model_sync_buffers, breaks the group with DIFFERENT_CALLS. Collectives on
 * other groups are not answered: call ddp_group_abort on those first. The model needs the option uneven_inputs, which
 * excludes optimizers with shard and pulled hooks. Optimizers and averages must have been made in the same order on every
 * rank. Collective, blocks; not in an open pass. Errors: INVALID_ARGUMENT, INVALID_STATE (without uneven_inputs, or a pass
 * is open), MISMATCH (other ranks have other optimizers or averages), and those of collectives. Since 0.1.
 */
DDP_API ddp_status ddp_model_join(ddp_model *model, void *stream);

#ifdef __cplusplus
}
#endif
#endif
