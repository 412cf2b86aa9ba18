/* SPDX-License-Identifier: Apache-2.0 */
/* Example 2: train a network on handwritten digits, on any number of ranks.
 *
 *   ddprun -n 4 02_train
 *
 * A perceptron with two hidden layers (64-128-64-10) reads 8x8 pixels and names the digit. The arithmetic is written out in
 * plain C, so that every line that belongs to libddp can be seen. Read main() first, then train_step(): these two are the
 * parts that a program of your own needs.
 *
 * The global batch has 64 samples on 1, 2, 4, ... ranks, which therefore learn the same, only faster.
 */
#define _POSIX_C_SOURCE 200809L
#include <ddp/ddp.h>
#include <ddp/waits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef DIGITS_CSV
#define DIGITS_CSV "data/digits.csv"
#endif

enum { PIXELS = 64, CLASSES = 10, LAYERS = 3, WIDEST = 128, GLOBAL_BATCH = 64, MOST_SAMPLES = 1800 };
static const int kWidths[LAYERS + 1] = {PIXELS, 128, 64, CLASSES};

/* ---- Errors: one sentence that names the culprit is in ddp_last_error(). Print it and stop. ---- */

static void check(ddp_status status, const char *call) {
  if (status == DDP_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, ddp_status_name(status), ddp_last_error());
  exit(1);
}
#define CHECK(call) check((call), #call)
static void stop(const char *what, const char *why) {
  fprintf(stderr, "%s %s\n", what, why);
  exit(1);
}

/* ---- The data: every fifth line is for testing, the others for training. ---- */

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

static void load_digits(const char *path, samples *train, samples *test) {
  FILE *file = fopen(path, "r");
  if (file == NULL) stop(path, "cannot be opened: give the place of the digits with --data.");
  for (int line = 0;; ++line) {
    samples *part = line % 5 == 0 ? test : train;
    if (part->count == MOST_SAMPLES || !read_sample(file, part->pixels[part->count], &part->label[part->count])) break;
    ++part->count;
  }
  fclose(file);
  if (train->count == 0) stop(path, "has no line of 64 pixels and a label.");
}

/* ---- The network: a list of layers, each with parameters (ours) and gradients (libddp's). ---- */

typedef struct layer {
  int in, out;
  float weight[WIDEST * WIDEST], bias[WIDEST]; /* weight[o * in + i] */
  float *weight_grad, *bias_grad;              /* where libddp wants the gradients, see lend_network() */
  int32_t weight_index, bias_index;            /* the numbers libddp gave them */
  float value[WIDEST];                         /* outputs of the sample at hand */
  float delta[GLOBAL_BATCH][WIDEST];           /* gradient of the outputs, for each sample of the batch */
  float input[GLOBAL_BATCH][WIDEST];           /* inputs, for each sample of the batch */
} layer;

/* Small random numbers (He's initialisation). Ranks need not agree on them: all ranks get rank 0's values at commit. */
static void start_network(layer net[LAYERS]) {
  uint64_t state = 1;
  for (int l = 0; l < LAYERS; ++l) {
    net[l].in = kWidths[l];
    net[l].out = kWidths[l + 1];
    const float range = sqrtf(6.0F / (float)net[l].in);
    for (int i = 0; i < net[l].in * net[l].out; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      net[l].weight[i] = range * ((float)(state >> 40) / 8388608.0F - 1.0F);
    }
  }
}

/* One sample through all layers; keeps the inputs of each layer in slot `b`. Returns the values of the last layer. */
static const float *forward(layer net[LAYERS], const float *pixels, int b) {
  const float *input = pixels;
  for (int l = 0; l < LAYERS; ++l) {
    memcpy(net[l].input[b], input, sizeof(float) * (size_t)net[l].in);
    for (int o = 0; o < net[l].out; ++o) {
      float sum = net[l].bias[o];
      for (int i = 0; i < net[l].in; ++i) sum += net[l].weight[o * net[l].in + i] * input[i];
      net[l].value[o] = l < LAYERS - 1 && sum < 0 ? 0 : sum; /* ReLU, except in the last layer */
    }
    input = net[l].value;
  }
  return input;
}

/* Loss of one sample (cross-entropy of softmax), and its gradient with respect to the last layer's values. */
static double loss_of(const float *value, int label, float *delta) {
  float top = value[0];
  for (int c = 1; c < CLASSES; ++c) top = value[c] > top ? value[c] : top;
  double sum = 0;
  for (int c = 0; c < CLASSES; ++c) sum += exp((double)(value[c] - top));
  for (int c = 0; c < CLASSES; ++c) delta[c] = (float)(exp((double)(value[c] - top)) / sum) - (c == label ? 1.0F : 0.0F);
  return log(sum) - (double)(value[label] - top);
}

