/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Groups: who acts together, and collectives on any tensor.
 */
#ifndef DDP_GROUP_H
#define DDP_GROUP_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Store a value under a key, for other ranks. Returns 0 on success. `key` is text, `value` any bytes. */
typedef int32_t (*ddp_store_set_fn)(void *user_data, const char *key, const void *value, int64_t bytes);

/**
 * Fetch a value, waiting for it up to `timeout_ms`. Writes at most `capacity` bytes and the value's length to
 * `out_bytes`. Returns 0 on success, 1 when the time is over, anything else on failure.
 */
typedef int32_t (*ddp_store_get_fn)(void *user_data, const char *key, void *value, int64_t capacity, int64_t timeout_ms,
                                    int64_t *out_bytes);

/**
 * Bring your own rendezvous (MPI, Redis, Kubernetes, a test): two callbacks with which ranks find rank 0.
 * Called only inside ddp_group_create, on the calling thread. A C++ exception that leaves one is a failure with its text.
 * Since 0.1.
 */
typedef struct ddp_store {
  int64_t struct_size;  /**< set by the caller */
  ddp_store_set_fn set; /**< not NULL */
  ddp_store_get_fn get; /**< not NULL */
  void *user_data;      /**< handed to both */
} ddp_store;

/** Options of a group. Fill with ddp_group_options_init(), then change what you need. Since 0.1. */
typedef struct ddp_group_options {
  int64_t struct_size;           /**< set by init */
  int32_t rank;                  /**< 0 to world_size - 1; -1: from the rendezvous (default) */
  int32_t world_size;            /**< number of ranks; -1: from the rendezvous (default) */
  ddp_backend backend;           /**< DDP_BACKEND_AUTO (default) */
  int32_t device_index;          /**< GPU of this rank; -1: LOCAL_RANK (default); ignored on CPU */
  int64_t timeout_ms;            /**< a collective in which a living rank makes no progress for this long fails with
                                      TIMED_OUT; 0: never (default 1,800,000) */
  int64_t heartbeat_ms;          /**< how often each rank shows that it lives (default 1,000) */
  int64_t dead_after_ms;         /**< silence after which a rank counts as dead (default 10,000) */
  int64_t rendezvous_timeout_ms; /**< how long ddp_group_create waits for all ranks (default 120,000) */
  const ddp_store *store;        /**< own rendezvous, or NULL (default); copied by ddp_group_create */
  ddp_sum_order sum_order; /**< DDP_SUM_ORDER_BY_RANK (default), or DDP_SUM_ORDER_BY_HOST: less traffic between hosts whose
                              ranks are not aligned blocks of a power of two; equal on all ranks */
  int32_t reproducible;    /**< 1: sums of tensors on GPUs have the bits of sums in host memory; for ranks of one host, else
                              NOT_SUPPORTED where a GPU is first used. 0 (default): NCCL adds, in an order of its own, which is
                              faster. Equal on all ranks */
  int32_t nccl_max_ctas; /**< most blocks (CTAs) that a collective of NCCL runs on the GPU, 1 to 64. Fewer leave more of the
                            GPU to the program and communicate more slowly. 0 (default): NCCL chooses. Equal on all ranks.
                            NCCL_MAX_CTAS in the environment comes before it */
  int32_t recoverable;   /**< 1: when a rank dies, the other ranks may continue in their processes, see ddp/recover.h. Every
                            rank then listens at one more address, and calls about models on GPUs wait for what the ranks
                            exchange. 0 (default). Equal on all ranks; not for local://, nor with nccl_comm */
  void *nccl_comm;       /**< an ncclComm_t of the same ranks that the program lends (include/GPU.md, "A communicator of
                            your own"): libddp makes none, and never finalises, destroys or aborts it. All ranks lend one,
                            or none (MISMATCH). NULL (default): libddp makes its own */
  int32_t first_port;    /**< connections between processes are listened for on ports from this one on, for a firewall
                            between hosts: one port a rank of a host while connections are made, and rank 0's where the
                            rendezvous names none. 0 (default): DDP_PORT_RANGE in the environment ("50000-50100"), or any */
  int32_t last_port;     /**< to this one, included; 0 with first_port 0 (default) */
  int32_t join;          /**< 1: this process is no rank yet, and joins an existing group that was made with recoverable = 1,
                            in the place of a rank that died or as one more. rank and world_size are what the group makes
                            them (see ddp/recover.h). 0 (default), or 1 if DDP_JOIN=1 is in the environment */
  int32_t virtual_ranks; /**< parts of the global batch, of which each rank has some: training gives the same bits at any
                            number of ranks up to this one (see ddp/virtual_ranks.h). 0 (default): none. Equal on all
                            ranks */
  int32_t connect_all;   /**< 1: all connections for messages (see ddp/messages.h) are made with the group, so that no rank
                            listens for them later. 0 (default): each when two ranks have their first message. Equal on all
                            ranks */
  ddp_links links;       /**< DDP_LINKS_AUTO (default): encrypted between hosts, or DDP_LINKS in the environment (auto,
                            encrypted, plain). DDP_LINKS_ENCRYPTED is NOT_SUPPORTED without a token, and with GPUs on several
                            hosts, whose connections are NCCL's. Equal on all ranks */
  int32_t requests;      /**< 1: the channel for collectives that are posted (see ddp/request.h) is opened with the group, so
                            that the first one may be posted while a pass is open. 0 (default): with the first one. Equal on
                            all ranks */
  int32_t one_thread;    /**< 1: no thread of this rank makes a call on the group while another one is in one, except for
                            ddp_group_abort. Ranks that wait for each other in messages then get DIFFERENT_CALLS (see
                            include/MESSAGES.md). 0 (default): another thread may send later what they wait for, so they wait
                            until TIMED_OUT. Each rank for itself */
} ddp_group_options;

