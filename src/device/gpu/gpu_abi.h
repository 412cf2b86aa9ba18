/* SPDX-License-Identifier: Apache-2.0 */
/* The table between libddp and the module that knows a GPU (libddp_cuda.so). Plain C: no exception, no C++ type and no CUDA
 * type crosses it; streams and events are void *. A module exports one function, ddp_gpu_query(version); everything else is
 * found in the table.
 *
 * The module is thin on purpose: it calls the runtime, launches kernels and opens NCCL. What to do, in which order, and what
 * to do about a failure is decided in the core (device/gpu, nccl), so that it can be tested with a table that
 * needs no GPU (tests/support/fake_gpu).
 *
 * Functions return 0 or a code of the runtime (NCCL functions: of NCCL); error_text returns its meaning, error_kind what to
 * do about it. They work on the calling thread's current device. Functions block only where their comment states it.
 * Threads: any; one NCCL communicator is used by one thread at a time, except for nccl_abort and nccl_async_error. Arrays of
 * spans, updates and rules are host memory, read before the call returns. Kernels run in the order of the stream.
 */
#ifndef DDP_GPU_ABI_H
#define DDP_GPU_ABI_H

#include <stdint.h>

#include "device/work.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Changes whenever a function changes its meaning; functions that are only added grow struct_size. */
#define DDP_GPU_VERSION 3
#define DDP_GPU_QUERY_NAME "ddp_gpu_query"

enum ddp_gpu_error_kind {
  DDP_GPU_OK = 0,
  DDP_GPU_OUT_OF_MEMORY = 1,
  DDP_GPU_BAD_ARGUMENT = 2, /* an invalid stream or pointer */
  DDP_GPU_NO_DRIVER = 3,    /* no driver, or older than the module needs */
  DDP_GPU_NO_DEVICE = 4,
  DDP_GPU_CAPTURE = 5, /* not possible while a stream is captured into a graph */
  DDP_GPU_LOST = 6,    /* sticky: every later call of this process fails; only a new process helps */
  DDP_GPU_OTHER = 7,
  DDP_GPU_NOT_READY = 8, /* the machine's GPUs are not set up: its fabric manager does not run */
  DDP_GPU_NO_CODE = 9    /* the module has no code for this GPU */
};

/* Batch normalisation (extra/batch_norm/batch_norm.cpp, extra/batch_norm/moments.hpp): values [rows, channels, inner] of
 * one floating ddp_dtype. */
typedef struct ddp_gpu_batch {
  int64_t rows;
  int64_t channels;
  int64_t inner;
  int32_t dtype;
  int32_t reserved;
} ddp_gpu_batch;

/* One value for each channel, of any floating ddp_dtype. data NULL: there are none. */
typedef struct ddp_gpu_channels {
  void *data;
  int32_t dtype;
  int32_t reserved;
} ddp_gpu_channels;

/* Moments of all ranks to the factors of bn_apply. Without blocks: from the running statistics (not training). */
typedef struct ddp_gpu_bn_join {
  const double *blocks; /* as bn_moments wrote them, 1 + 2 * channels numbers each, in rank order; or NULL */
  int64_t block_count;
  int64_t channels;
  double epsilon;
  double momentum;
  ddp_gpu_channels weight, bias;
  ddp_gpu_channels running_mean, running_var; /* with blocks: updated, both or neither */
  ddp_gpu_channels saved_mean, saved_invstd;  /* written */
  double *coefficients;                       /* written: mean, factor, shift, `channels` of each */
} ddp_gpu_bn_join;

/* Sums of all ranks to the factors of bn_apply_backward and to the gradients of weight and bias. */
typedef struct ddp_gpu_bn_slopes {
  const double *own; /* as bn_sums wrote them, of this rank: for dweight and dbias */
  const double *all; /* of all ranks together: for dx; not read when coefficients is NULL */
  int64_t channels;
  double share;       /* 1 / values per channel over all ranks; 0 when not training */
  int32_t accumulate; /* not 0: dweight and dbias are added to */
  int32_t reserved;
  ddp_gpu_channels weight, saved_mean, saved_invstd;
  ddp_gpu_channels dweight, dbias; /* written */
  double *coefficients;            /* written: mean, factor, slope, shift, `channels` of each; or NULL */
} ddp_gpu_bn_slopes;

