/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Memory that outlives its owner, for bindings whose arrays the collector takes away; and memory of the program that the
 * ranks of a host share where it is. Experimental.
 */
#ifndef DDP_MEMORY_H
#define DDP_MEMORY_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Keep memory of the library readable and writable, with its contents, after its owner was destroyed: after the model, the
 * group, ddp_group_free. For languages whose slices and arrays may outlive the object that they came from. The memory is
 * given back when its owner and as many ddp_memory_release as there were ddp_memory_retain are done; nothing else of a
 * destroyed group or model stays.
 * @param data any address in a gradient that libddp owns, in memory of ddp_group_alloc, or in the contents of a bucket; all
 *        of the block around it is kept, which for a gradient is its bucket
 * Local, never blocks, any thread, also within callbacks. Errors: INVALID_ARGUMENT (not such memory, or on a GPU).
 * Since 0.1.
 */
DDP_API ddp_status ddp_memory_retain(const void *data);

/**
 * Undo one ddp_memory_retain. In a fork of the process the memory stays as it is.
 * @param data any address in the same block; NULL is ignored
 * Local, never blocks, any thread. Errors: INVALID_ARGUMENT (it is not retained). Since 0.1.
 */
DDP_API ddp_status ddp_memory_release(const void *data);

/**
 * Share memory of the program with the other ranks of this host, where it is: its address and its contents stay, and from
 * now on gradients and tensors in it are reduced in place, as in memory of ddp_group_alloc. Whole pages are copied into
 * shared memory, which is mapped over them. The first and the last bytes, up to a page, stay private and are copied in each
 * reduction. Ranks may share or not, each as it likes; a tensor is reduced in place if all ranks of the host share it, else
 * through copies, with the same bits.
 *
 * The program promises: no thread, device or system call reads or writes the memory while this call runs (libddp cannot see
 * O_DIRECT and asynchronous reads that are under way); and the memory is not freed, unmapped or moved before
 * ddp_group_unshare. Freed memory would stay shared, and an allocator that counts on zeroed pages would hand out old
 * contents.
 *
 * - A child of fork() gets a private copy, and its writes reach no other process. A page that the child has not written may
 *   show later writes of the parent and of other ranks, or zeros after ddp_group_unshare. A child of clone() or _Fork()
 * shares the memory.
 * - When a call fails because the group has broken, the memory is private before the call returns, so a rank that was given
 *   up never writes into it; ddp_group_status, which tells of it, is not such a call. ddp_group_recover shares it again, if
 *   it can, and needs the same promise: nobody writes to the memory meanwhile, and no driver has it.
 * - A call of another thread or rank that reduces the memory meanwhile fails, or has ended with the right result.
 * - ddp_group_destroy makes it private.
 * - Sub-groups of ddp_group_split do not share it.
 * - It counts as shared memory (shmem), in limits of control groups too; twice while this call and ddp_group_unshare copy
 * it.
 *
 * @param data begin of the memory, in bytes aligned as the program likes
 * @param bytes 1 or more
 * Local; takes as long as a copy, and a look at the process's mappings. Any thread, while no collective call of the group
 * runs. Errors: NOT_SUPPORTED with the reason (the memory stays private, which is no harm: smaller than 1 MiB; a stack, a
 * file, memory on hugetlbfs or of a device; locked, sealed, guarded, tagged, with a protection key, excluded from forks or
 * core dumps, watched by userfaultfd, merged by the kernel; pages on several NUMA nodes; known to the NVIDIA driver; the
 * heap of Go or any memory of a process with a virtual machine of Java; a process with pinned memory, as io_uring and RDMA
 * have; a group whose ranks share no memory), INVALID_ARGUMENT (some of it is shared already), OUT_OF_MEMORY; each leaves
 * all as it was. Since 0.1.
 */
DDP_API ddp_status ddp_group_share(ddp_group *group, void *data, int64_t bytes);

/**
 * Make memory of ddp_group_share private again, with its contents and at its address. Other threads may write to it
 * meanwhile; no write is lost. Destroy models with gradients or parameters in it before. Afterwards its pages are small
 * ones, as after a copy.
 * @param data as in ddp_group_share; NULL is ignored
 * Local; takes as long as a copy. Any thread, while no collective call of the group runs. Errors: INVALID_ARGUMENT (not
 * shared with this group), INVALID_STATE (a model reaches into it; or the program has freed or mapped anew some of it, which
 * is left as it is), OUT_OF_MEMORY (it stays shared). Since 0.1.
 */
DDP_API ddp_status ddp_group_unshare(ddp_group *group, void *data);

#ifdef __cplusplus
}
#endif
#endif
