/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Requests: the calls of ddp/group.h and ddp/messages.h in a form that returns at once.
 *
 * A ddp_group_post_ function takes the arguments of the call that it is named after and returns a request, which ends by
 * itself. Until then the tensors belong to the request: an input is not changed, an output is not used. Every request is
 * destroyed.
 *
 * Tensors on a GPU, of the calls of ddp/messages.h except ddp_group_post_reduce: the call enqueues the copies of its inputs
 * on `stream` and returns, so later work there may change an input. The thread that first learns of the end, in
 * ddp_request_test, ddp_request_wait or ddp_request_wait_any, enqueues the copy to an output on `stream`, which exists until
 * then: later work there sees it. INVALID_STATE while that stream is captured into a CUDA graph; the same call after the
 * capture succeeds. Without such a call an output is not written. A program whose stream has four received tensors of a size
 * still to copy waits in the next call.
 *
 * The collectives that are posted in a group are one sequence of their own: all ranks post the same ones in the same order,
 * at any time, whatever blocking calls and backward passes they make meanwhile. They run one after the other, so a request
 * ends when those before it have ended. The first one opens a channel for them; it is posted while no pass is open, by all
 * ranks, and waits for them. The group option `requests` = 1 opens the channel with the group. Messages need no channel.
 * Their order is that of messages with one tag.
 *
 * Over sockets a thread of the library works on requests; in shared memory the thread that waits does, or a thread of the
 * library about a millisecond later (include/MESSAGES.md, "Requests"). If the group breaks, every request ends with the
 * first cause; ddp_group_abort ends them on purpose. ddp_group_destroy ends what is open with INVALID_STATE here, and with
 * ABORTED on the ranks that wait for it.
 */
#ifndef DDP_REQUEST_H
#define DDP_REQUEST_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_request ddp_request; /**< a call that was posted */

/**
 * Post ddp_group_barrier.
 * @param out_request destroy with ddp_request_destroy
 * Never blocks, except that the first one of a group opens the channel of requests: that is collective, and INVALID_STATE
 * while a pass is open. One thread at a time posts collectives. Errors, of this and of all collectives below:
 * INVALID_ARGUMENT, as the blocking call; INVALID_STATE (destroyed, or called in a function that the library has called);
 * the first cause in a broken group; OUT_OF_MEMORY, which breaks the group. What else may go wrong is the error of the
 * request: that of the blocking call. Since 0.1.
 */
DDP_API ddp_status ddp_group_post_barrier(ddp_group *group, ddp_request **out_request);

/**
 * Post ddp_group_all_reduce, with the same bits.
 * @param tensor this rank's contribution, replaced by the result
 * @param op as in ddp_group_all_reduce
 * @param out_request destroy with ddp_request_destroy
 * @param stream of a tensor on a GPU. There the call itself waits for the other ranks' calls, as ddp_group_all_reduce does,
 *        and the request has ended when it returns; INVALID_STATE while a pass is open
 * As ddp_group_post_barrier. Since 0.1.
 */
DDP_API ddp_status ddp_group_post_all_reduce(ddp_group *group, const ddp_tensor *tensor, ddp_reduce op,
                                             ddp_request **out_request, void *stream);

/**
 * Post ddp_group_all_gather.
 * @param input n elements
 * @param output size * n elements; may contain `input` at its own place
 * @param out_request destroy with ddp_request_destroy
 * @param stream as in ddp_group_post_all_reduce
 * As ddp_group_post_barrier. Since 0.1.
 */
DDP_API ddp_status ddp_group_post_all_gather(ddp_group *group, const ddp_tensor *input, const ddp_tensor *output,
                                             ddp_request **out_request, void *stream);

/**
 * Post ddp_group_reduce_scatter.
 * @param input size * n elements
 * @param output n elements; may be the own part of `input`
 * @param op as in ddp_group_reduce_scatter
 * @param out_request destroy with ddp_request_destroy
 * @param stream as in ddp_group_post_all_reduce
 * As ddp_group_post_barrier. Since 0.1.
 */