/* How NCCL, and tree_sum, reduce. */
enum ddp_gpu_reduce { DDP_GPU_SUM = 0, DDP_GPU_MIN = 2, DDP_GPU_MAX = 3, DDP_GPU_PRODUCT = 4 }; /* the tree has no PRODUCT */

/* One slice of the tensors of all ranks, to be added by the rule of device/cpu/reduce.hpp: a tree over the ranks. */
typedef struct ddp_gpu_tree {
  const void *parts; /* device memory: the slice of rank r begins at element r * stride; that of `rank` is not read */
  const void *own;   /* the slice of `rank` */
  void *out;         /* the result. May be `own`, or the place of `rank` among the parts */
  int64_t stride;
  int64_t count; /* elements of a slice */
  int32_t rank;
  int32_t ranks;         /* 1 to 8,192 */
  int32_t dtype;         /* of the slices and the result; not complex */
  int32_t reduce;        /* a ddp_gpu_reduce */
  const double *weights; /* device memory, of each rank: floats are multiplied by it; or NULL */
  double divisor;        /* the result is divided by it; 1: it is not */
  int32_t by_weight;     /* not 0: it is divided by the sum of the weights in F64, formed in the same tree */
  int32_t rounds_nodes;  /* not 0: every sum is rounded to `dtype`, which has 16 bits */
} ddp_gpu_tree;

#define DDP_NCCL_ID_BYTES 128

/* NCCL, opened at run time. 0 is success; kinds of failure: see nccl_error_kind. */
enum ddp_nccl_error_kind {
  DDP_NCCL_OK = 0,
  DDP_NCCL_IN_PROGRESS = 1,
  DDP_NCCL_BAD_ARGUMENT = 2, /* the communicator stays usable */
  DDP_NCCL_REMOTE = 3,       /* another rank, or the network to it */
  DDP_NCCL_FAILED = 4        /* anything else: the communicator is lost */
};

typedef struct ddp_nccl_table {
  int64_t struct_size;
  int32_t library_version; /* as from ncclGetVersion: 22809 */
  int32_t reserved;
  const char *path; /* the file that was opened; valid for ever */
  const char *(*error_text)(int32_t result);
  int32_t (*error_kind)(int32_t result);
  const char *(*last_error)(void *comm); /* comm may be NULL; never NULL */
  int32_t (*get_unique_id)(void *id);
  /* A communicator whose calls do not block: a call may return a result of the kind IN_PROGRESS, and the communicator then
   * accepts only comm_async_error, until that returns another result, and comm_abort. The same applies to comm_init, until
   * all ranks have come. (The user's environment may still make NCCL block.) max_ctas 0: NCCL's choice. */
  int32_t (*comm_init)(void **out, int32_t size, const void *id, int32_t rank, const char *name, int32_t max_ctas);
  int32_t (*comm_abort)(void *comm);    /* ends what runs on the device, frees the communicator; may block. Not while another
                                           thread is inside comm_init */
  int32_t (*comm_finalize)(void *comm); /* before comm_destroy */
  int32_t (*comm_destroy)(void *comm);
  int32_t (*comm_async_error)(void *comm, int32_t *out_result);
  /* dtype: a ddp_dtype; reduce: a ddp_gpu_reduce. In place: send == receive (all_gather, reduce_scatter: at the own
   * place). */
  int32_t (*all_reduce)(const void *send, void *receive, int64_t count, int32_t dtype, int32_t reduce, void *comm,
                        void *stream);
  int32_t (*reduce_scatter)(const void *send, void *receive, int64_t receive_count, int32_t dtype, int32_t reduce,
                            void *comm, void *stream);
  int32_t (*all_gather)(const void *send, void *receive, int64_t send_count, int32_t dtype, void *comm, void *stream);
  int32_t (*broadcast)(const void *send, void *receive, int64_t count, int32_t dtype, int32_t root, void *comm,
                       void *stream);
  int32_t (*group_start)(void);
  int32_t (*group_end)(void);
  /* Memory that NCCL can reach without a copy; falls back to plain device memory. mem_free does not wait for the device. */
  int32_t (*mem_alloc)(void **out, int64_t bytes);
  int32_t (*mem_free)(void *memory);
  /* Collectives on registered memory may then wait for the hosts of the other ranks, whatever happens to them. */
  int32_t (*comm_register)(void *comm, void *memory, int64_t bytes, void **out_handle);
  int32_t (*comm_deregister)(void *comm, void *handle);
  /* Of a communicator that the program made: ranks, own rank, the number of its device in this process. */
  int32_t (*comm_count)(void *comm, int32_t *out_size);
  int32_t (*comm_user_rank)(void *comm, int32_t *out_rank);
  int32_t (*comm_device)(void *comm, int32_t *out_device);
  /* To and from one other rank; the n-th one sent meets the n-th one received. Those between group_start and group_end run
   * at the same time. */
  int32_t (*send)(const void *data, int64_t count, int32_t dtype, int32_t peer, void *comm, void *stream);
  int32_t (*receive)(void *data, int64_t count, int32_t dtype, int32_t peer, void *comm, void *stream);
} ddp_nccl_table;

