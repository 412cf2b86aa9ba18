/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * libddp: distributed data parallel training for every program that has gradients in memory.
 * This header includes the stable part; read its headers in this order. include/README.md is the guide, and
 * ddp/experimental.h adds what may still change.
 */
#ifndef DDP_DDP_H
#define DDP_DDP_H

/* The order in which to read them, and in which SWIG reads them. */
/* clang-format off */
#include "ddp/types.h"
#include "ddp/library.h"
#include "ddp/group.h"
#include "ddp/messages.h"
#include "ddp/model.h"
#include "ddp/backward.h"
#include "ddp/uneven.h"
#include "ddp/optimizer.h"
#include "ddp/ema.h"
#include "ddp/state.h"
#include "ddp/sampler.h"
/* When a program needs them. */
#include "ddp/custom.h"
#include "ddp/hook.h"
#include "ddp/join.h"
#include "ddp/recover.h"
#include "ddp/virtual_ranks.h"
#include "ddp/keep.h"
#include "ddp/latest.h"
#include "ddp/late_values.h"
#include "ddp/request.h"
#include "ddp/local_sgd.h"
#include "ddp/outer.h"
/* clang-format on */

#endif
