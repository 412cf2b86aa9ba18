/* SPDX-License-Identifier: Apache-2.0 */
/* A training step: forward, backward, gradients averaged, AdamW; compared with the forward and backward alone on the same
 * ranks at the same time.
 *
 *   ddprun -n 4 --no-prefix bench.step (mlp | gpt) WAY [iterations]
 *
 *   user                   gradients in the program's own memory
 *   user-in-place          the same, shared where it is (ddp_group_share)
 *   library                gradients in memory of libddp, reduced in place; so do the next ones
 *   fused                  the update of each bucket follows its reduction, within the backward (not undone if the
 *                          pass fails)
 *   sharded                each rank keeps the moments of its slice, updates that and gives the values to the others
 *   sharded-shared         the values are in memory of libddp too, so they are given without a copy
 *   fused-sharded-shared   all of it
 *   sharded-kept1          sharded, and the state is kept after each step (ddp_state_keep); -kept10: after each tenth. It
 * goes with the others too
 *
 * Several, with commas between them, are trained in one process, a step of each in turn: then a rank prints the times of
 * each as "<way>:local" and "<way>:step", the time of the processor as "<way>:step-processor" (which a
 * busy machine changes less), and no memory.
 *
 * Every rank prints "T <rank> <local | step> <milliseconds> ..." and "M <rank> <resident | share> <MiB>": memory above what
 * parameters, gradients and moments need; `resident` at the most during commit and the first steps (pages of others that
 * this rank has mapped count in full), `share` after them, with shared pages divided among those who map them. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <sys/mman.h>

#include "bench.h"
#include "models/model.h"

enum { MOST_ITERATIONS = 100, MOST_WAYS = 4, WARM_UP = 3 };

static double read_mib(const char *path, const char *field) {
  char line[256];
  double kib = 0;
  FILE *file = fopen(path, "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, field, strlen(field)) == 0) kib = atof(line + strlen(field));
  if (file != NULL) fclose(file);
  return kib / 1024;
}

static void forget_peak(void) {
  FILE *file = fopen("/proc/self/clear_refs", "w");
  if (file == NULL) return;
  fputs("5", file);
  fclose(file);
}

static void ignore(void *context, int32_t index) {
  (void)context;
  (void)index;
}

static int64_t total_bytes(const struct model *m) {
  int64_t count = 0;
  for (int32_t i = 0; i < m->count; ++i) count += m->parameters[i].count;
  return 4 * count;
}

/* Gradients of the program: one array, as a framework's would be many. */
static float *place_gradients(struct model *m) {
  float *all = mmap(NULL, (size_t)total_bytes(m), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) exit(2);
  float *next = all;
  for (int32_t i = 0; i < m->count; ++i) {
    m->parameters[i].grad = next;
    next += m->parameters[i].count;
  }
  return all;
}

typedef struct training {
  struct model *model;
  ddp_model *ddp;
  ddp_optimizer *optimizer;
  int keep_every; /* steps; 0: never */
  int64_t made;
} training;

/* Values where the other ranks can write them, so that a sharded update gives them without a copy. */
static void share_values(struct model *m, ddp_group *group) {
  void *memory = NULL;
  CHECK(ddp_group_alloc(group, total_bytes(m) + 64 * m->count, &memory));
  char *next = memory;
  for (int32_t i = 0; i < m->count; ++i) {
    parameter *p = &m->parameters[i];
    memcpy(next, p->value, (size_t)p->count * 4);
    free(p->value);
    p->value = (float *)(void *)next;
    next += (p->count * 4 + 63) / 64 * 64;
  }
}

static void lend(training *t, ddp_group *group, int own_gradients) {
  CHECK(ddp_model_create(group, NULL, &t->ddp));
  for (int32_t i = 0; i < t->model->count; ++i) {
    parameter *p = &t->model->parameters[i];
    ddp_tensor value, grad;
    CHECK(ddp_tensor_init(&value, p->value, DDP_F32, p->dims, p->shape));
    CHECK(ddp_tensor_init(&grad, p->grad, DDP_F32, p->dims, p->shape));
    CHECK(ddp_model_add_parameter(t->ddp, p->name, &value, own_gradients ? &grad : NULL, NULL));
  }
  CHECK(ddp_model_commit(t->ddp, NULL));
  for (int32_t i = 0; i < t->model->count; ++i) {
    ddp_tensor grad;
    CHECK(ddp_model_get_grad(t->ddp, i, &grad));
    t->model->parameters[i].grad = grad.data;
  }
}

static void optimize(training *t, const char *way) {
  ddp_adam_options options;
  CHECK(ddp_adam_options_init(&options, sizeof options));
  ddp_optimizer_options shared;
  CHECK(ddp_optimizer_options_init(&shared, sizeof shared));
  options.rate = 1e-4;
  shared.in_backward = strncmp(way, "fused", 5) == 0;
  shared.shard = strstr(way, "sharded") != NULL;
  const char *kept = strstr(way, "kept");
  t->keep_every = kept == NULL ? 0 : atoi(kept + strlen("kept"));
  shared.undo = 0;
  CHECK(ddp_optimizer_create_adam(t->ddp, &options, &shared, &t->optimizer));
}

static void mark(void *context, int32_t index) { CHECK(ddp_model_mark_ready(((training *)context)->ddp, index, NULL)); }