DDP_API ddp_status ddp_group_post_reduce_scatter(ddp_group *group, const ddp_tensor *input, const ddp_tensor *output,
                                                 ddp_reduce op, ddp_request **out_request, void *stream);

/**
 * Post ddp_group_broadcast.
 * @param tensor of `root`, not changed until the request has ended; filled on the other ranks
 * @param root equal on all ranks
 * @param out_request destroy with ddp_request_destroy
 * @param stream as in ddp_group_post_all_reduce
 * As ddp_group_post_barrier. Since 0.1.
 */
DDP_API ddp_status ddp_group_post_broadcast(ddp_group *group, const ddp_tensor *tensor, int32_t root,
                                            ddp_request **out_request, void *stream);

/**
 * Post ddp_group_reduce.
 * @param tensor this rank's contribution; the result on `root`, undefined on the others
 * @param op as in ddp_group_reduce
 * @param root equal on all ranks
 * @param out_request destroy with ddp_request_destroy
 * @param stream as in ddp_group_post_all_reduce
 * As ddp_group_post_barrier. Since 0.1.
 */
DDP_API ddp_status ddp_group_post_reduce(ddp_group *group, const ddp_tensor *tensor, ddp_reduce op, int32_t root,
                                         ddp_request **out_request, void *stream);

/**
 * Post ddp_group_gather.
 * @param input n elements
 * @param output size * n elements on `root`; on the other ranks NULL is allowed
 * @param root equal on all ranks
 * @param out_request destroy with ddp_request_destroy
 * @param stream of tensors on a GPU, see above
 * As ddp_group_post_barrier. Since 0.1.
 */
DDP_API ddp_status ddp_group_post_gather(ddp_group *group, const ddp_tensor *input, const ddp_tensor *output, int32_t root,
                                         ddp_request **out_request, void *stream);

/**
 * Post ddp_group_scatter.
 * @param input size * n elements on `root`; on the other ranks NULL is allowed
 * @param output n elements
 * @param root equal on all ranks
 * @param out_request destroy with ddp_request_destroy
 * @param stream of tensors on a GPU, see above
 * As ddp_group_post_barrier. Since 0.1.
 */
DDP_API ddp_status ddp_group_post_scatter(ddp_group *group, const ddp_tensor *input, const ddp_tensor *output, int32_t root,
                                          ddp_request **out_request, void *stream);

/**
 * Post ddp_group_all_to_all.
 * @param input what this rank gives
 * @param output what it gets; does not overlap `input`
 * @param input_counts copied; NULL: as many for each
 * @param output_counts copied; NULL: as many of each
 * @param out_request destroy with ddp_request_destroy
 * @param stream of tensors on a GPU, see above
 * As ddp_group_post_barrier. Since 0.1.
 */
DDP_API ddp_status ddp_group_post_all_to_all(ddp_group *group, const ddp_tensor *input, const ddp_tensor *output,
                                             const int64_t *input_counts, const int64_t *output_counts,
                                             ddp_request **out_request, void *stream);

/**
 * Post ddp_group_all_gather_counts.
 * @param input counts[rank] elements
 * @param output the inputs of all ranks; may contain `input` at its own place
 * @param counts copied; equal on all ranks
 * @param out_request destroy with ddp_request_destroy
 * @param stream of tensors on a GPU, see above
 * As ddp_group_post_barrier. Since 0.1.
 */
DDP_API ddp_status ddp_group_post_all_gather_counts(ddp_group *group, const ddp_tensor *input, const ddp_tensor *output,
                                                    const int64_t *counts, ddp_request **out_request, void *stream);

