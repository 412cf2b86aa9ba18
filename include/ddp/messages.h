/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Messages from one rank of a group to one other, and collectives in which ranks give or get different parts.
 *
 * The bytes go over shared memory between ranks of one host, and else over TCP connections of their own, one for each pair
 * of ranks, which is made when the pair has the first message (include/MESSAGES.md). A rank works on messages
 * while it is in one of these calls, or has posted one (ddp/request.h).
 *
 * Each tensor is in host memory or on the rank's GPU; ranks and tensors of one call may differ. The bytes of one on a GPU
 * are copied through page-locked host memory of the library, in the order of `stream`: a call that sends waits for the work
 * that is on the stream, and one that receives waits for the message alone. Kernels of NCCL are used by ddp_group_reduce
 * only. INVALID_STATE: the stream is being captured into a CUDA graph. NOT_SUPPORTED: a tensor on a GPU without the module
 * for GPUs.
 *
 * Ranks that wait for each other in messages wait until TIMED_OUT, because another thread of theirs may send later. With the
 * group option `one_thread` = 1 a rank promises that there is none. Ranks with this option that can never continue get
 * DIFFERENT_CALLS within half a second, which names their calls: in ddp_group_send, ddp_group_receive or ddp_request_wait
 * without a limit, or in a collective call or the end of a pass. Not found: ranks that wait with a limit or in
 * ddp_request_wait_any, a sender of small messages whose receiver reads none, and ranks of a group that another one has
 * left.
 */
#ifndef DDP_MESSAGES_H
#define DDP_MESSAGES_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** In the place of a rank, for ddp_group_receive: the first message with the tag, whichever rank it is from. Since 0.1. */
#define DDP_ANY_SOURCE -1

/**
 * Send a tensor to one other rank. Messages of one rank to another with one tag are received in the order in which they
 * were sent. A message of up to 64 KiB is copied and returns at once while there is room: 128 KiB for each receiver on one
 * host, between hosts what the system keeps for a connection. The receiver makes room while it works on messages (see
 * above), until it has 1 MiB of this rank that it has not received. A longer message, or one more, waits for its receive.
 * @param tensor not changed until the call returns; any size, also empty
 * @param peer rank of the receiver; not this rank
 * @param tag 0 or more, for ddp_group_receive to tell messages apart
 * @param stream of a tensor on a GPU
 * Local to the two ranks, blocks up to timeout_ms. Any thread, beside other calls on the group and while a pass is open; not
 * from a function that the library has called.
 * Errors: INVALID_ARGUMENT, NOT_SUPPORTED, INVALID_STATE (destroyed, or as above); MISMATCH (the receive there is for
 * another type or number of elements, which that rank gets as well; the group stays whole. The sender of a message that was
 * copied has returned by then, and says it in its log); TIMED_OUT (names the rank that did not receive, and the tag),
 * PEER_FAILED, ABORTED, DIFFERENT_CALLS (see above), OUT_OF_MEMORY, each of which breaks the group; IO (no port of
 * DDP_PORT_RANGE is free). Since 0.1.
 */
DDP_API ddp_status ddp_group_send(ddp_group *group, const ddp_tensor *tensor, int32_t peer, int64_t tag, void *stream);

/**
 * Receive a tensor that another rank sends with the same tag, type and number of elements.
 * @param tensor filled; not used by others until the call returns
 * @param source rank of the sender; not this rank. DDP_ANY_SOURCE: whichever has sent first; which one that is may differ
 *        from run to run, and so may what is computed from it
 * @param tag 0 or more
 * @param out_source the rank that sent; may be NULL
 * @param stream of a tensor on a GPU; the received values are there in its order
 * Local to the two ranks, blocks up to timeout_ms. Threads as ddp_group_send: one may send while another receives.
 * Errors: as ddp_group_send; MISMATCH (the message has another type or number of elements; it is dropped); TIMED_OUT (names
 * the rank that did not send, the tag, and the tags of messages of it that nobody has received). A rank that left in good
 * order has sent what it sent: that is received, and what it did not send is ABORTED. So is a message to or from another
 * host if it would be the pair's first one after any rank has left, without the group option `connect_all`. Since 0.1.
 */
