/* SPDX-License-Identifier: Apache-2.0 */
/* The small GPT of models/ learns a text byte by byte, in one of the ways that ranks have to exchange what they learn: loss
 * on text it has not seen, bytes sent and time, as training proceeds. outer.sh runs all of them.
 *
 *   ddprun -n 2 --no-prefix bench.outer WAY text=FILE unseen=FILE [name=number ...]
 *
 *   ddp        gradients are averaged in every step
 *   bf16       the same, 16 bits are sent
 *   powersgd   the same with PowerSGD
 *   diloco     every rank makes steps of its own; an outer optimizer averages their movements now and then
 *
 * Numbers and their defaults: see `defaults`. The loss is the mean over the ranks' halves of the unseen text, each
 * with the rank's own parameters; they are equal on all ranks, except with diloco between two exchanges. Rank 0 prints
 * "parameters N", and for each evaluation "P <step> <loss> <bytes that rank 0 sent> <seconds of training> <of which waiting
 * for exchanges>". Evaluations are in none of them. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "bench.h"
#include "models/model.h"

typedef struct setting {
  const char *name;
  double value;
} setting;

enum {
  STEPS,
  SEED,
  WIDTH,
  LAYERS,
  LENGTH,
  SEQUENCES,
  RATE,
  WARM,
  EVALUATE,
  BATCHES,
  RANK,
  START,
  EVERY,
  BITS,
  FRAGMENTS,
  OVERLAP,
  KEEP,
  OUTER_RATE,
  MOMENTUM,
  TOGETHER,
  SETTINGS
};
static const setting defaults[SETTINGS] = {
    {"steps", 2080},   {"seed", 1},         {"width", 96},     {"layers", 3},
    {"length", 64},    {"sequences", 2}, /* of a rank's batch */
    {"rate", 1e-3},    {"warm", 100},    /* AdamW: the highest rate, and the steps until it is reached */
    {"evaluate", 130}, {"batches", 160}, /* steps between evaluations, and batches of an evaluation on each rank */
    {"rank", 2},       {"start", 10},    /* of PowerSGD; its passes that are plain */
    {"every", 40},     {"bits", 8},         {"fragments", 1},  {"overlap", 0},
    {"keep", 0},       {"outer-rate", 0.7}, {"momentum", 0.9}, /* of the outer optimizer */
    {"together", 0} /* steps with averaged gradients before the outer optimizer begins */
};

typedef struct text {
  unsigned char *bytes;
  int64_t count;
} text;

typedef struct training {
  const char *way;
  double set[SETTINGS];
  text seen, unseen;
  int32_t word_of[256], words;
  int32_t rank, ranks;
  uint64_t random;
  ddp_group *group;
  struct model *model;
  ddp_model *ddp;
  ddp_optimizer *optimizer;
  ddp_outer *outer;
  int32_t *tokens, *wanted;
} training;

static text read_text(const char *path) {
  text read = {NULL, 0};
  FILE *file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
    perror(path);
    exit(2);
  }
  read.count = ftell(file);
  rewind(file);
  read.bytes = malloc((size_t)read.count + 1);
  if (read.bytes == NULL || fread(read.bytes, 1, (size_t)read.count, file) != (size_t)read.count) exit(2);
  fclose(file);
  return read;
}

/* "name=number" of `argument`, or a text. */
static void set(training *t, const char *argument) {
  const char *const equals = strchr(argument, '=');
  const size_t length = equals == NULL ? 0 : (size_t)(equals - argument);
  if (strncmp(argument, "text=", 5) == 0) {
    t->seen = read_text(equals + 1);
    return;
  }
  if (strncmp(argument, "unseen=", 7) == 0) {
    t->unseen = read_text(equals + 1);
    return;
  }
  for (int i = 0; i < SETTINGS; ++i)
    if (length > 0 && strlen(defaults[i].name) == length && strncmp(argument, defaults[i].name, length) == 0) {
      t->set[i] = atof(equals + 1);
      return;
    }
  fprintf(stderr, "bench.outer: \"%s\" is no setting\n", argument);
  exit(2);
}

/* Only bytes that are in the texts are words of the model. */
static void number_words(training *t) {
  int used[256] = {0};
  for (int64_t i = 0; i < t->seen.count; ++i) used[t->seen.bytes[i]] = 1;
  for (int64_t i = 0; i < t->unseen.count; ++i) used[t->unseen.bytes[i]] = 1;
  for (int byte = 0; byte < 256; ++byte)
    if (used[byte]) t->word_of[byte] = t->words++;
}