static void step(training *t) {
  CHECK(ddp_model_begin_backward(t->ddp, DDP_PASS_REDUCE));
  t->model->run(t->model, mark, t);
  CHECK(ddp_model_end_backward(t->ddp, NULL));
  CHECK(ddp_optimizer_step(t->optimizer, NULL));
  if (t->keep_every == 0 || ++t->made % t->keep_every != 0) return;
  ddp_state state;
  CHECK(ddp_state_init(&state, sizeof state));
  state.model = t->ddp;
  state.optimizer = t->optimizer;
  state.step = t->made;
  CHECK(ddp_state_keep(&state, 1, NULL));
}

static void local(training *t) { t->model->run(t->model, ignore, NULL); }

static double processor_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static double timed(ddp_group *group, training *t, void (*what)(training *), double *processor) {
  CHECK(ddp_group_barrier(group));
  const double begin = now_us(), processor_begin = processor_ms();
  what(t);
  *processor = processor_ms() - processor_begin;
  return (now_us() - begin) / 1e3;
}

static void print_times(int32_t rank, const char *way, const char *what, const double *ms, int count) {
  char line[16 * MOST_ITERATIONS + 64];
  int length = snprintf(line, sizeof line, "T %d %s%s%s", (int)rank, way, way[0] != 0 ? ":" : "", what);
  for (int i = 0; i < count; ++i) length += snprintf(line + length, sizeof line - (size_t)length, " %.3f", ms[i]);
  puts(line);
}

/* A training of its own, and how long it took. */
typedef struct entrant {
  const char *way;
  training t;
  double local_ms[MOST_ITERATIONS], step_ms[MOST_ITERATIONS];
  double local_processor_ms[MOST_ITERATIONS], step_processor_ms[MOST_ITERATIONS];
  double share, resident; /* MiB before it has been lent */
} entrant;

static int64_t bytes_of(const entrant *e) { return total_bytes(e->t.model); }
static int has_own_gradients(const entrant *e) { return strncmp(e->way, "user", 4) == 0; }

static void prepare(entrant *e, const char *name, ddp_group *group) {
  const int32_t rank = ddp_group_get_rank(group);
  e->t.model = model_by_name(name, (uint64_t)rank + 1);
  if (e->t.model == NULL) exit(2);
  float *gradients = place_gradients(e->t.model);
  local(&e->t); /* touches all that the model itself needs */
  if (strstr(e->way, "shared") != NULL) share_values(e->t.model, group);
  if (!has_own_gradients(e)) munmap(gradients, (size_t)bytes_of(e));
  e->share = read_mib("/proc/self/smaps_rollup", "Pss:");
  e->resident = read_mib("/proc/self/status", "VmRSS:");
  forget_peak();
  if (strcmp(e->way, "user-in-place") == 0) CHECK(ddp_group_share(group, gradients, bytes_of(e)));
  lend(&e->t, group, has_own_gradients(e));
  optimize(&e->t, e->way);
  for (int i = 0; i < WARM_UP; ++i) step(&e->t);
}

static void print_memory(int32_t rank, const entrant *e) {
  const double needed = (double)(has_own_gradients(e) ? 2 : 3) * (double)bytes_of(e) / (1 << 20);
  const double share = read_mib("/proc/self/smaps_rollup", "Pss:"), peak = read_mib("/proc/self/status", "VmHWM:");
  printf("M %d resident %.1f\nM %d share %.1f\n", (int)rank, peak - e->resident - needed, (int)rank,
         share - e->share - needed);
}

static void close_training(training *t) {
  ddp_optimizer_destroy(t->optimizer);
  ddp_model_destroy(t->ddp);
}

int main(int argc, char **argv) {
  static entrant entrants[MOST_WAYS];
  int count = 0;
  const int iterations = argc > 3 ? atoi(argv[3]) : 8;
  if (iterations < 1 || iterations > MOST_ITERATIONS) return 2;
  ddp_group *group = NULL;
  ddp_group_options grouping;
  CHECK(ddp_group_options_init(&grouping, sizeof grouping));
  grouping.recoverable = argc > 2 && strstr(argv[2], "kept") != NULL;
  char library[] = "library";
  for (char *way = strtok(argc > 2 ? argv[2] : library, ","); way != NULL && count < MOST_WAYS; way = strtok(NULL, ","))
    entrants[count++].way = way;
  CHECK(ddp_group_create(NULL, &grouping, &group));
  const int32_t rank = ddp_group_get_rank(group);
  for (int w = 0; w < count; ++w) prepare(&entrants[w], argc > 1 ? argv[1] : "mlp", group);
  CHECK(ddp_group_barrier(group));
  if (count == 1) print_memory(rank, &entrants[0]);
  for (int i = 0; i < iterations; ++i)
    for (int w = 0; w < count; ++w) {
      entrant *e = &entrants[(i + w) % count]; /* each is first in turn */
      e->local_ms[i] = timed(group, &e->t, local, &e->local_processor_ms[i]);
      e->step_ms[i] = timed(group, &e->t, step, &e->step_processor_ms[i]);
    }
  CHECK(ddp_group_barrier(group));
  for (int w = 0; w < count; ++w) {
    const entrant *e = &entrants[w];
    print_times(rank, count > 1 ? e->way : "", "local", e->local_ms, iterations);
    print_times(rank, count > 1 ? e->way : "", "step", e->step_ms, iterations);
    if (count == 1) continue;
    print_times(rank, e->way, "local-processor", e->local_processor_ms, iterations);
    print_times(rank, e->way, "step-processor", e->step_processor_ms, iterations);
  }
  fflush(stdout);
  for (int w = 0; w < count; ++w) close_training(&entrants[w].t);
  ddp_group_destroy(group);
  return 0;
}
