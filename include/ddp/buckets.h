/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * A plan of buckets that the program gives, for frameworks that have buckets of their own. Experimental.
 */
#ifndef DDP_BUCKETS_H
#define DDP_BUCKETS_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Say which gradients share a bucket, and the order of buckets. It takes the place of the library's plan: the options
 * first_bucket_bytes and bucket_bytes mean nothing then. Buckets are reduced in this order, so it should be the order in
 * which backward completes them. Bits do not depend on it. All ranks give the same buckets, which ddp_model_commit compares.
 * In host memory the gradients of a bucket that libddp owns lie one behind the other in this order, with no gap, and the
 * first one lies at the begin of a page; no other gradient has a part of the bucket's pages. On a GPU there may be gaps. The
 * library splits a bucket of more than 4,096 parameters into several; these follow each other without a gap.
 * @param model in the building state, with all its parameters; none can be added afterwards
 * @param numbers the numbers of all parameters, each once, bucket after bucket; -1 between two buckets. Copied
 * @param count how many numbers, with the -1
 * The last call counts. Local. Errors: INVALID_ARGUMENT (NULL, a number that is no parameter, a parameter named twice or not
 * at all, an empty bucket, parameters of several dtypes or devices in one bucket), INVALID_STATE (committed). Since 0.1.
 */
DDP_API ddp_status ddp_model_set_buckets(ddp_model *model, const int32_t *numbers, int32_t count);

#ifdef __cplusplus
}
#endif
#endif