static uint64_t random_below(uint64_t *state, uint64_t limit) {
  *state = *state * 6364136223846793005U + 1442695040888963407U;
  return (*state >> 33) % limit;
}

/* Another beginning for each seed, the same on all ranks: the values are symmetric, so their signs are drawn. */
static void draw_signs(struct model *m, uint64_t seed) {
  uint64_t random = seed * 7919;
  for (int32_t i = 0; i < m->count; ++i)
    for (int64_t k = 0; m->parameters[i].dims == 2 && k < m->parameters[i].count; ++k)
      if (random_below(&random, 2) == 1) m->parameters[i].value[k] = -m->parameters[i].value[k];
}

static void lend(training *t) {
  ddp_model_options options;
  CHECK(ddp_model_options_init(&options, sizeof options));
  if (strcmp(t->way, "bf16") == 0) options.wire = DDP_BF16;
  CHECK(ddp_model_create(t->group, &options, &t->ddp));
  for (int32_t i = 0; i < t->model->count; ++i) {
    parameter *p = &t->model->parameters[i];
    ddp_tensor value;
    CHECK(ddp_tensor_init(&value, p->value, DDP_F32, p->dims, p->shape));
    CHECK(ddp_model_add_parameter(t->ddp, p->name, &value, NULL, NULL));
  }
  if (strcmp(t->way, "powersgd") == 0) {
    ddp_powersgd_options powersgd;
    CHECK(ddp_powersgd_options_init(&powersgd, sizeof powersgd));
    powersgd.rank = (int32_t)t->set[RANK];
    powersgd.start_pass = (int64_t)t->set[START];
    CHECK(ddp_model_set_hook(t->ddp, ddp_hook_powersgd, &powersgd, NULL));
  }
  CHECK(ddp_model_commit(t->ddp, NULL));
  for (int32_t i = 0; i < t->model->count; ++i) {
    ddp_tensor grad;
    CHECK(ddp_model_get_grad(t->ddp, i, &grad));
    t->model->parameters[i].grad = grad.data;
  }
  CHECK(ddp_optimizer_create_adam(t->ddp, NULL, NULL, &t->optimizer));
}

static void start_outer(training *t) {
  ddp_outer_options options;
  CHECK(ddp_outer_options_init(&options, sizeof options));
  options.every = (int64_t)t->set[EVERY];
  options.bits = (int32_t)t->set[BITS];
  options.fragments = (int32_t)t->set[FRAGMENTS];
  options.overlap = (int64_t)t->set[OVERLAP];
  options.keep = t->set[KEEP];
  options.rate = t->set[OUTER_RATE];
  options.momentum = t->set[MOMENTUM];
  CHECK(ddp_outer_create(t->ddp, &options, &t->outer));
}

static void begin(training *t) {
  if (t->seen.count == 0 || t->unseen.count == 0) exit(2);
  number_words(t);
  CHECK(ddp_group_create(NULL, NULL, &t->group));
  t->rank = ddp_group_get_rank(t->group);
  t->ranks = ddp_group_get_size(t->group);
  t->random = (uint64_t)t->set[SEED] * 1000003 + (uint64_t)t->rank;
  const gpt_shape shape = {t->words,
                           (int32_t)t->set[WIDTH],
                           (int32_t)t->set[LAYERS],
                           (int32_t)t->set[WIDTH] / 32,
                           (int32_t)t->set[SEQUENCES],
                           (int32_t)t->set[LENGTH]};
  t->model = gpt_create(shape, 1);
  draw_signs(t->model, (uint64_t)t->set[SEED]);
  const size_t rows = (size_t)(shape.sequences * shape.length);
  t->tokens = calloc(rows, sizeof *t->tokens);
  t->wanted = calloc(rows, sizeof *t->wanted);
  lend(t);
}

/* A sequence of the batch: the words from `from` on, and those behind each. */
static void take(training *t, const text *from, int64_t at, int32_t sequence) {
  const int64_t length = (int64_t)t->set[LENGTH];
  for (int64_t i = 0; i < length; ++i) {
    t->tokens[sequence * length + i] = t->word_of[from->bytes[at + i]];
    t->wanted[sequence * length + i] = t->word_of[from->bytes[at + i + 1]];
  }
}