/**
 * Write the defaults.
 * @param options filled; not NULL
 * @param struct_size sizeof(ddp_group_options) as the caller sees it
 * Local, never blocks, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_group_options_init(ddp_group_options *options, int64_t struct_size);

/**
 * Meet the other ranks and form a group. With a world size of 1 nothing is opened and every collective is a local no-op.
 * @param rendezvous where the ranks meet; NULL means "env://". A `#name` at its end tells apart several groups that meet
 *        at one place.
 *        - `env://` reads what torchrun, Open MPI, MPICH, Slurm, Kubernetes indexed jobs or ddprun set;
 *        - `tcp://host:port` rank 0 listens there;
 *        - `file:///path` a file on a file system that all ranks see;
 *        - `local://name` the ranks are threads of this process;
 *        - `store://` the callbacks in `options->store`.
 * @param options NULL: all defaults
 * @param out_group the new group; destroy with ddp_group_destroy
 * Collective, blocks up to rendezvous_timeout_ms. Different threads may create different groups at the same time.
 * Environment: DDP_TOKEN or DDP_TOKEN_FILE (shared secret of 16 bytes or more that admits ranks), DDP_LINKS,
 * DDP_SOCKET_IFNAME (network interfaces), DDP_PORT_RANGE, DDP_MODULE_PATH.
 * Errors: INVALID_ARGUMENT (rank, size or rendezvous that cannot be right), IO (port in use, name not found, wrong token),
 * TIMED_OUT (names the ranks that did not come), PEER_FAILED (a rank that had connected died, or cannot be reached for
 * data), MISMATCH (sizes, versions or options differ), NOT_SUPPORTED (backend not available, and why), OUT_OF_MEMORY. The
 * process may try again at once. With `nccl_comm` NCCL is started here; on all ranks INVALID_ARGUMENT if the communicator of
 * some rank has another size, rank or GPU than its group, or has failed, and NOT_SUPPORTED if the process has not loaded the
 * NCCL that made it. Since 0.1.
 */
DDP_API ddp_status ddp_group_create(const char *rendezvous, const ddp_group_options *options, ddp_group **out_group);

/** Given to ddp_group_split by a rank that takes part in the call but gets no group. Since 0.1. */
#define DDP_NO_COLOR -1

