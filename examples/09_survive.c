/* SPDX-License-Identifier: Apache-2.0 */
/* Example 9: a training that continues when ranks die.
 *
 *   ddprun -n 3 --min-ranks 1 09_survive
 *
 * Each line has the loss, and the running processes: kill any of them with kill -9, rank 0 too. The other ranks continue in
 * their processes, from the last step that all of them have made, and the loss keeps falling. Kill all but one: it continues
 * alone. With --max-restarts 9 instead of --min-ranks 1 a killed rank is restarted, and joins the others. With --folder F
 * they save there, and after all are killed the next start continues from the newest checkpoint. Ranks may also be started
 * by hand, without a launcher that ends some because another has died:
 *
 *   for rank in 0 1 2; do 09_survive --meet file:///tmp/survive --rank $rank --ranks 3 & done
 *
 * A linear classifier reads 8x8 pixels and names the digit. Read main() and go_on() first: these two are the parts that a
 * program of your own needs.
 */
#define _POSIX_C_SOURCE 200809L
#include <ddp/ddp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef DIGITS_CSV
#define DIGITS_CSV "data/digits.csv"
#endif

enum { PIXELS = 64, CLASSES = 10, BATCH = 60, MOST_SAMPLES = 1800, MOST_RANKS = BATCH };
/* Where we are: samples of this epoch that all ranks together have seen, and whether the checkpoint has been looked for. */
enum { EPOCH, SEEN, STARTED, PLACES };

/* ---- Errors: if the group is broken, main() recovers it. Any other error ends the program. ---- */

static void check(ddp_status status, const char *call) {
  if (status == DDP_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, ddp_status_name(status), ddp_last_error());
  exit(1);
}
#define CHECK(call) check((call), #call)
/* In a function that returns a status: what fails is the caller's. */
#define TRY(call)                                        \
  do {                                                   \
    const ddp_status status_of_call = (call);            \
    if (status_of_call != DDP_OK) return status_of_call; \
  } while (0)

/* ---- The data. ---- */

typedef struct samples {
  int64_t count;
  float pixels[MOST_SAMPLES][PIXELS]; /* 0 to 1 */
  int label[MOST_SAMPLES];
} samples;

static int read_sample(FILE *file, float pixels[PIXELS], int *label) {
  int value = 0;
  for (int i = 0; i < PIXELS; ++i) {
    if (fscanf(file, "%d,", &value) != 1) return 0;
    pixels[i] = (float)value / 16.0F;
  }
  return fscanf(file, "%d", label) == 1 && *label >= 0 && *label < CLASSES;
}

static void load_digits(const char *path, samples *digits) {
  FILE *file = fopen(path, "r");
  if (file == NULL) {
    fprintf(stderr, "The data file %s cannot be opened: give its place with --data.\n", path);
    exit(1);
  }
  while (digits->count < MOST_SAMPLES && read_sample(file, digits->pixels[digits->count], &digits->label[digits->count]))
    ++digits->count;
  fclose(file);
  if (digits->count == 0) {
    fprintf(stderr, "The data file %s has no line of 64 pixels and a label.\n", path);
    exit(1);
  }
}

/* ---- The training. ---- */

typedef struct training {
  ddp_group *group;
  ddp_model *model;
  ddp_optimizer *sgd;
  float weight[CLASSES][PIXELS], bias[CLASSES], weight_grad[CLASSES][PIXELS], bias_grad[CLASSES];
  int64_t place[PLACES];    /* EPOCH, SEEN and STARTED */
  ddp_sampler sampler;      /* whose samples are mine? Of the ranks that are there now */
  int64_t pids[MOST_RANKS]; /* their processes */
  int knows_others;         /* are sampler and pids those of the ranks that are there? */
  double sums[2];           /* loss and number of samples since the last report */
} training;