static double unseen_loss(training *t) {
  const int64_t length = (int64_t)t->set[LENGTH], batches = (int64_t)t->set[BATCHES];
  const int32_t sequences = (int32_t)t->set[SEQUENCES];
  const int64_t number = batches * sequences * t->ranks, space = t->unseen.count - length - 1;
  double loss = 0;
  for (int64_t batch = 0; batch < batches; ++batch) {
    for (int32_t s = 0; s < sequences; ++s)
      take(t, &t->unseen, space * ((batch * t->ranks + t->rank) * sequences + s) / number, s);
    gpt_set_batch(t->model, t->tokens, t->wanted);
    loss += t->model->run(t->model, NULL, NULL) / (double)batches;
  }
  const int64_t one = 1;
  ddp_tensor sum;
  CHECK(ddp_tensor_init(&sum, &loss, DDP_F64, 1, &one));
  CHECK(ddp_group_all_reduce(t->group, &sum, DDP_AVERAGE, NULL));
  return loss;
}

static double rate_at(const training *t, int64_t step) {
  const double warm = t->set[WARM], steps = t->set[STEPS];
  if ((double)step < warm) return t->set[RATE] * (double)(step + 1) / warm;
  const double done = ((double)step - warm) / (steps - warm);
  return t->set[RATE] * (0.1 + 0.9 * 0.5 * (1 + cos(3.14159265358979 * done)));
}

static void mark(void *context, int32_t index) { CHECK(ddp_model_mark_ready(((training *)context)->ddp, index, NULL)); }

static void step(training *t, int64_t number) {
  const int64_t space = t->seen.count - (int64_t)t->set[LENGTH] - 1;
  const int is_local = strcmp(t->way, "diloco") == 0 && (double)number >= t->set[TOGETHER];
  if (is_local && t->outer == NULL) start_outer(t);
  for (int32_t s = 0; s < (int32_t)t->set[SEQUENCES]; ++s)
    take(t, &t->seen, (int64_t)random_below(&t->random, (uint64_t)space), s);
  gpt_set_batch(t->model, t->tokens, t->wanted);
  CHECK(ddp_model_begin_backward(t->ddp, is_local ? DDP_PASS_LOCAL : DDP_PASS_REDUCE));
  t->model->run(t->model, mark, t);
  CHECK(ddp_model_end_backward(t->ddp, NULL));
  CHECK(ddp_optimizer_set_rate(t->optimizer, rate_at(t, number)));
  CHECK(ddp_optimizer_step(t->optimizer, NULL));
  if (is_local) CHECK(ddp_outer_step(t->outer));
}

static void report(training *t, int64_t steps, double us) {
  ddp_model_stats passes = {.struct_size = sizeof passes};
  ddp_outer_stats outer = {.struct_size = sizeof outer};
  CHECK(ddp_model_get_stats(t->ddp, &passes));
  if (t->outer != NULL) CHECK(ddp_outer_get_stats(t->outer, &outer));
  const double loss = unseen_loss(t);
  if (t->rank == 0)
    printf("P %lld %.5f %lld %.4f %.4f\n", (long long)steps, loss, (long long)(passes.total_sent_bytes + outer.sent_bytes),
           us * 1e-6, (double)(passes.total_exposed_ns + outer.wait_ns) * 1e-9);
  fflush(stdout);
  CHECK(ddp_group_barrier(t->group));
}

static void train(training *t) {
  const int64_t steps = (int64_t)t->set[STEPS], evaluate = (int64_t)t->set[EVALUATE];
  double us = 0;
  report(t, 0, 0);
  for (int64_t number = 0; number < steps; ++number) {
    const double start = now_us();
    step(t, number);
    if (number + 1 == steps && t->outer != NULL && (t->set[OVERLAP] > 0 || steps % (int64_t)t->set[EVERY] != 0))
      CHECK(ddp_outer_sync(t->outer));
    us += now_us() - start;
    if (number + 1 == steps || (number + 1) % evaluate == 0) report(t, number + 1, us);
  }
}

int main(int argc, char **argv) {
  static training t;
  for (int i = 0; i < SETTINGS; ++i) t.set[i] = defaults[i].value;
  for (int i = 2; i < argc; ++i) set(&t, argv[i]);
  t.way = argc > 1 ? argv[1] : "";
  begin(&t);
  int64_t count = 0;
  for (int32_t i = 0; i < t.model->count; ++i) count += t.model->parameters[i].count;
  if (t.rank == 0) printf("parameters %lld\n", (long long)count);
  train(&t);
  ddp_outer_destroy(t.outer);
  ddp_optimizer_destroy(t.optimizer);
  ddp_model_destroy(t.ddp);
  ddp_group_destroy(t.group);
  return 0;
}
