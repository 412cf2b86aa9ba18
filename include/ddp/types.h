/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Types that every other header uses. Nothing here is a function with an effect.
 *
 * Rules that hold for the whole API (include/API.md explains them):
 *  - a function that can fail returns ddp_status; its text is ddp_last_error();
 *  - outputs are the trailing `out_*` pointers and are untouched on failure;
 *  - structs that may grow start with `struct_size`, their sizeof: the `_init` function of options writes it, else the
 *    caller;
 *  - `stream` is a cudaStream_t passed as void *, in whose order tensors on a GPU are read and written (NULL: the legacy
 *    default stream); it means nothing for tensors in host memory;
 *  - "collective" means: every rank of the group makes the same call in the same order; "local" means it does not matter
 *    to the others.
 */
#ifndef DDP_TYPES_H
#define DDP_TYPES_H

#ifndef SWIG /* it knows these types by itself */
#include <stdint.h>
#endif

#if defined(_MSC_VER)
#define DDP_API
#elif defined(SWIG)
#define DDP_API
#else
#define DDP_API __attribute__((visibility("default")))
#endif

/* In C++ an enumeration has 32 bits because we say so, and any value may be stored in it; C does both by itself. */
#if defined(__cplusplus) && !defined(SWIG)
#define DDP_INT32 : int32_t
#else
#define DDP_INT32
#endif

/** Version of these headers; compare DDP_VERSION with ddp_version(). major * 1000000 + minor * 1000 + patch. */
#define DDP_VERSION 1000
#define DDP_VERSION_STRING "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/** Result of a call. Is the group broken? ddp_group_status answers that after any error: DDP_OK, or the first cause, which
 * later calls on the group repeat until ddp_group_recover. 5, 6, 7 and 16 always break the group; 4 and 11 may. Since 0.1.
 */
typedef enum ddp_status DDP_INT32 {
  DDP_OK = 0,
  DDP_ERROR_INVALID_ARGUMENT = 1, /**< a value that can never be right: NULL, out of range, wrong dtype */
  DDP_ERROR_INVALID_STATE = 2,    /**< the right call at the wrong moment; the text names the state and what leaves it */
  DDP_ERROR_NOT_SUPPORTED = 3,    /**< this build, machine or version cannot do it; the text names what is missing */
  DDP_ERROR_OUT_OF_MEMORY = 4,    /**< memory, descriptors or threads ran out; the text names which */
  DDP_ERROR_TIMED_OUT = 5,        /**< a rank is alive but did not come in time; the text names it */
  DDP_ERROR_PEER_FAILED = 6,      /**< a rank is dead, stopped, unreachable or out of memory; the text names it */
  DDP_ERROR_ABORTED = 7,          /**< a rank called ddp_group_abort, or left; the text has its rank and reason */
  DDP_ERROR_MISMATCH = 8,         /**< ranks, or a rank and a file, differ in the arguments of one call; the text names the
                                       first difference and the ranks */
  DDP_ERROR_IO = 9,               /**< a file, a port or a name could not be used; the text names it */
  DDP_ERROR_CALLBACK = 10,        /**< a user callback returned an error; its text is kept */
  DDP_ERROR_INTERNAL = 11,        /**< a defect of libddp; please report the text */
  DDP_ERROR_TOO_FEW_RANKS = 12,   /**< of ddp_group_recover: fewer ranks are left than min_ranks; the text names them */
  DDP_ERROR_FENCED = 13, /**< of ddp_group_recover: this rank was silent, and the other ranks have continued without it */
  DDP_ERROR_NO_CHECKPOINT = 14, /**< of ddp_state_load_latest: the folder is there and holds none, as before a first start */
  DDP_ERROR_NO_MAJORITY = 15,   /**< of ddp_group_recover: unreachable ranks may continue without this one, so this
                                     one may not; the text names them */
  DDP_ERROR_DIFFERENT_CALLS = 16 /**< ranks wait for each other in different calls, or in calls on data of other sizes; the
                                      text names two ranks and their calls */
} ddp_status;

/** Element type of a tensor. Since 0.1. */
typedef enum ddp_dtype DDP_INT32 {
  DDP_F32 = 1,
  DDP_F64 = 2,
  DDP_F16 = 3,
  DDP_BF16 = 4,
  DDP_I32 = 5,
  DDP_I64 = 6,
  DDP_U8 = 7,
  DDP_C64 = 8, /**< complex number of two F32 (real, imaginary), as C's float complex; at most 7 dimensions. Treated as its
                  two parts everywhere: sums and averages are those of complex numbers, MIN and MAX do not exist; optimizers,
                  norms, averages and hooks see twice as many real numbers, and checkpoints hold real tensors with a last
                  dimension of 2 */
  DDP_C128 = 9 /**< the same of two F64 */
} ddp_dtype;

