/* What loops and kernels take: spans, updates and the scalars of rules. Plain C, because it crosses the table of the GPU
 * module (device/gpu/gpu_abi.h); host memory takes the same (device/device.hpp). */
#ifndef DDP_DEVICE_WORK_H
#define DDP_DEVICE_WORK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a kernel looks at before it changes anything: a word that the host can set at any time (memory from host_alloc). Not
 * 0: the kernel does nothing. NULL: no such word. */
typedef const uint32_t *ddp_gpu_stop;

/* `count` elements from `from` to `to` (which may be equal; otherwise they do not overlap). */
typedef struct ddp_gpu_span {
  void *from;
  void *to;
  int64_t count;
} ddp_gpu_span;

/* What the device decides about a step that the host has not seen yet (see decide). Device memory. */
typedef struct ddp_gpu_gate {
  double scale;  /* what gradients are multiplied with */
  double norm;   /* 2-norm of the gradients without the loss scale, before clipping */
  uint32_t skip; /* not 0: the step is left out */
  uint32_t reserved;
} ddp_gpu_gate;

/* Elements of one parameter that a rule changes. */
typedef struct ddp_gpu_update {
  void *value;
  const void *grad;
  void *state[2]; /* Adam: exp_avg, exp_avg_sq; SGD: momentum buffer or NULL, NULL. F32 (F64 for F64 values) */
  void *master;   /* F32 copy of an F16 or BF16 value, or NULL */
  int64_t count;
  int64_t rule; /* its position in the array of rules */
} ddp_gpu_update;

/* The scalars of device/cpu/update_kernels.hpp, which has the formulas. */
typedef struct ddp_gpu_adam_rule {
  double keep, weight_decay, beta1, share1, beta2, share2, size, root_scale, epsilon;
} ddp_gpu_adam_rule;

typedef struct ddp_gpu_sgd_rule {
  double rate, weight_decay, momentum, gradient_share;
  int32_t mode; /* 0: no buffer, 1: the buffer becomes the gradient, 2: running */
  int32_t nesterov;
} ddp_gpu_sgd_rule;

/* What a gradient goes through before a rule uses it: g * scale, then limited to [-limit, limit] (infinity: not at all). */
typedef struct ddp_gpu_shape {
  double scale;
  double limit;
  const ddp_gpu_gate *gate; /* device memory, or NULL: its scale in the place of `scale`, and its skip */
} ddp_gpu_shape;

#ifdef __cplusplus
}
#endif
#endif