/* Adds to the gradients, which are the mean over `count` samples. Returns the sum of their losses. */
static double learn(training *t, const samples *digits, const int64_t *chosen, int64_t count) {
  double loss = 0;
  for (int64_t b = 0; b < count; ++b) {
    const float *pixels = digits->pixels[chosen[b]];
    const int label = digits->label[chosen[b]];
    double value[CLASSES], sum = 0;
    for (int c = 0; c < CLASSES; ++c) {
      value[c] = t->bias[c];
      for (int i = 0; i < PIXELS; ++i) value[c] += t->weight[c][i] * pixels[i];
      sum += exp(value[c]);
    }
    loss += log(sum) - value[label];
    for (int c = 0; c < CLASSES; ++c) {
      const float delta = (float)((exp(value[c]) / sum - (c == label)) / (double)count);
      t->bias_grad[c] += delta;
      for (int i = 0; i < PIXELS; ++i) t->weight_grad[c][i] += delta * pixels[i];
    }
  }
  return loss;
}

/* One step. Where we are changes with the parameters, when nothing of the step can fail any more. */
static ddp_status train_step(training *t, const samples *digits) {
  const int64_t size = ddp_group_get_size(t->group);
  int64_t share = 0, chosen[BATCH];
  t->sampler.seen = t->place[SEEN]; /* what is left of the epoch, dealt out over the ranks that are there */
  CHECK(ddp_sampler_get_count(&t->sampler, &share));
  const int64_t count = share < BATCH / size ? share : BATCH / size;
  CHECK(ddp_sampler_fill(&t->sampler, t->place[EPOCH], 0, count, chosen));
  TRY(ddp_model_begin_backward(t->model, DDP_PASS_REDUCE));
  memset(t->weight_grad, 0, sizeof t->weight_grad);
  memset(t->bias_grad, 0, sizeof t->bias_grad);
  t->sums[0] += learn(t, digits, chosen, count);
  t->sums[1] += (double)count;
  for (int32_t index = 1; index >= 0; --index) TRY(ddp_model_mark_ready(t->model, index, NULL));
  TRY(ddp_model_end_backward(t->model, NULL));
  TRY(ddp_optimizer_step(t->sgd, NULL));
  t->place[SEEN] += count * size;
  if (count == share) {
    ++t->place[EPOCH];
    t->place[SEEN] = 0;
  }
  return DDP_OK;
}

/* The mean loss since the last report, and the running processes. */
static ddp_status report(training *t) {
  double sums[2] = {t->sums[0], t->sums[1]};
  t->sums[0] = t->sums[1] = 0;
  TRY(ddp_group_reduce_metrics(t->group, sums, 2, DDP_SUM));
  if (ddp_group_get_rank(t->group) != 0) return DDP_OK;
  printf("epoch %3lld  loss %.4f  processes", (long long)t->place[EPOCH], sums[0] / sums[1]);
  for (int32_t rank = 0; rank < ddp_group_get_size(t->group); ++rank) printf(" %lld", (long long)t->pids[rank]);
  printf("\n");
  return DDP_OK;
}

/* Saves the state for a start without survivors: after a power cut, or when too few ranks are left. Rank 0 writes. */
static ddp_status save(const training *t, const char *folder) {
  ddp_state state;
  CHECK(ddp_state_init(&state, sizeof state));
  state.model = t->model; /* with the buffer "place" */
  state.optimizer = t->sgd;
  state.step = t->place[EPOCH];
  return ddp_state_save_latest(&state, folder, 3); /* the newest three stay */
}

/* Continues from the newest valid checkpoint, if there is one. A rank that joins others does not call this: it gets their
 * state.
 */
static ddp_status load(training *t, const char *folder) {
  ddp_state state;
  CHECK(ddp_state_init(&state, sizeof state));
  state.model = t->model;
  state.optimizer = t->sgd;
  ddp_load_report found = {.struct_size = sizeof found};
  const ddp_status status = ddp_state_load_latest(&state, folder, NULL, &found);
  if (status != DDP_OK && status != DDP_ERROR_NO_CHECKPOINT) return status;
  t->place[STARTED] = 1;
  if (status == DDP_OK && ddp_group_get_rank(t->group) == 0)
    printf("continues from %s\n", ddp_model_get_loaded_file(t->model));
  return DDP_OK;
}

/* What depends on rank and size is made anew whenever they change. */
static ddp_status look_around(training *t) {
  const int32_t size = ddp_group_get_size(t->group);
  t->sampler.rank = ddp_group_get_rank(t->group);
  t->sampler.size = size;
  int64_t mine = (int64_t)getpid();
  const int64_t one[1] = {1}, all[1] = {size};
  ddp_tensor input, output;
  CHECK(ddp_tensor_init(&input, &mine, DDP_I64, 1, one));
  CHECK(ddp_tensor_init(&output, t->pids, DDP_I64, 1, all));
  TRY(ddp_group_all_gather(t->group, &input, &output, NULL));
  t->knows_others = 1;
  return DDP_OK;
}

