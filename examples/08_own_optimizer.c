/* SPDX-License-Identifier: Apache-2.0 */
/* Example 8: optimizers of your own. Lion and RMSprop in some 20 lines each, divided, updated inside backward and saved like
 * a built-in one.
 *
 *   ddprun -n 4 08_own_optimizer [FILE]
 *
 * A rule changes a slice of a parameter: libddp keeps its state, calls it for the slices of this rank, clips, scales and
 * saves. Each rule runs twice here, once on all of the model on every rank, once with `shard` and `in_backward`, where each
 * rank keeps a part of the state; both runs end with the same bits. Then the second run is loaded from its own checkpoint.
 */
#include <ddp/ddp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 2000, STEPS = 700 };

static void check(ddp_status status, const char *call) {
  if (status == DDP_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, ddp_status_name(status), ddp_last_error());
  exit(1);
}
#define CHECK(call) check((call), #call)

/* Lion (Chen et al., 2023): the sign of a mixture of gradient and momentum. One state array. */
static int32_t lion(void *user_data, const ddp_update_slice *slice) {
  const float beta1 = 0.9F, beta2 = 0.99F;
  const float rate = (float)slice->rate, decay = (float)(slice->rate * slice->weight_decay);
  const float *grad = slice->grad;
  float *value = slice->value, *momentum = slice->state[0];
  (void)user_data;
  for (int64_t i = 0; i < slice->count; ++i) {
    const float direction = beta1 * momentum[i] + (1 - beta1) * grad[i];
    const float sign = (float)((direction > 0) - (direction < 0));
    value[i] -= decay * value[i] + rate * sign;
    momentum[i] = beta2 * momentum[i] + (1 - beta2) * grad[i];
  }
  return 0;
}

/* RMSprop with momentum: the gradient over the root of its running mean square. Two state arrays. */
static int32_t rmsprop(void *user_data, const ddp_update_slice *slice) {
  const float alpha = 0.99F, momentum = 0.9F, epsilon = 1e-8F, rate = (float)slice->rate;
  const float *grad = slice->grad;
  float *value = slice->value, *square = slice->state[0], *velocity = slice->state[1];
  (void)user_data;
  for (int64_t i = 0; i < slice->count; ++i) {
    square[i] = alpha * square[i] + (1 - alpha) * grad[i] * grad[i];
    velocity[i] = momentum * velocity[i] + grad[i] / (sqrtf(square[i]) + epsilon);
    value[i] -= rate * velocity[i];
  }
  return 0;
}

typedef struct rule {
  const char *name;
  ddp_update_fn update;
  const char *states;
  double rate;
} rule;

typedef struct training {
  float weight[LENGTH];
  float *gradient;
  ddp_state state;
} training;

static void start(ddp_group *group, training *run, const rule *own, int divided) {
  ddp_custom_options options;
  ddp_optimizer_options shared;
  ddp_tensor gradient;
  for (int i = 0; i < LENGTH; ++i) run->weight[i] = 0;
  CHECK(ddp_state_init(&run->state, sizeof run->state));
  CHECK(ddp_model_create(group, NULL, &run->state.model));
  CHECK(ddp_model_add_array(run->state.model, "weight", run->weight, NULL, LENGTH, NULL));
  CHECK(ddp_model_commit(run->state.model, NULL));
  CHECK(ddp_model_get_grad(run->state.model, 0, &gradient));
  run->gradient = gradient.data;
  CHECK(ddp_custom_options_init(&options, sizeof options));
  options.rate = own->rate;
  CHECK(ddp_optimizer_options_init(&shared, sizeof shared));
  shared.shard = divided;
  shared.in_backward = divided;
  CHECK(ddp_optimizer_create_custom(run->state.model, &options, &shared, own->states, own->update, NULL, NULL,
                                    &run->state.optimizer));
}

/* Every rank has its own target; the parameters learn the mean of the targets. Returns the mean distance from it. */
static double train(training *run, int rank, int ranks, int steps) {
  ddp_state *state = &run->state;
  double distance = 0;
  for (int n = 0; n < steps; ++n, ++state->step) {
    CHECK(ddp_model_begin_backward(state->model, DDP_PASS_REDUCE));
    for (int i = 0; i < LENGTH; ++i) run->gradient[i] = run->weight[i] - (float)(i % 5 + rank) / (float)ranks;
    CHECK(ddp_model_mark_ready(state->model, 0, NULL));
    CHECK(ddp_model_end_backward(state->model, NULL));
    CHECK(ddp_optimizer_step(state->optimizer, NULL));
  }
  for (int i = 0; i < LENGTH; ++i) distance += fabs(run->weight[i] - (i % 5 + (ranks - 1) / 2.0) / ranks) / LENGTH;
  return distance;
}

static int64_t hash_of(const training *run) {
  int64_t hash = 0;
  CHECK(ddp_model_get_hash(run->state.model, &hash));
  return hash;
}

static void end(training *run) {
  ddp_optimizer_destroy(run->state.optimizer);
  ddp_model_destroy(run->state.model);
}

/* 1 if all three runs end with the same bits. */
static int try_rule(ddp_group *group, const rule *own, const char *path) {
  static training whole, divided, resumed;
  const int rank = ddp_group_get_rank(group), ranks = ddp_group_get_size(group);
  start(group, &whole, own, 0);
  const double distance = train(&whole, rank, ranks, STEPS);

  start(group, &divided, own, 1);
  train(&divided, rank, ranks, STEPS / 2);
  CHECK(ddp_state_save_file(&divided.state, path));
  train(&divided, rank, ranks, STEPS - STEPS / 2);

  start(group, &resumed, own, 1);
  CHECK(ddp_state_load_file(&resumed.state, path, NULL, NULL));
  train(&resumed, rank, ranks, STEPS - STEPS / 2);

  const int same = hash_of(&whole) == hash_of(&divided) && hash_of(&whole) == hash_of(&resumed);
  if (rank == 0)
    printf("%-8s %d steps: mean distance %.4f; whole, divided and resumed: %s\n", own->name, STEPS, distance,
           same ? "equal to the bit" : "DIFFERENT");
  end(&resumed);
  end(&divided);
  end(&whole);
  return same;
}

int main(int argc, char **argv) {
  static const rule rules[] = {{"Lion", lion, "momentum", 0.01}, {"RMSprop", rmsprop, "square_avg,velocity", 0.002}};
  const char *path = argc > 1 ? argv[1] : "08_own_optimizer.safetensors";
  setvbuf(stdout, NULL, _IOLBF, 0);
  ddp_group *group = NULL;
  CHECK(ddp_group_create(NULL, NULL, &group));
  int same = 1;
  for (size_t r = 0; r < sizeof rules / sizeof rules[0]; ++r) same = try_rule(group, &rules[r], path) && same;
  ddp_group_destroy(group);
  return same ? 0 : 1;
}