/** Where a tensor's memory is. The numbers are DLPack's. Since 0.1. */
typedef enum ddp_device_kind DDP_INT32 { DDP_CPU = 1, DDP_CUDA = 2 } ddp_device_kind;

/** How values of all ranks become one. AVERAGE is the sum divided by the world size. PRODUCT is for the collectives of
 * groups, not for gradients. Since 0.1. */
typedef enum ddp_reduce DDP_INT32 { DDP_AVERAGE = 0, DDP_SUM = 1, DDP_MIN = 2, DDP_MAX = 3, DDP_PRODUCT = 4 } ddp_reduce;

/**
 * How the bytes of a group are sent. AUTO chooses: shared memory between ranks of one host, Gloo between hosts; and NCCL for
 * tensors on a GPU, from the first model or collective with one. Since 0.1.
 */
typedef enum ddp_backend DDP_INT32 {
  DDP_BACKEND_AUTO = 0,
  DDP_BACKEND_GLOO = 1, /**< Gloo between all ranks, also on one host */
  DDP_BACKEND_NCCL = 2, /**< as AUTO, but NCCL is started with the group, and ddp_group_alloc lends memory of the GPU */
  DDP_BACKEND_SHM = 3,  /**< shared memory; an error when the ranks are not on one host */
  DDP_BACKEND_LOCAL = 4 /**< reported by groups made with local://: ranks are threads of one process */
} ddp_backend;

/**
 * In which order the ranks' contributions are added. The sum is a balanced tree; this option chooses the leaf of each rank.
 * BY_RANK: the bits do not depend on which ranks share a host. BY_HOST: the ranks of a host are added first, so each host
 * sends one partial sum, whatever its number of ranks; the bits depend on which ranks share a host. Since 0.1.
 */
typedef enum ddp_sum_order DDP_INT32 { DDP_SUM_ORDER_BY_RANK = 0, DDP_SUM_ORDER_BY_HOST = 1 } ddp_sum_order;

/**
 * How data is sent between processes that share no memory. ENCRYPTED: TLS 1.3 with a key made of the group's token: an
 * attacker on the way cannot read it, and bytes that are changed, repeated, dropped or reordered are an error. PLAIN: only
 * TCP's checksum protects it. AUTO: encrypted if the group has a token, except for connections to a loopback address. NCCL's
 * connections between GPUs are always plain. Since 0.1.
 */
typedef enum ddp_links DDP_INT32 { DDP_LINKS_AUTO = 0, DDP_LINKS_ENCRYPTED = 1, DDP_LINKS_PLAIN = 2 } ddp_links;

/** Largest number of dimensions of a ddp_tensor. */
#define DDP_MAX_DIMENSIONS 8

/**
 * A dense, row-major tensor that the caller owns. A plain value, frozen: it never changes its layout.
 * Fill it by hand or with ddp_tensor_init(). Since 0.1.
 */
typedef struct ddp_tensor {
  void *data;                        /**< first element; NULL only when the tensor has no element */
  ddp_dtype dtype;                   /**< element type */
  ddp_device_kind device;            /**< DDP_CPU or DDP_CUDA */
  int32_t device_index;              /**< which GPU; 0 on CPU */
  int32_t ndim;                      /**< 0 (a scalar) to DDP_MAX_DIMENSIONS */
  int64_t shape[DDP_MAX_DIMENSIONS]; /**< elements per dimension; entries from ndim on are ignored */
} ddp_tensor;

typedef struct ddp_group ddp_group;         /**< ranks that act together */
typedef struct ddp_model ddp_model;         /**< parameters and buffers lent to libddp, and their gradients */
typedef struct ddp_optimizer ddp_optimizer; /**< updates the parameters of a model */
typedef struct ddp_ema ddp_ema;             /**< running averages of a model's parameters */
typedef struct ddp_outer ddp_outer;         /**< exchanges movements of ranks that make steps on their own */

/**
 * Describe a dense CPU tensor. Fields not named here get their usual value.
 * @param tensor filled; not NULL
 * @param data first element; the caller's, not copied
 * @param dtype element type
 * @param ndim number of dimensions, 0 to DDP_MAX_DIMENSIONS
 * @param shape ndim element counts, each 0 or more; may be NULL when ndim is 0
 * Local, never blocks, any thread.
 * Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_tensor_init(ddp_tensor *tensor, void *data, ddp_dtype dtype, int32_t ndim, const int64_t *shape);

#ifdef __cplusplus
}
#endif
#endif