/* Where those were that have failed, as far as it is known. */
static void tell_whereabouts(const ddp_group *group) {
  int32_t failed[MOST_RANKS], count = 0;
  CHECK(ddp_group_get_failed(group, failed, MOST_RANKS, &count));
  for (int32_t i = 0; i < count; ++i) {
    ddp_rank_progress at = {.struct_size = sizeof at};
    CHECK(ddp_group_get_progress(group, failed[i], &at));
    if (at.pass_index < 0 || at.call == 0) /* ranks report every heartbeat_ms, and this one's first report came too early */
      printf("  rank %d was last heard %.1f s ago, before its first pass\n", failed[i], at.silent);
    else
      printf("  rank %d was last heard %.1f s ago, in pass %lld, %s %s\n", failed[i], at.silent, (long long)at.pass_index,
             at.in_call ? "in" : "behind", ddp_call_name(at.call));
  }
}

/* The main point. A call has failed, because a rank is dead: meet the surviving ranks. When ddp_group_recover() returns,
 * parameters, buffers and the optimizer are those of the last step that all have made, and t->place is its position. So
 * nothing has to be undone, and only ranks and size have changed. If one more rank dies meanwhile, ddp_group_recover() sees
 * to it, or the next call fails. */
static void go_on(training *t, ddp_status status) {
  int32_t now[MOST_RANKS], joined[MOST_RANKS], count = 0;
  if (ddp_group_status(t->group) == DDP_OK) { /* the call that failed does not always say whether the group is broken */
    check(status, "a call");
    return;
  }
  printf("process %lld: %s\n", (long long)getpid(), ddp_last_error());
  ddp_recovery found = {.struct_size = sizeof found};
  tell_whereabouts(t->group);
  CHECK(ddp_group_recover(t->group, NULL, &found)); /* NULL: all defaults; a single survivor continues too */
  printf("process %lld: rank %d of %d, which was rank %d of %d, continues after %.2f s with step %lld\n",
         (long long)getpid(), found.rank, found.size, found.previous_rank, found.previous_size, found.seconds,
         (long long)found.step + 1);
  if (found.rank == 0) { /* the new numbers of the ranks */
    CHECK(ddp_group_get_renumbered(t->group, now, MOST_RANKS, &count));
    for (int32_t before = 0; before < count; ++before)
      if (now[before] < 0) printf("  rank %d of before is gone\n", before);
    CHECK(ddp_group_get_joined(t->group, joined, MOST_RANKS, &count));
    for (int32_t i = 0; i < count; ++i) printf("  rank %d is new\n", joined[i]);
  }
  t->knows_others = 0;
}

/* Lends the parameters, and as a buffer where we are: whatever must fit the parameters after a recovery. */
static void lend(training *t) {
  CHECK(ddp_model_create(t->group, NULL, &t->model));
  CHECK(ddp_model_add_array(t->model, "weight", &t->weight[0][0], &t->weight_grad[0][0], CLASSES * PIXELS, NULL));
  CHECK(ddp_model_add_array(t->model, "bias", t->bias, t->bias_grad, CLASSES, NULL));
  const int64_t shape[1] = {PLACES};
  ddp_tensor place;
  CHECK(ddp_tensor_init(&place, t->place, DDP_I64, 1, shape));
  CHECK(ddp_model_add_buffer(t->model, "place", &place, NULL));
  ddp_sgd_options rule;
  CHECK(ddp_sgd_options_init(&rule, sizeof rule));
  rule.rate = 0.1;
  rule.momentum = 0.9;
  CHECK(
      ddp_optimizer_create_sgd(t->model, &rule, NULL, &t->sgd)); /* before the commit, so a rank that joins gets its state */
  ddp_status status = DDP_OK;
  while ((status = ddp_model_commit(t->model, NULL)) != DDP_OK) go_on(t, status); /* ranks may die here too */
}

