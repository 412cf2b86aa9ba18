/* SPDX-License-Identifier: Apache-2.0 */
/* A program with tensors on GPUs that forks: the child destroys what it inherited, in any order and at its exit, and neither
 * CUDA nor NCCL nor page-locked memory is touched by it; the parent continues. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ddp/ddp.h"
#include "support/check.h"
#include "support/fake_gpu/fake_gpu_control.h"
#include "support/ranks.h"

enum { kCount = 1000, kRanks = 2 };

static const ddp_gpu_table *gpu(void) { return ddp_gpu_query(DDP_GPU_VERSION); }

/* What one rank has. */
typedef struct training {
  ddp_group *group;
  ddp_model *model;
  ddp_optimizer *optimizer;
  ddp_ema *ema;
  void *shared; /* memory of the group */
  void *stream, *value;
} training;

static training left_at_exit;

static void destroy(const training *of) {
  if (of->shared != NULL) ddp_group_free(of->group, of->shared);
  ddp_group_destroy(of->group); /* the other way round */
  ddp_model_destroy(of->model);
  ddp_optimizer_destroy(of->optimizer);
  ddp_ema_destroy(of->ema);
}
static void destroy_at_exit(void) { destroy(&left_at_exit); }

static ddp_group *make_gpu_group(const char *place, int32_t index) {
  ddp_group *group = NULL;
  check_defaults(group_options, options);
  options.rank = options.device_index = index;
  options.world_size = kRanks;
  options.backend = DDP_BACKEND_NCCL;
  options.timeout_ms = options.rendezvous_timeout_ms = 20000;
  check_ok(ddp_group_create(place, &options, &group));
  return group;
}

static training make_training(int32_t index) {
  training made = {0};
  const double decay = 0.5;
  ddp_optimizer_options options;
  check_true(gpu()->set_device(index) == 0);
  made.group = make_gpu_group("local://gpu-fork", index);
  check_true(gpu()->alloc(&made.value, kCount * 4) == 0);
  check_true(gpu()->stream_create(&made.stream, 0) == 0);
  check_true(gpu()->fill(made.value, 0, kCount * 4, made.stream) == 0);
  const ddp_tensor value = {made.value, DDP_F32, DDP_CUDA, index, 1, {kCount}};
  check_ok(ddp_group_alloc(made.group, 64, &made.shared));
  check_ok(ddp_model_create(made.group, NULL, &made.model));
  check_ok(ddp_model_add_parameter(made.model, "w", &value, NULL, NULL)); /* its gradient is memory of the group */
  check_ok(ddp_optimizer_options_init(&options, sizeof options));
  options.shard = 1;
  options.max_norm = 1; /* with page-locked memory */
  check_ok(ddp_optimizer_create_adam(made.model, NULL, &options, &made.optimizer));
  check_ok(ddp_model_commit(made.model, made.stream));
  check_ok(ddp_ema_create(made.model, &decay, 1, &made.ema));
  return made;
}

static void train(const training *of) {
  check_ok(ddp_model_begin_backward(of->model, DDP_PASS_REDUCE));
  check_ok(ddp_model_mark_ready(of->model, 0, of->stream));
  check_ok(ddp_model_end_backward(of->model, of->stream));
  check_ok(ddp_optimizer_step(of->optimizer, of->stream));
  check_ok(ddp_ema_update(of->ema, of->stream));
}

/* A child has not the other threads of its parent, whose stacks lead to memory: it has no leaks to look for. */
static int is_child;
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return is_child; }

/* The child's use of the objects that it inherited; it never returns. */
static void be_a_child(const training *of, int at_exit) {
  ddp_group_options options;
  is_child = 1;
  if (ddp_group_barrier(of->group) == DDP_OK || ddp_model_commit(of->model, NULL) == DDP_OK) _exit(3);
  if (ddp_group_options_init(&options, sizeof options) != DDP_OK) _exit(4);
  left_at_exit = *of;
  if (at_exit && atexit(destroy_at_exit) != 0) _exit(5);
  if (!at_exit) destroy(of);
  exit(0); /* a violation makes that 86 */
}

static void fork_in_between(rank *self) {
  const training mine = make_training(self->index);
  for (int at_exit = 0; at_exit < 2; at_exit++) {
    train(&mine); /* may be under way */
    if (self->index == 0) {
      int status = 0;
      const pid_t child = fork();
      if (child == 0) be_a_child(&mine, at_exit);
      check_true(waitpid(child, &status, 0) == child);
      check_int(status, 0);
    }
    check_ok(ddp_group_barrier(mine.group));
  }
  train(&mine);
  check_true(gpu()->stream_synchronize(mine.stream) == 0);
  check_ok(ddp_group_barrier(mine.group));
  ddp_ema_destroy(mine.ema);
  ddp_optimizer_destroy(mine.optimizer);
  ddp_model_destroy(mine.model);
  check_ok(ddp_group_free(mine.group, mine.shared));
  ddp_group_destroy(mine.group);
  check_true(gpu()->stream_destroy(mine.stream) == 0);
  check_true(gpu()->free(mine.value) == 0);
}

check_case(a_forked_child_touches_no_gpu) {
  char text[200];
  ddp_fake_gpu_reset(kRanks, 0);
  run_ranks(kRanks, "local://host", fork_in_between, NULL);
  ddp_fake_gpu_violation(0, text, sizeof text);
  assert_string_equal(text, "");
  assert_int_equal(ddp_fake_gpu_live(), 0);
}
