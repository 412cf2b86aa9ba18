/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Everything in ddp/ddp.h, and parts that are not stable yet: functions and structs of these headers may change in any
 * version. include/CHANGES.md then names the replacement.
 */
#ifndef DDP_EXPERIMENTAL_H
#define DDP_EXPERIMENTAL_H

/* The order in which to read them, and in which SWIG reads them. */
/* clang-format off */
#include "ddp/ddp.h"
#include "ddp/tier.h"
#include "ddp/buckets.h"
#include "ddp/reopen.h"
#include "ddp/rows.h"
#include "ddp/batch_norm.h"
#include "ddp/memory.h"
#include "ddp/graph.h"
#include "ddp/waits.h"
#include "ddp/trace.h"
/* clang-format on */

#endif
