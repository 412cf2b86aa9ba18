/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Local SGD: steps on this rank alone, and parameters that are averaged now and then.
 */
#ifndef DDP_LOCAL_SGD_H
#define DDP_LOCAL_SGD_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Every parameter becomes its mean over the ranks, with the same bits on all of them: local SGD makes some steps after
 * DDP_PASS_LOCAL passes and then this. Until then the replicas differ: ddp_model_check_replicas reports it (MISMATCH), and a
 * checkpoint holds rank 0's parameters, so average before saving. Buffers and the state of optimizers stay each rank's own
 * (ddp_model_sync_buffers copies buffers).
 * Collective, blocks, not in an open pass. Errors: INVALID_STATE (also while ddp_ema_swap has put averages into the
 * parameters), and those of collectives (parameters may then be averaged in part). Since 0.1.
 */
DDP_API ddp_status ddp_model_average_parameters(ddp_model *model, void *stream);

#ifdef __cplusplus
}
#endif
#endif