/**
 * Divide a group: ranks that give the same color become a group of their own, as with MPI_Comm_split and ncclCommSplit. The
 * new group has its own connections and memory, so it works independently of its parent, also while a pass is open there.
 * Destroy both in any order. A rank that fails breaks each group it is in; error texts of the new group also give the rank
 * in the group that ddp_group_create made ("rank 1 (world rank 3, ...").
 * @param color 0 or more; DDP_NO_COLOR: this rank gets no group
 * @param key ranks of the new group are numbered by key, and by their rank in `group` where keys are equal
 * @param options NULL: those of `group`, without nccl_comm. Otherwise rank, world_size and store must be as
 *        ddp_group_options_init left them; all ranks of a color give the same backend. nccl_comm is one of the color's ranks
 * @param out_group the new group; NULL with DDP_NO_COLOR. Destroy with ddp_group_destroy
 * Collective over `group`, blocks up to rendezvous_timeout_ms; not in an open pass.
 * Errors: as ddp_group_barrier; INVALID_ARGUMENT; MISMATCH (different backends), NOT_SUPPORTED, IO and OUT_OF_MEMORY (no
 * address, no shared memory) on all ranks of `group`, which stays usable, and no rank gets a new group. Since 0.1.
 */
DDP_API ddp_status ddp_group_split(ddp_group *group, int32_t color, int32_t key, const ddp_group_options *options,
                                   ddp_group **out_group);

/**
 * Leave the group and release it. Pending work is dropped and the other ranks are informed that this one left.
 * Local; returns within 2 s also when peers are dead. Where NCCL was started, it waits for all ranks' GPUs to end what is
 * enqueued and for NCCL's own end, as long as no rank fails: 10 s and half a second a rank at most, or timeout_ms if that is
 * less. NULL and an already destroyed group are ignored. Models made from
 * the group stay valid objects; their collectives then return INVALID_STATE. In a fork of the process that made the group
 * the call does nothing, and the other ranks are not informed. A process that ends by exit() or by a return from main, from
 * any thread, leaves its groups by itself: the other ranks get ABORTED ("... exited without ddp_group_destroy ..."). exit()
 * waits for that, 5 s at most; an atexit() handler that was set up before the group was made then finds a group that can
 * only be destroyed. A process that ends in another way (_exit, quick_exit, a signal) is a dead rank. Of a group that has
 * broken the memory that is still used is moved: no thread writes to it meanwhile. Since 0.1.
 */
DDP_API void ddp_group_destroy(ddp_group *group);

/**
 * Break the group on purpose: everything pending or later on it fails with ABORTED, here at once and on the other ranks
 * within a second, with `reason` in the text.
 * @param reason one sentence for the error text; NULL is allowed
 * Local, never blocks, any thread at any time. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_group_abort(ddp_group *group, const char *reason);

/**
 * Is the group whole? DDP_OK, or the first cause that broke it (its text becomes ddp_last_error()). A broken group stays
 * broken: its calls, and those of its models, repeat this cause until ddp_group_recover has succeeded. The status of another
 * call does not always say whether the group is broken; this function does.
 * Local, any thread. Errors: INVALID_ARGUMENT, INVALID_STATE (destroyed), and the first cause. Since 0.1.
 */
DDP_API ddp_status ddp_group_status(const ddp_group *group);

/** This rank's number, 0 to size - 1; -1 if `group` is not a group. Local, any thread. Since 0.1. */
DDP_API int32_t ddp_group_get_rank(const ddp_group *group);

/** Number of this group in this process: 1 for the first one that was created, and never used again; the same after
 * ddp_group_recover. Other ranks may have another number for it. As in ddp_log_message. 0 if `group` is not a group.
 * Local, any thread. Since 0.1. */
DDP_API int64_t ddp_group_get_number(const ddp_group *group);

/** Number of ranks; -1 if `group` is not a group. Local, any thread. Since 0.1. */
DDP_API int32_t ddp_group_get_size(const ddp_group *group);

/** What the group really uses (never AUTO when the world size is above 1). Local, any thread. Since 0.1. */
DDP_API ddp_backend ddp_group_get_backend(const ddp_group *group);

/**
 * Return when all ranks have called. Collective, blocks.
 * Errors: TIMED_OUT, PEER_FAILED, ABORTED, DIFFERENT_CALLS (another rank made another call, whatever the two are: all ranks
 * learn both calls within a second of the last one), each of which breaks the group; INVALID_STATE (a pass is open on this
 * group); OUT_OF_MEMORY (this rank; the others get PEER_FAILED and the group is broken). They hold for all collectives
 * below.
 * Since 0.1.
 */
DDP_API ddp_status ddp_group_barrier(ddp_group *group);

