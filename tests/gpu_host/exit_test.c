/* SPDX-License-Identifier: Apache-2.0 */
/* Programs with GPUs that end by exit(): whatever the group is at then, no thread of libddp is inside NCCL when exit() takes
 * it down, or calls it later. Each is a process of its own, whose ranks are threads. */
#define _POSIX_C_SOURCE 200809L
#define _ISOC11_SOURCE /* quick_exit() */
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ddp/ddp.h"
#include "support/check.h"
#include "support/fake_gpu/fake_gpu_control.h"
#include "support/ranks.h"

enum { kCount = 1000, kRanks = 2, kCode = 7 };

/* When the program ends. */
typedef enum moment {
  kAfterTraining,  /* nothing is under way */
  kBroken,         /* the group breaks at that moment, and NCCL is ended */
  kBrokenBefore,   /* the same, 100 ms before */
  kInPass,         /* on both ranks */
  kDestroying,     /* a rank destroys its group at that moment */
  kDestroyedLater, /* by a handler that was set up before */
  kQuick,          /* quick_exit() */
  kMoments
} moment;

static moment at;
static ddp_group *groups[kRanks];
static pthread_barrier_t trained;

static const ddp_gpu_table *gpu(void) { return ddp_gpu_query(DDP_GPU_VERSION); }

static void sleep_ms(long ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

/* Runs last, so that a call that comes too late has the time for it. */
static void linger(void) { sleep_ms(400); }

static void destroy_late(void) {
  for (int i = 0; at == kDestroyedLater && i < kRanks; i++) ddp_group_destroy(groups[i]);
}

static void end(rank *self) {
  if (at == kBroken || at == kBrokenBefore) {
    if (self->index == 1) ddp_group_abort(self->group, "that is enough");
    if (self->index == 1 && at == kBrokenBefore) sleep_ms(100);
    if (self->index == 1) exit(kCode);
  }
  if (at == kInPass) sleep_ms(50); /* rank 0 is in it too */
  if (at == kDestroying && self->index == 0) {
    ddp_group_destroy(self->group);
    sleep_ms(60000);
  }
  if (at == kDestroying) sleep_ms(20);
  if (self->index == 0) sleep_ms(60000);
  if (at == kQuick) quick_exit(kCode);
  exit(kCode);
}

static void train(rank *self) {
  const int32_t index = self->index;
  void *stream = NULL, *value = NULL;
  ddp_optimizer *adam = NULL;
  groups[index] = self->group;
  check_true(gpu()->set_device(index) == 0);
  check_true(gpu()->alloc(&value, kCount * 4) == 0);
  check_true(gpu()->stream_create(&stream, 0) == 0);
  check_true(gpu()->fill(value, 0, kCount * 4, stream) == 0);
  const ddp_tensor tensor = {value, DDP_F32, DDP_CUDA, index, 1, {kCount}};
  ddp_model *model = new_model(self->group, NULL);
  check_ok(ddp_model_add_parameter(model, "w", &tensor, NULL, NULL));
  check_ok(ddp_model_commit(model, stream));
  check_ok(ddp_optimizer_create_adam(model, NULL, NULL, &adam));
  for (int step = 0; step < 3; step++) {
    check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    check_ok(ddp_model_mark_ready(model, 0, stream));
    check_ok(ddp_model_end_backward(model, stream));
    check_ok(ddp_optimizer_step(adam, stream));
  }
  if (at == kInPass) check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  pthread_barrier_wait(&trained);
  end(self);
}

static void run_program(moment when) {
  at = when;
  if (atexit(linger) != 0 || atexit(destroy_late) != 0) _exit(3);
  setenv("DDP_FAKE_GPU", "slow_init=200", 1); /* NCCL takes its time to end */
  pthread_barrier_init(&trained, NULL, kRanks);
  ddp_fake_gpu_reset(kRanks, 0);
  run_ranks(kRanks, "local://exit", train, NULL);
  _exit(4);
}

check_case(no_thread_meets_the_end_of_nccl) {
  for (int when = 0; when < kMoments; when++) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) run_program((moment)when);
    check_true(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != kCode) printf("at moment %d\n", when);
    check_int(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), kCode); /* 86: a violation */
  }
}