static int guess_of(const float *value) {
  int best = 0;
  for (int c = 1; c < CLASSES; ++c) best = value[c] > value[best] ? c : best;
  return best;
}

/* Gradients of one layer, summed over the batch and divided by its size: the mean over this rank's samples. libddp then
 * takes the mean over the ranks. They are added to the present contents; ddp_model_zero_grad() cleared them. */
static void backward_layer(const layer *at, int batch) {
  for (int b = 0; b < batch; ++b) {
    for (int o = 0; o < at->out; ++o) {
      const float delta = at->delta[b][o] / (float)batch;
      at->bias_grad[o] += delta;
      for (int i = 0; i < at->in; ++i) at->weight_grad[o * at->in + i] += delta * at->input[b][i];
    }
  }
}

/* What the layer below must know: its outputs are our inputs, and ReLU lets through only where these are positive. */
static void pass_down(const layer *at, layer *below, int batch) {
  for (int b = 0; b < batch; ++b) {
    for (int i = 0; i < at->in; ++i) {
      float sum = 0;
      for (int o = 0; o < at->out; ++o) sum += at->weight[o * at->in + i] * at->delta[b][o];
      below->delta[b][i] = at->input[b][i] > 0 ? sum : 0;
    }
  }
}

/* ---- What belongs to libddp. ---- */

/* Lend the parameters, in the order of the forward computation: their gradients then come in reverse, as libddp expects. */
static ddp_model *lend_network(ddp_group *group, layer net[LAYERS]) {
  ddp_model_options options;
  CHECK(ddp_model_options_init(&options, sizeof options));
  options.first_bucket_bytes = 4096; /* this network is tiny; real ones are well served by the defaults */
  options.bucket_bytes = 32768;
  ddp_model *model = NULL;
  CHECK(ddp_model_create(group, &options, &model));
  for (int l = 0; l < LAYERS; ++l) {
    char name[32];
    ddp_tensor tensor;
    const int64_t shape[2] = {net[l].out, net[l].in};
    CHECK(ddp_tensor_init(&tensor, net[l].weight, DDP_F32, 2, shape));
    snprintf(name, sizeof name, "layer%d.weight", l + 1);
    /* No gradient is given, so libddp provides it, where it can be reduced without a copy. */
    CHECK(ddp_model_add_parameter(model, name, &tensor, NULL, &net[l].weight_index));
    CHECK(ddp_tensor_init(&tensor, net[l].bias, DDP_F32, 1, shape));
    snprintf(name, sizeof name, "layer%d.bias", l + 1);
    CHECK(ddp_model_add_parameter(model, name, &tensor, NULL, &net[l].bias_index));
  }
  /* All ranks agree on names, shapes and order, or all get the same error. Afterwards all ranks have rank 0's weights. */
  CHECK(ddp_model_commit(model, NULL));
  for (int l = 0; l < LAYERS; ++l) {
    ddp_tensor grad;
    CHECK(ddp_model_get_grad(model, net[l].weight_index, &grad));
    net[l].weight_grad = grad.data;
    CHECK(ddp_model_get_grad(model, net[l].bias_index, &grad));
    net[l].bias_grad = grad.data;
  }
  return model;
}

/* The heart of it. One step on `batch` samples of this rank: adds to sums[] the loss and the number of right answers. */
static void train_step(ddp_model *model, ddp_optimizer *optimizer, layer net[LAYERS], const samples *train,
                       const int64_t *chosen, int batch, double sums[2]) {
  for (int b = 0; b < batch; ++b) {
    const int label = train->label[chosen[b]];
    const float *value = forward(net, train->pixels[chosen[b]], b);
    sums[0] += loss_of(value, label, net[LAYERS - 1].delta[b]);
    sums[1] += guess_of(value) == label;
  }
  CHECK(ddp_model_zero_grad(model, NULL));
  CHECK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  for (int l = LAYERS - 1; l >= 0; --l) {
    backward_layer(&net[l], batch);
    /* This layer's gradients are complete: libddp may send them while we compute those of the layers below. */
    CHECK(ddp_model_mark_ready(model, net[l].bias_index, NULL));
    CHECK(ddp_model_mark_ready(model, net[l].weight_index, NULL));
    if (l > 0) pass_down(&net[l], &net[l - 1], batch);
  }
  /* From here on the gradients are the mean over all ranks, the same bits everywhere, so the step is the same everywhere. */
  CHECK(ddp_model_end_backward(model, NULL));
  CHECK(ddp_optimizer_step(optimizer, NULL));
}

/* A short linear warm-up, then down along a cosine. Schedules are the program's own; every rank computes the same. */
static double rate_at(int64_t step, int64_t steps) {
  const double top = 0.004, warm_up = 50, pi = 3.14159265358979323846;
  if ((double)step < warm_up) return top * (double)(step + 1) / warm_up;
  return 0.02 * top + 0.98 * top * 0.5 * (1 + cos(pi * (double)step / (double)steps));
}