/**
 * Reduce a tensor over all ranks, in place: afterwards every rank holds the same bits.
 * The sum is formed in a balanced tree over the ranks (include/BITS.md, "How the mean is formed"), so its bits do not
 * depend on which ranks share a host; F16 and BF16 are added in F32 and rounded once; AVERAGE divides the sum, in the
 * precision of the sum, before that rounding; integers wrap, and their AVERAGE is truncated towards zero; of complex numbers
 * there are SUM and AVERAGE.
 * @param tensor this rank's contribution, replaced by the result; same dtype and element count on all ranks; not NULL
 * @param op AVERAGE, SUM, MIN or MAX (a NaN on any rank gives NaN)
 * A tensor on a GPU is added by NCCL: the same bits on every rank, but in an order that NCCL chooses; the AVERAGE of
 * integers is not supported there. With the group option `reproducible` all of the above holds there too.
 * @param stream of a tensor on a GPU: the call waits for the other ranks' calls, not for the device, and the result is there
 *        in the order of this stream
 * Collective, blocks on CPU. Errors: as ddp_group_barrier, and INVALID_ARGUMENT, NOT_SUPPORTED (no CUDA module, driver, GPU
 * or NCCL, and which).
 * Since 0.1.
 */
DDP_API ddp_status ddp_group_all_reduce(ddp_group *group, const ddp_tensor *tensor, ddp_reduce op, void *stream);

/**
 * Collect the tensors of all ranks on every rank.
 * @param input n elements, the same n and dtype on all ranks
 * @param output size * n elements; rank r's input lands at element r * n; may contain `input` at its own place
 * Collective, blocks on CPU. Errors: as ddp_group_all_reduce. Since 0.1.
 */
DDP_API ddp_status ddp_group_all_gather(ddp_group *group, const ddp_tensor *input, const ddp_tensor *output, void *stream);

/**
 * Reduce over all ranks and keep one part: rank r receives elements r * n to (r + 1) * n of the reduced input.
 * @param input size * n elements
 * @param output n elements; may be the own part of `input`
 * @param op as in ddp_group_all_reduce, with the same bits. The mean of F16 on a GPU takes memory as large as `input` at
 *        the first call, which cannot be captured into a graph
 * Collective, blocks on CPU. Errors: as ddp_group_all_reduce. Since 0.1.
 */
DDP_API ddp_status ddp_group_reduce_scatter(ddp_group *group, const ddp_tensor *input, const ddp_tensor *output,
                                            ddp_reduce op, void *stream);

/**
 * Copy rank `root`'s tensor to all ranks, in place.
 * Collective, blocks on CPU. Errors: as ddp_group_all_reduce. Since 0.1.
 */
DDP_API ddp_status ddp_group_broadcast(ddp_group *group, const ddp_tensor *tensor, int32_t root, void *stream);

/**
 * Reduce a few host numbers (loss sum, number of samples, number right) in one message.
 * Sum first and divide afterwards: with unequal sample counts an average of averages is wrong.
 * @param values `count` doubles, replaced by the result, the same bits on every rank
 * @param count 1 to 1,024
 * Collective, blocks. Errors: as ddp_group_all_reduce. Since 0.1.
 */
DDP_API ddp_status ddp_group_reduce_metrics(ddp_group *group, double *values, int64_t count, ddp_reduce op);

/**
 * Memory within reach of the other ranks of this host: parameters and gradients in it are reduced in place,
 * without a copy. Zeroed, aligned to 64 bytes. In a group made with DDP_BACKEND_NCCL it is memory of this rank's GPU,
 * from ncclMemAlloc.
 * @param bytes 1 or more
 * @param out_data the memory; free with ddp_group_free, at the latest before ddp_group_destroy, which frees the rest
 * Local. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT; of a GPU also INTERNAL with NCCL's words. Since 0.1.
 */
DDP_API ddp_status ddp_group_alloc(ddp_group *group, int64_t bytes, void **out_data);

/** Free memory from ddp_group_alloc. Destroy all models that use it before. Local; memory of a GPU is freed when what is
 * enqueued there is done, which this waits for. NULL data is ignored.
 * Errors: INVALID_ARGUMENT (not from this group, or freed already). Since 0.1. */
DDP_API ddp_status ddp_group_free(ddp_group *group, void *data);

#ifdef __cplusplus
}
#endif
#endif
