/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * The version of the parts that are not stable yet.
 */
#ifndef DDP_TIER_H
#define DDP_TIER_H

#include "ddp/types.h"

/** Version of the headers that ddp/experimental.h adds: raised by one with each change of them that a program may notice.
 * Since 0.1. */
#define DDP_EXPERIMENTAL_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

/**
 * DDP_EXPERIMENTAL_VERSION of the loaded library. A program that uses an experimental part compares the two at its start:
 * the parts are the same where the numbers are. Local, any thread, cannot fail. Since 0.1.
 */
DDP_API int32_t ddp_experimental_version(void);

#ifdef __cplusplus
}
#endif
#endif
