/* SPDX-License-Identifier: Apache-2.0 */
/* What a trace costs: marks and training steps with and without one, in turn in one process. Processor time, which a busy
 * machine changes less than time.
 *
 *   ddprun -n 2 --no-prefix bench.trace [mlp | gpt] [rounds]
 */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"
#include "models/model.h"

enum { TINY = 1000, MOST_ROUNDS = 200 };
enum { OFF, ON };

typedef struct training {
  struct model *model;
  ddp_model *ddp;
  ddp_optimizer *optimizer;
} training;

static double processor_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static void mark(void *context, int32_t index) { CHECK(ddp_model_mark_ready(((training *)context)->ddp, index, NULL)); }

static void step(training *t) {
  CHECK(ddp_model_begin_backward(t->ddp, DDP_PASS_REDUCE));
  t->model->run(t->model, mark, t);
  CHECK(ddp_model_end_backward(t->ddp, NULL));
  CHECK(ddp_optimizer_step(t->optimizer, NULL));
}

static void prepare(training *t, ddp_group *group, const char *name) {
  t->model = model_by_name(name, (uint64_t)ddp_group_get_rank(group) + 1);
  if (t->model == NULL) exit(2);
  CHECK(ddp_model_create(group, NULL, &t->ddp));
  for (int32_t i = 0; i < t->model->count; ++i) {
    parameter *p = &t->model->parameters[i];
    p->grad = calloc((size_t)p->count, 4);
    CHECK(ddp_model_add_array(t->ddp, p->name, p->value, p->grad, p->count, NULL));
  }
  CHECK(ddp_model_commit(t->ddp, NULL));
  CHECK(ddp_optimizer_create_adam(t->ddp, NULL, NULL, &t->optimizer));
}

static ddp_model *make_tiny(ddp_group *group) {
  ddp_model *tiny = NULL;
  CHECK(ddp_model_create(group, NULL, &tiny));
  for (int p = 0; p < TINY; ++p) {
    char name[32];
    snprintf(name, sizeof name, "p%d", p);
    CHECK(ddp_model_add_array(tiny, name, calloc(16, 4), calloc(16, 4), 16, NULL));
  }
  CHECK(ddp_model_commit(tiny, NULL));
  return tiny;
}

/* Nanoseconds for each mark that closes no bucket. */
static double time_marks(ddp_model *tiny) {
  CHECK(ddp_model_begin_backward(tiny, DDP_PASS_REDUCE));
  const double begin = processor_us();
  for (int32_t p = TINY - 1; p > 0; --p) (void)ddp_model_mark_ready(tiny, p, NULL);
  const double ns = (processor_us() - begin) * 1e3 / (TINY - 1);
  CHECK(ddp_model_mark_ready(tiny, 0, NULL));
  CHECK(ddp_model_end_backward(tiny, NULL));
  return ns;
}

static void switch_trace(ddp_group *group, int on) {
  if (on)
    CHECK(ddp_group_start_trace(group, "bench.trace.json", NULL));
  else
    CHECK(ddp_group_stop_trace(group));
}

int main(int argc, char **argv) {
  static double marks[2][MOST_ROUNDS], steps[2][MOST_ROUNDS];
  const char *const name = argc > 1 ? argv[1] : "mlp";
  const int rounds = argc > 2 ? atoi(argv[2]) : 20;
  if (rounds < 1 || rounds > MOST_ROUNDS) return 2;
  ddp_group *group = NULL;
  training t;
  CHECK(ddp_group_create(NULL, NULL, &group));
  prepare(&t, group, name);
  ddp_model *const tiny = make_tiny(group);
  step(&t);
  for (int round = 0; round < rounds; ++round)
    for (int turn = 0; turn < 2; ++turn) {
      const int on = (round + turn) % 2; /* each is first in turn */
      if (on == ON) switch_trace(group, ON);
      (void)time_marks(tiny); /* the first pass of a trace names its parameters */
      marks[on][round] = time_marks(tiny);
      step(&t);
      const double begin = processor_us();
      step(&t);
      steps[on][round] = processor_us() - begin;
      if (on == ON) switch_trace(group, OFF);
    }
  if (ddp_group_get_rank(group) == 0) {
    remove("bench.trace.json");
    const double off = median(steps[OFF], rounds), on = median(steps[ON], rounds);
    const double mark_off = median(marks[OFF], rounds), mark_on = median(marks[ON], rounds);
    printf("mark that closes no bucket: %.0f ns, traced %.0f ns\n", mark_off, mark_on);
    printf("step of %s: %.2f ms, traced %.2f ms (x%.4f); its %d marks at that price are %.4f of it\n", name, off / 1e3,
           on / 1e3, on / off, (int)t.model->count, (double)t.model->count * (mark_on - mark_off) * 1e-3 / off);
  }
  ddp_optimizer_destroy(t.optimizer);
  ddp_model_destroy(t.ddp);
  ddp_model_destroy(tiny);
  ddp_group_destroy(group);
  return 0;
}