typedef struct program {
  const char *data, *checkpoint;
  int64_t epochs;
  int resume;
} program;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* One epoch over this rank's share of the training set. */
static void train_epoch(ddp_state *state, ddp_sampler *sampler, layer net[LAYERS], const samples *train, int64_t epochs,
                        double sums[3]) {
  const int64_t batch = GLOBAL_BATCH / sampler->size;
  int64_t share = 0;
  CHECK(ddp_sampler_get_count(sampler, &share)); /* the same on every rank, so every rank takes the same number of steps */
  const int64_t steps = (share + batch - 1) / batch;
  for (int64_t first = 0; first < share; first += batch) {
    int64_t chosen[GLOBAL_BATCH];
    const int64_t count = share - first < batch ? share - first : batch;
    CHECK(ddp_sampler_fill(sampler, state->epoch, first, count, chosen));
    CHECK(ddp_optimizer_set_rate(state->optimizer, rate_at(state->step, epochs * steps)));
    train_step(state->model, state->optimizer, net, train, chosen, (int)count, sums);
    sums[2] += (double)count;
    ++state->step;
  }
  ++state->epoch;
}

/* Each rank tests every size-th sample; how many are right and how many there are. */
static void test_network(layer net[LAYERS], const samples *test, int rank, int size, double sums[2]) {
  for (int64_t i = rank; i < test->count; i += size) {
    sums[0] += guess_of(forward(net, test->pixels[i], 0)) == test->label[i];
    sums[1] += 1;
  }
}

/* Train until state->epoch reaches `epochs`. Returns the accuracy on the test set, the same on every rank. */
static double train_all(ddp_group *group, ddp_state *state, layer net[LAYERS], const samples *train, const samples *test,
                        const program *options) {
  const int rank = ddp_group_get_rank(group), size = ddp_group_get_size(group);
  ddp_sampler sampler;
  CHECK(ddp_sampler_init(&sampler, sizeof sampler));
  sampler.dataset_size = train->count;
  sampler.rank = rank;
  sampler.size = size;
  double accuracy = 0;
  ddp_model_stats before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
  do {
    double sums[5] = {0}; /* loss, right, seen; right and seen in the test */
    const double start = now();
    CHECK(ddp_model_get_stats(state->model, &before));
    if (state->epoch < options->epochs) train_epoch(state, &sampler, net, train, options->epochs, sums);
    const double seconds = now() - start;
    CHECK(ddp_model_get_stats(state->model, &after));
    test_network(net, test, rank, size, sums + 3);
    /* Sum over the ranks first and divide afterwards: an average of averages is wrong when counts differ. */
    CHECK(ddp_group_reduce_metrics(group, sums, 5, DDP_SUM));
    accuracy = 100 * sums[3] / sums[4];
    if (rank == 0 && sums[2] > 0) {
      const double comm = (double)(after.total_comm_ns - before.total_comm_ns);
      const double exposed = (double)(after.total_exposed_ns - before.total_exposed_ns);
      printf("epoch %2lld  loss %.4f  train %6.2f %%  test %6.2f %%  %7.0f samples/s", (long long)state->epoch,
             sums[0] / sums[2], 100 * sums[1] / sums[2], accuracy, sums[2] / seconds);
      if (size > 1 && comm > 0) printf("  communication hidden %3.0f %%", 100 * (1 - exposed / comm));
      printf("\n");
    }
    /* Every rank calls; rank 0 writes. The file is complete or not there, whatever happens meanwhile. */
    if (state->epoch % 10 == 0 || state->epoch >= options->epochs) CHECK(ddp_state_save_file(state, options->checkpoint));
  } while (state->epoch < options->epochs);
  return accuracy;
}

/* Which rank delays the others? Each knows how long it waited for each other one; the sum is the cost of that one. */
static void print_slowest(ddp_group *group) {
  double seconds[GLOBAL_BATCH];
  int32_t ranks = 0, slowest = 0;
  CHECK(ddp_group_get_waits(group, seconds, GLOBAL_BATCH, &ranks));
  CHECK(ddp_group_reduce_metrics(group, seconds, ranks, DDP_SUM));
  for (int32_t r = 1; r < ranks; ++r) slowest = seconds[r] > seconds[slowest] ? r : slowest;
  if (ddp_group_get_rank(group) == 0 && ranks > 1)
    printf("longest waited for: rank %d, %.2f s over all ranks\n", (int)slowest, seconds[slowest]);
}