DDP_API ddp_status ddp_group_receive(ddp_group *group, const ddp_tensor *tensor, int32_t source, int64_t tag,
                                     int32_t *out_source, void *stream);

/**
 * Reduce a tensor over all ranks, to one of them, in place: `root` gets the bits that ddp_group_all_reduce gives.
 * @param tensor this rank's contribution; the result on `root`, undefined afterwards on the others; same type and element
 *        count on all ranks
 * @param op AVERAGE, SUM, MIN, MAX or PRODUCT
 * @param root rank that gets the result; equal on all ranks
 * @param stream of a tensor on a GPU, as in ddp_group_all_reduce
 * Collective, blocks on CPU. The algorithm is that of ddp_group_all_reduce, as all ranks share the work. Errors: as
 * ddp_group_all_reduce. Since 0.1.
 */
DDP_API ddp_status ddp_group_reduce(ddp_group *group, const ddp_tensor *tensor, ddp_reduce op, int32_t root, void *stream);

/**
 * Collect the tensors of all ranks on one rank.
 * @param input n elements, the same n and type on all ranks
 * @param output size * n elements on `root`: rank r's input is put at element r * n; may contain `input` at its own place.
 *        On the other ranks NULL is allowed
 * @param root rank that collects; equal on all ranks
 * @param stream of tensors on a GPU
 * Collective, blocks on CPU: each other rank sends one message. Errors: as ddp_group_barrier; INVALID_ARGUMENT,
 * NOT_SUPPORTED, INVALID_STATE. Since 0.1.
 */
DDP_API ddp_status ddp_group_gather(ddp_group *group, const ddp_tensor *input, const ddp_tensor *output, int32_t root,
                                    void *stream);

/**
 * Give each rank a part of one rank's tensor.
 * @param input size * n elements on `root`: rank r gets those from element r * n on. On the other ranks NULL is allowed
 * @param output n elements, the same n and type on all ranks; may be the own part of `input`
 * @param root rank that gives; equal on all ranks
 * @param stream of tensors on a GPU
 * Collective, blocks on CPU: each other rank gets one message. Errors: as ddp_group_gather. Since 0.1.
 */
DDP_API ddp_status ddp_group_scatter(ddp_group *group, const ddp_tensor *input, const ddp_tensor *output, int32_t root,
                                     void *stream);

/**
 * Give each rank a part of this rank's tensor, and get one of each: the parts lie one behind the other, by rank.
 * @param input what this rank gives
 * @param output what it gets; of the same type, and it does not overlap `input`
 * @param input_counts for each rank the elements that it gets; size numbers, which add up to those of `input`. NULL: as many
 *        for each
 * @param output_counts for each rank the elements that come from it, as that rank's input_counts say; NULL: as many of each
 * @param stream of tensors on a GPU
 * Collective, blocks on CPU: the ranks compare their counts, then each pair exchanges two messages, all pairs at once.
 * Errors: as ddp_group_gather; MISMATCH on all ranks (a rank gives another one more or fewer elements than that one expects;
 * both are named, nothing is written, and the group stays whole). Since 0.1.
 */
DDP_API ddp_status ddp_group_all_to_all(ddp_group *group, const ddp_tensor *input, const ddp_tensor *output,
                                        const int64_t *input_counts, const int64_t *output_counts, void *stream);

/**
 * Collect tensors of different sizes of all ranks on every rank.
 * @param input counts[rank] elements
 * @param output the inputs of all ranks, one behind the other; may contain `input` at its own place
 * @param counts for each rank the elements that it gives; size numbers, equal on all ranks
 * @param stream of tensors on a GPU
 * Collective, blocks on CPU: the ranks compare their counts; then small inputs are gathered at once, and larger ones are
 * broadcast one after the other. Errors: as ddp_group_gather; MISMATCH on all ranks (counts or types differ; the group stays
 * whole). Since 0.1.
 */
DDP_API ddp_status ddp_group_all_gather_counts(ddp_group *group, const ddp_tensor *input, const ddp_tensor *output,
                                               const int64_t *counts, void *stream);

#ifdef __cplusplus
}
#endif
#endif