typedef struct program {
  const char *meet, *data, *folder;
  int64_t rank, ranks, epochs, pause;
} program;

static program parse(int argc, char **argv) {
  program given = {NULL, DIGITS_CSV, NULL, -1, -1, 200, 20};
  for (int i = 1; i < argc; ++i) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (strcmp(argv[i], "--meet") == 0) {
      given.meet = value;
    } else if (strcmp(argv[i], "--data") == 0) {
      given.data = value;
    } else if (strcmp(argv[i], "--folder") == 0) {
      given.folder = value;
    } else if (strcmp(argv[i], "--rank") == 0) {
      given.rank = atoll(value);
    } else if (strcmp(argv[i], "--ranks") == 0) {
      given.ranks = atoll(value);
    } else if (strcmp(argv[i], "--epochs") == 0) {
      given.epochs = atoll(value);
    } else if (strcmp(argv[i], "--pause") == 0) {
      given.pause = atoll(value);
    } else {
      printf(
          "Usage: 09_survive [--meet PLACE --rank R --ranks N] [--epochs N] [--pause MS] [--data FILE] [--folder F]\n"
          "Train a classifier of handwritten digits, and go on when ranks are killed.\n"
          "  --meet PLACE --rank R --ranks N  this process is rank R of N, which meet there; without: from a launcher\n"
          "  --epochs N                       how often to go through the data (default 200)\n"
          "  --pause MS                       after each step, so that you have time (default 20)\n"
          "  --data FILE                      the digits (default " DIGITS_CSV
          ")\n"
          "  --folder F                       save there after each epoch, and begin with the newest checkpoint of it\n");
      exit(strcmp(argv[i], "--help") == 0 ? 0 : 2);
    }
    ++i;
  }
  return given;
}

/* A group that can recover. */
static void start(training *t, const program *given) {
  ddp_group_options options;
  CHECK(ddp_group_options_init(&options, sizeof options));
  options.rank = (int32_t)given->rank;
  options.world_size = (int32_t)given->ranks;
  options.recoverable = 1; /* without it a group that broke stays broken */
  CHECK(ddp_group_create(given->meet, &options, &t->group));
  if (ddp_group_get_size(t->group) > MOST_RANKS) {
    fprintf(stderr, "A batch of %d samples cannot be shared by %d ranks: start fewer.\n", BATCH,
            ddp_group_get_size(t->group));
    exit(1);
  }
}

int main(int argc, char **argv) {
  static samples digits;
  static training t;
  const program given = parse(argc, argv);
  const struct timespec pause = {(time_t)(given.pause / 1000), (long)(given.pause % 1000) * 1000000L};
  setvbuf(stdout, NULL, _IOLBF, 0); /* show each line when it is printed */
  load_digits(given.data, &digits);

  start(&t, &given);
  CHECK(ddp_sampler_init(&t.sampler, sizeof t.sampler));
  t.sampler.dataset_size = digits.count;
  t.place[STARTED] = given.folder == NULL;
  lend(&t);
  /* After a death some ranks fail in a step, and others in the report before it. So no rank repeats the failed call: each
   * continues from its state, which is the same on all ranks, and a failed report is left out. */
  for (;;) {
    ddp_status status = DDP_OK;
    const int is_done = t.knows_others && t.place[STARTED] && t.place[EPOCH] >= given.epochs;
    if (!t.knows_others) {
      status = look_around(&t);
    } else if (!t.place[STARTED]) {
      status = load(&t, given.folder);
    } else if (!is_done) {
      status = train_step(&t, &digits);
      if (status == DDP_OK && t.place[SEEN] == 0) status = report(&t);
      if (status == DDP_OK && t.place[SEEN] == 0 && given.folder != NULL) status = save(&t, given.folder);
      nanosleep(&pause, NULL);
    } else {
      status = ddp_model_check_replicas(t.model, NULL); /* do all that are left hold the same bits? */
    }
    if (status == DDP_OK && is_done) break;
    go_on(&t, status);
  }
  if (ddp_group_get_rank(t.group) == 0) printf("ranks that are left: %d, all equal\n", ddp_group_get_size(t.group));

  ddp_optimizer_destroy(t.sgd);
  ddp_model_destroy(t.model);
  ddp_group_destroy(t.group);
  return 0;
}