/* Are the weights of all ranks the same? (ddp_model_check_replicas() is the short way; this shows the hashes.) */
static int compare_ranks(ddp_group *group, const ddp_model *model) {
  const int size = ddp_group_get_size(group);
  int64_t mine = 0;
  int64_t *all = calloc((size_t)size, sizeof *all);
  if (all == NULL) return 0;
  CHECK(ddp_model_get_hash(model, &mine));
  const int64_t one[1] = {1}, many[1] = {size};
  ddp_tensor input, output;
  CHECK(ddp_tensor_init(&input, &mine, DDP_I64, 1, one));
  CHECK(ddp_tensor_init(&output, all, DDP_I64, 1, many));
  CHECK(ddp_group_all_gather(group, &input, &output, NULL));
  int equal = 1;
  for (int r = 0; r < size; ++r) {
    equal = equal && all[r] == all[0];
    if (ddp_group_get_rank(group) == 0) printf("weights of rank %d: %016llx\n", r, (unsigned long long)all[r]);
  }
  if (ddp_group_get_rank(group) == 0) printf("%s\n", equal ? "all equal" : "NOT EQUAL");
  free(all);
  return equal;
}

static void print_help(void) {
  printf(
      "Usage: 02_train [--epochs N] [--checkpoint FILE] [--resume] [--data FILE]\n"
      "Train a small network on handwritten digits; start it with ddprun -n 4 02_train.\n"
      "  --epochs N         how often to go through the data (default 20)\n"
      "  --checkpoint FILE  where to save (default digits.safetensors)\n"
      "  --resume           continue from the checkpoint, on any number of ranks\n"
      "  --data FILE        the digits (default " DIGITS_CSV ")\n");
}

static program parse(int argc, char **argv) {
  program options = {DIGITS_CSV, "digits.safetensors", 20, 0};
  for (int i = 1; i < argc; ++i) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (strcmp(argv[i], "--help") == 0) {
      print_help();
      exit(0);
    } else if (strcmp(argv[i], "--resume") == 0) {
      options.resume = 1;
    } else if (strcmp(argv[i], "--epochs") == 0 && value != NULL && atoll(value) > 0) {
      options.epochs = atoll(argv[++i]);
    } else if (strcmp(argv[i], "--checkpoint") == 0 && value != NULL) {
      options.checkpoint = argv[++i];
    } else if (strcmp(argv[i], "--data") == 0 && value != NULL) {
      options.data = argv[++i];
    } else {
      fprintf(stderr, "The argument %s, or its value, is not understood: see 02_train --help.\n", argv[i]);
      exit(2);
    }
  }
  return options;
}

int main(int argc, char **argv) {
  static layer net[LAYERS];
  static samples train, test;
  const program options = parse(argc, argv);
  setvbuf(stdout, NULL, _IOLBF, 0); /* under a launcher stdout is a pipe: show each line when it is printed */
  load_digits(options.data, &train, &test);
  start_network(net);

  /* NULL, NULL: rank and size come from the launcher. Started alone, the group has one rank and no line changes. */
  ddp_group *group = NULL;
  CHECK(ddp_group_create(NULL, NULL, &group));
  const int rank = ddp_group_get_rank(group), size = ddp_group_get_size(group);
  if (size > GLOBAL_BATCH) stop("A batch of 64 samples", "cannot be shared by more ranks: start fewer.");
  if (rank == 0) {
    printf("%d %s, %lld digits to learn, %lld to test, %d in a batch for each rank\n", size, size == 1 ? "rank" : "ranks",
           (long long)train.count, (long long)test.count, GLOBAL_BATCH / size);
  }

  ddp_model *model = lend_network(group, net);
  ddp_optimizer *optimizer = NULL;
  CHECK(ddp_optimizer_create_adam(model, NULL, NULL, &optimizer)); /* NULL: the defaults of AdamW */

  /* What a checkpoint holds: parameters, the optimizer's moments, and where we are. */
  ddp_state state;
  CHECK(ddp_state_init(&state, sizeof state));
  state.model = model;
  state.optimizer = optimizer;
  if (options.resume) {
    ddp_load_report found = {.struct_size = sizeof found};
    CHECK(ddp_state_load_file(&state, options.checkpoint, NULL, &found));
    state.epoch = found.epoch;
    state.step = found.step;
  }
  if (options.resume && rank == 0) printf("resumed after epoch %lld\n", (long long)state.epoch);

  const double accuracy = train_all(group, &state, net, &train, &test, &options);
  print_slowest(group);
  const int equal = compare_ranks(group, model);
  if (rank == 0) {
    printf("test accuracy %.2f %%; checkpoint: %s\n", accuracy, options.checkpoint);
    printf("Next: go on with --epochs %lld --resume, on another number of ranks if you like; or stop a rank with kill -9.\n",
           (long long)(options.epochs + 10));
  }

  ddp_optimizer_destroy(optimizer), ddp_model_destroy(model), ddp_group_destroy(group);
  return equal ? 0 : 1;
}
