/* SPDX-License-Identifier: Apache-2.0 */
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
  const void *grad; /* only read, unless it is divided */
  void *state[2];   /* Adam: exp_avg, exp_avg_sq; SGD: momentum buffer or NULL, NULL. F32 (F64 for F64 values) */
  void *master;     /* F32 copy of an F16 or BF16 value, or NULL */
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
  double divisor; /* not 0: gradients are sums, and before all else become in memory what they are divided by it, as by
                     move_quotient. Not with a gate */
} ddp_gpu_shape;

/* How far an optimizer has come whose steps a GPU counts. Page-locked memory: plan_step changes it in the order of its
 * stream, and the host uses it only while no step is under way. */
typedef struct ddp_gpu_progress {
  double rate;
  double loss_scale, growth, backoff, minimum, maximum;
  int64_t interval;   /* good steps until the loss scale grows; 0: it stays */
  int64_t good_steps; /* since it changed last */
  int64_t steps;      /* made */
  int64_t skipped;    /* left out because of their gradients */
  double norm;        /* of the last step that looked at its gradients */
} ddp_gpu_progress;

/* The same of one parameter. */
typedef struct ddp_gpu_parameter {
  double weight_decay;
  double rate_scale; /* 0: it is frozen */
  int64_t steps;
} ddp_gpu_parameter;

/* What a rule needs besides rate, weight decay and step counts (ddp_adam_options, ddp_sgd_options). */
typedef struct ddp_gpu_rule_options {
  int32_t is_adam; /* not 0: the first three doubles and `decoupled`; 0: the last two and `nesterov` */
  int32_t decoupled;
  int32_t nesterov;
  int32_t reserved;
  double beta1, beta2, epsilon;
  double momentum, dampening;
} ddp_gpu_rule_options;

/* The scalars of one parameter in one step. Device memory. */
typedef struct ddp_gpu_planned_rule {
  ddp_gpu_adam_rule adam;
  ddp_gpu_sgd_rule sgd;
  int32_t active; /* 0: the parameter stays as it is */
  int32_t reserved;
} ddp_gpu_planned_rule;

/* What plan_step decides from, and where it writes. */
typedef struct ddp_gpu_step {
  ddp_gpu_progress *progress;    /* device address of page-locked memory, as are the parameters */
  ddp_gpu_parameter *parameters; /* `count` of them */
  int64_t count;
  const uint64_t *used; /* host memory: bit k is set if parameter k takes part */
  const int64_t *words; /* device memory: of the sum of the gradients' squares; NULL: the step does not look at them */
  double max_norm;      /* as of decide */
  int32_t skip_nonfinite;
  int32_t has_rate; /* not 0: `rate` counts and not that of progress */
  double rate;
  ddp_gpu_rule_options rule;
  ddp_gpu_gate *gate;          /* device memory; written */
  ddp_gpu_planned_rule *rules; /* device memory; `count` of them are written */
} ddp_gpu_step;

#ifdef __cplusplus
}
#endif
#endif