/**
 * Post ddp_group_send. A message of up to 64 KiB has ended at once where ddp_group_send would return at once.
 * @param tensor not changed until the request has ended
 * @param peer rank of the receiver
 * @param tag 0 or more
 * @param out_request destroy with ddp_request_destroy
 * @param stream of a tensor on a GPU. The message is sent when the stream has come so far; later ones with its tag to this
 * peer wait for that, other messages do not Local, never blocks; any thread, during other calls on the group and in an open
 * pass. Errors: as ddp_group_post_barrier; those of the request are those of ddp_group_send. Since 0.1.
 */
DDP_API ddp_status ddp_group_post_send(ddp_group *group, const ddp_tensor *tensor, int32_t peer, int64_t tag,
                                       ddp_request **out_request, void *stream);

/**
 * Post ddp_group_receive. Receives with the same source and tag get messages in the order in which they are posted.
 * @param tensor filled
 * @param source rank of the sender, or DDP_ANY_SOURCE; ddp_request_get_source tells then which it was
 * @param tag 0 or more
 * @param out_request destroy with ddp_request_destroy; that withdraws a receive for which nothing has come
 * @param stream of tensors on a GPU, see above
 * As ddp_group_post_send. The time limit of the group counts from the first wait for the request on. Since 0.1.
 */
DDP_API ddp_status ddp_group_post_receive(ddp_group *group, const ddp_tensor *tensor, int32_t source, int64_t tag,
                                          ddp_request **out_request, void *stream);

/**
 * Has the request ended?
 * @param out_done 1: it has ended well; 0: it has not ended
 * Local, never blocks, any thread, one at a time for each request. Errors: the error that the request has ended with, in
 * every call; INVALID_ARGUMENT; INVALID_STATE (in a fork of the process that posted). Since 0.1.
 */
DDP_API ddp_status ddp_request_test(ddp_request *request, int32_t *out_done);

/**
 * Wait until the request has ended.
 * @param timeout_ms at most so long; -1: only the group's own limit holds. The request stays open when the
 *        time is over. That of a message ends before a group's limit of the same length, which would break the group
 * @param out_done 1: it has ended well; 0: the time is over. NULL is allowed
 * Local, blocks. Threads and errors as ddp_request_test; INVALID_STATE (in a function that the library has called). Ranks
 * that wait for each other, in requests of collectives and in other calls, get DIFFERENT_CALLS; so while a thread waits
 * without a limit, no other thread of this rank makes a collective call on the group. Since 0.1.
 */
DDP_API ddp_status ddp_request_wait(ddp_request *request, int64_t timeout_ms, int32_t *out_done);

/**
 * Wait until one of several requests has ended, of one group or of several.
 * @param ids `count` numbers, from ddp_request_get_id
 * @param count 1 or more
 * @param timeout_ms at most so long; -1: without a limit. The group's timeout_ms does not count here: a message that does
 *        not come is waited for as long as the other rank lives
 * @param out_index the first in the list that has ended; -1: the time is over. If that request has failed, its error is this
 *        call's
 * Local, blocks. Threads and errors as ddp_request_test; INVALID_STATE (in a function that the library has called).
 * Since 0.1.
 */
DDP_API ddp_status ddp_request_wait_any(const int64_t *ids, int32_t count, int64_t timeout_ms, int32_t *out_index);

/** The number of a request, for ddp_request_wait_any; 0 if `request` is not a request. Local, any thread. Since 0.1. */
DDP_API int64_t ddp_request_get_id(const ddp_request *request);

/** The rank that sent what a receive got; -1 until the receive has ended, and for other requests. Local, any thread.
 * Since 0.1. */
DDP_API int32_t ddp_request_get_source(const ddp_request *request);

/**
 * Give up a request. On return its tensors are not used any more, except by copies that are on `stream` already: a receive
 * for which nothing has come is withdrawn, and any other request that has not ended is waited for. Local, blocks as
 * ddp_request_wait. NULL and an already destroyed request are ignored. In a fork of the process that posted the call does
 * nothing. Since 0.1.
 */
DDP_API void ddp_request_destroy(ddp_request *request);

#ifdef __cplusplus
}
#endif
#endif