typedef struct ddp_gpu_table {
  int64_t struct_size;
  int32_t version;
  int32_t reserved;
  const char *name; /* "CUDA 13.0" */

  const char *(*error_name)(int32_t code);
  const char *(*error_text)(int32_t code);
  int32_t (*error_kind)(int32_t code);

  /* The runtime. */
  int32_t (*driver_version)(int32_t *out_version); /* 0: no driver */
  int32_t (*device_count)(int32_t *out_count);
  int32_t (*device_name)(int32_t device, char *buffer, int64_t capacity);
  int32_t (*get_device)(int32_t *out_device);
  int32_t (*set_device)(int32_t device);
  int32_t (*synchronize)(void);  /* blocks until the device is idle */
  int32_t (*load_kernels)(void); /* so that no later launch loads code, which may wait for what runs */
  int32_t (*alloc)(void **out, int64_t bytes);
  int32_t (*free)(void *memory);
  /* Page-locked host memory that the device can read and write; zeroed. */
  int32_t (*host_alloc)(void **out_host, void **out_device, int64_t bytes);
  int32_t (*host_free)(void *host);
  /* *out_device: on which it was allocated, -1: no device memory; *out_host_reads: not 0 if the host can read it too
   * (managed memory). Asks the driver, and starts nothing. */
  int32_t (*pointer_device)(const void *memory, int32_t *out_device, int32_t *out_host_reads);
  int32_t (*stream_create)(void **out, int32_t high_priority); /* does not wait for the legacy default stream */
  int32_t (*stream_destroy)(void *stream);
  int32_t (*stream_synchronize)(void *stream); /* blocks */
  int32_t (*stream_is_capturing)(void *stream, int32_t *out_capturing);
  int32_t (*event_create)(void **out, int32_t timing);
  int32_t (*event_destroy)(void *event);
  int32_t (*event_record)(void *event, void *stream);
  int32_t (*event_synchronize)(void *event); /* blocks */
  int32_t (*event_query)(void *event, int32_t *out_done);
  int32_t (*event_elapsed)(void *from, void *to, double *out_ms);
  int32_t (*stream_wait)(void *stream, void *event);
  int32_t (*copy)(void *to, const void *from, int64_t bytes,
                  void *stream); /* any direction; pageable host memory may block */
  int32_t (*fill)(void *memory, int32_t byte, int64_t bytes, void *stream);
  /* This thread's calls no longer disturb captures of other threads. For the watchdog. */
  int32_t (*relax_capture)(void);

  /* Kernels. Any number of spans; one launch for about a thousand. dtypes are floating ddp_dtypes. */

  /* to[i] = limited(from[i] * factor), widened to F32 (F64 if either is F64), rounded once to `to`. from NULL: zeros. */
  int32_t (*move)(const ddp_gpu_span *spans, int64_t count, int32_t from_dtype, int32_t to_dtype, double factor,
                  double limit, ddp_gpu_stop stop, void *stream);
  /* Swaps the bytes of from and to; counts are bytes. */
  int32_t (*exchange)(const ddp_gpu_span *spans, int64_t count, void *stream);
  /* to[i] = decay * to[i] + (1 - decay) * from[i]; `to` has the moment type of `dtype`. */
  int32_t (*ema)(const ddp_gpu_span *spans, int64_t count, int32_t dtype, double decay, ddp_gpu_stop stop, void *stream);
  int32_t (*adam)(const ddp_gpu_update *updates, int64_t count, const ddp_gpu_adam_rule *rules, int64_t rule_count,
                  int32_t dtype, const ddp_gpu_shape *shape, ddp_gpu_stop stop, void *stream);
  int32_t (*sgd)(const ddp_gpu_update *updates, int64_t count, const ddp_gpu_sgd_rule *rules, int64_t rule_count,
                 int32_t dtype, const ddp_gpu_shape *shape, ddp_gpu_stop stop, void *stream);
  /* Adds the terms of the p-norm (1 or 2) of the spans (`from`) to the 70 words of a core/exact_sum: the same bits as
   * device/cpu/arrays.hpp's add_norm_terms. `words`: device memory. */
  int32_t (*add_norm_terms)(const ddp_gpu_span *spans, int64_t count, int32_t dtype, int32_t p, int64_t *words,
                            void *stream);
  /* *bits becomes the larger of itself and the bits of the largest |x| as F64, NaN above all. Device memory, 0 before the
   * first call. */
  int32_t (*largest)(const ddp_gpu_span *spans, int64_t count, int32_t dtype, uint64_t *bits, void *stream);
  /* From the words of a sum of squares, as optim/policy.cpp's decide: norm = sqrt(sum) / loss_scale; scale = 1 / loss_scale,
   * and if max_norm > 0 and not max_norm / (norm + 1e-6) >= 1, times that; skip = skip_nonfinite and the sum is not
   * finite. Writes *gate. */
  int32_t (*decide)(const int64_t *words, double loss_scale, double max_norm, int32_t skip_nonfinite, ddp_gpu_gate *gate,
                    void *stream);
  /* out[k] = a 64-bit hash of the bytes of span k (`from`, count bytes), the same on every GPU; out: device memory. */
  int32_t (*hash)(const ddp_gpu_span *spans, int64_t count, uint64_t *out, void *stream);

  /* Open NCCL: `path`, or if that is NULL or empty a copy that the process has loaded already, or else the loader's search.
   * 0, or 1 with one line in `error` about the attempts. The table is valid for ever. */
  int32_t (*open_nccl)(const char *path, const ddp_nccl_table **out, char *error, int64_t capacity);

  /* Batch normalisation: arithmetic in F64, results rounded once; the same input gives the same bits. All pointers are
   * device memory but `batch`, `join` and `slopes`, which are read before the call returns. */

  /* Bytes of scratch memory that bn_moments and bn_sums need; it may be used again by whatever follows them on the
   * stream. */
  int64_t (*bn_scratch_bytes)(const ddp_gpu_batch *batch);
  /* out: count, then the mean of each channel, then the sum of squared differences of each. */
  int32_t (*bn_moments)(const ddp_gpu_batch *batch, const void *x, double *out, void *scratch, void *stream);
  /* Nothing is written when there is not one value on any rank. */
  int32_t (*bn_join)(const ddp_gpu_bn_join *join, ddp_gpu_stop stop, void *stream);
  /* y = (x - mean) * factor + shift; coefficients: of bn_join. y may be x. */
  int32_t (*bn_apply)(const ddp_gpu_batch *batch, const void *x, const double *coefficients, void *y, ddp_gpu_stop stop,
                      void *stream);
  /* out: for each channel the sum of dy, then for each the sum of dy * (x - mean). */
  int32_t (*bn_sums)(const ddp_gpu_batch *batch, const void *dy, const void *x, const ddp_gpu_channels *mean, double *out,
                     void *scratch, void *stream);
  int32_t (*bn_slopes)(const ddp_gpu_bn_slopes *slopes, ddp_gpu_stop stop, void *stream);
  /* dx = dy * factor - (x - mean) * slope - shift; coefficients: of bn_slopes. dx may be dy. */
  int32_t (*bn_apply_backward)(const ddp_gpu_batch *batch, const void *dy, const void *x, const double *coefficients,
                               void *dx, ddp_gpu_stop stop, void *stream);

  /* Has this process begun to use the device? Making current one that it has not used takes hundreds of MiB of its
   * memory. */
  int32_t (*device_is_used)(int32_t device, int32_t *out_used);

  /* *to = *from by a kernel, not by the copy engine. `from`: device address of page-locked memory; `to`: device memory. */
  int32_t (*copy_word)(const uint32_t *from, uint32_t *to, void *stream);
  /* Bytes from `from` to `to`; counts are bytes. One launch, where `copy` would be a call for each. */
  int32_t (*copy_bytes)(const ddp_gpu_span *spans, int64_t count, ddp_gpu_stop stop, void *stream);

  /* Which capture the stream is in, by a number that no other capture of the process has; 0: it is not captured. */
  int32_t (*stream_capture)(void *stream, uint64_t *out_capture);
  /* As open_nccl, but of files that the process has loaded already: the one whose communicators it has. */
  int32_t (*find_nccl)(const ddp_nccl_table **out, char *error, int64_t capacity);
  /* to[i] = from[i] * factor / divisor, widened as in `move`, both rounded, and then once to `to`; a NaN becomes the
   * positive quiet one without payload. divisor 1: the product alone. from NULL: zeros. */
  int32_t (*move_quotient)(const ddp_gpu_span *spans, int64_t count, int32_t from_dtype, int32_t to_dtype, double factor,
                           double divisor, ddp_gpu_stop stop, void *stream);
  /* `tree` is read before the call returns. */
  int32_t (*tree_sum)(const ddp_gpu_tree *tree, ddp_gpu_stop stop, void *stream);

  /* One step of an optimizer, decided and counted on the device: the gate as of `decide`, with the loss scale of progress,
   * which then counts the step (optim/loss_scale.cpp); a step is left out if the squares are not finite and either
   * skip_nonfinite is set or the loss scale is dynamic, or if `stop` is set, which counts nothing. rules[k] are the
   * scalars of parameter k by optim/rules.cpp, with the same bits; active if it takes part, is not frozen and the step is
   * made, and then its steps are counted. `step` is read before the call returns. `stop` may be page-locked: it is read
   * once. */
  int32_t (*plan_step)(const ddp_gpu_step *step, ddp_gpu_stop stop, void *stream);
  /* As adam and sgd, by rules in device memory that plan_step wrote. */
  int32_t (*planned_adam)(const ddp_gpu_update *updates, int64_t count, const ddp_gpu_planned_rule *rules,
                          int64_t rule_count, int32_t dtype, const ddp_gpu_shape *shape, ddp_gpu_stop stop, void *stream);
  int32_t (*planned_sgd)(const ddp_gpu_update *updates, int64_t count, const ddp_gpu_planned_rule *rules, int64_t rule_count,
                         int32_t dtype, const ddp_gpu_shape *shape, ddp_gpu_stop stop, void *stream);
} ddp_gpu_table;

/* The table of this module, or NULL when it has not this `version`. Valid as long as the module is loaded. */
typedef const ddp_gpu_table *(*ddp_gpu_query_fn)(int32_t version);

#ifdef __cplusplus
}
#endif
#endif
