/* SPDX-License-Identifier: Apache-2.0 */
/* libddp between hosts, measured by the method of network/protocol.h. Started by network.sh.
 *
 *   bench.network sums                      barrier and all-reduce of BENCH_SIZES
 *   bench.network bucket WAY                a pass over one gradient of 25 MiB
 *   bench.network passes MILLISECONDS [WAY] 12 layers of 4 MiB, "computation" = sleep before each gradient, and of this
 *                                           BENCH_FORWARD (0 to 1, default 0) in a forward, where each value is used
 *   bench.network create                    ddp_group_create, BENCH_CALLS times
 *
 * WAY: plain (no optimizer; default), adam, shard (Adam, sharded), inbackward (that within the pass), late (sharded, with
 * values that come in the forward). BENCH_BUCKET: bucket_bytes.
 */
#define _GNU_SOURCE
#include "bench.h"
#include "network/protocol.h"

static void sum(void *group, float *data, int64_t count) {
  ddp_tensor tensor;
  CHECK(ddp_tensor_init(&tensor, data, DDP_F32, 1, &count));
  CHECK(ddp_group_all_reduce(group, &tensor, DDP_SUM, NULL));
}

static void barrier(void *group) { CHECK(ddp_group_barrier(group)); }

/* What a pass costs: a model of equal layers, and perhaps an optimizer. */
typedef struct training {
  ddp_model *model;
  ddp_optimizer *optimizer; /* NULL: none */
  int32_t layers;
  double forward_us; /* where each value is used */
  double sleep_us;   /* before each gradient */
} training;

static training make_training(ddp_group *group, int32_t layers, int64_t elements, const char *way, double compute_us) {
  const double forward = getenv("BENCH_FORWARD") != NULL ? atof(getenv("BENCH_FORWARD")) : 0;
  training t = {NULL, NULL, layers, forward * compute_us, (1 - forward) * compute_us};
  ddp_model_options model;
  CHECK(ddp_model_options_init(&model, sizeof model));
  if (getenv("BENCH_BUCKET") != NULL) model.bucket_bytes = atoll(getenv("BENCH_BUCKET"));
  CHECK(ddp_model_create(group, &model, &t.model));
  for (int32_t i = 0; i < layers; ++i) {
    char name[32];
    float *value = calloc((size_t)elements, sizeof *value);
    if (value == NULL) exit(2);
    snprintf(name, sizeof name, "layer.%d", (int)i);
    CHECK(ddp_model_add_array(t.model, name, value, NULL, elements, NULL));
  }
  CHECK(ddp_model_commit(t.model, NULL));
  if (strcmp(way, "plain") == 0) return t;
  ddp_optimizer_options options;
  CHECK(ddp_optimizer_options_init(&options, sizeof options));
  options.shard = strcmp(way, "adam") != 0;
  options.in_backward = strcmp(way, "inbackward") == 0;
  options.late_values = strcmp(way, "late") == 0;
  CHECK(ddp_optimizer_create_adam(t.model, NULL, &options, &t.optimizer));
  return t;
}

static void train(const training *t) {
  for (int32_t i = 0; i < t->layers && t->forward_us > 0; ++i) {
    CHECK(ddp_model_wait_value(t->model, i, NULL));
    usleep((useconds_t)t->forward_us);
  }
  CHECK(ddp_model_begin_backward(t->model, DDP_PASS_REDUCE));
  for (int32_t i = t->layers - 1; i >= 0; --i) {
    if (t->sleep_us > 0) usleep((useconds_t)t->sleep_us);
    CHECK(ddp_model_mark_ready(t->model, i, NULL));
  }
  CHECK(ddp_model_end_backward(t->model, NULL));
  if (t->optimizer != NULL) CHECK(ddp_optimizer_step(t->optimizer, NULL));
}

static void one_pass(void *context) { train(context); }

static void measure_training(const meeting *m, training t, const char *label) {
  const protocol p = {*m, &t, NULL, one_pass}; /* in the place of a barrier, which has no bytes */
  for (int i = 0; i < 2; ++i) train(&t);       /* a sharded optimizer prepares itself in the first pass */
  protocol_time(&p, label, NULL, 0, protocol_calls(5));
  ddp_optimizer_destroy(t.optimizer);
  ddp_model_destroy(t.model);
}

static void measure_create(void) {
  const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
  const meeting m = meeting_open(rank != NULL ? atoi(rank) : 0, size != NULL ? atoi(size) : 1);
  const int count = protocol_calls(5);
  double us[PROTOCOL_CALLS];
  for (int i = 0; i < count; ++i) {
    ddp_group *group = NULL;
    char rendezvous[32];
    snprintf(rendezvous, sizeof rendezvous, "env://#%d", i);
    meeting_wait(&m);
    const double begin = meeting_now_us();
    CHECK(ddp_group_create(rendezvous, NULL, &group));
    us[i] = meeting_slowest(&m, meeting_now_us() - begin);
    meeting_wait(&m);
    ddp_group_destroy(group);
    usleep(300000);
  }
  if (m.rank != 0) return;
  printf("N create 0 0");
  for (int i = 0; i < count; ++i) printf(" %.1f", us[i]);
  puts("");
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "sums";
  if (strcmp(mode, "create") == 0) return measure_create(), 0;
  ddp_group *group = NULL;
  CHECK(ddp_group_create(NULL, NULL, &group));
  const meeting m = meeting_open(ddp_group_get_rank(group), ddp_group_get_size(group));
  if (strcmp(mode, "sums") == 0) {
    const protocol p = {m, group, sum, barrier};
    protocol_run(&p);
  } else if (strcmp(mode, "bucket") == 0 && argc > 2) {
    char label[32];
    snprintf(label, sizeof label, "bucket-%s", argv[2]);
    measure_training(&m, make_training(group, 1, 25 << 18, argv[2], 0), label);
  } else if (strcmp(mode, "passes") == 0 && argc > 2) {
    const char *way = argc > 3 ? argv[3] : "plain";
    measure_training(&m, make_training(group, 12, 1 << 20, way, atof(argv[2]) * 1e3 / 12), "pass");
  } else {
    fprintf(stderr,
            "usage: bench.network sums | bucket plain|adam|shard|inbackward|late | passes MILLISECONDS [WAY] | create\n");
    return 2;
  }
  ddp_group_destroy(group);
  return 0;
}
