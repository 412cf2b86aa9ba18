/* SPDX-License-Identifier: Apache-2.0 */
/* Example 6: checkpoints. A training that continues from a checkpoint has the same bits as an uninterrupted one.
 *
 *   ddprun -n 2 06_checkpoint [FILE]
 *
 * Ten steps, a checkpoint, ten more steps; then a second, fresh model loads the checkpoint and takes the last ten steps
 * again.
 * Parameters, Adam's moments, the running average of the weights and the step number are all in the file, so both ends must
 * be equal. The file is in the safetensors format: any tool that reads it shows the same names.
 */
#include <ddp/ddp.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH = 1000, BEFORE = 10, AFTER = 10 };

static void check(ddp_status status, const char *call) {
  if (status == DDP_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, ddp_status_name(status), ddp_last_error());
  exit(1);
}
#define CHECK(call) check((call), #call)

/* All that a training run consists of. */
typedef struct training {
  float weight[LENGTH];
  float *gradient;
  ddp_state state; /* holds the handles, so it serves as the list of them too */
} training;

static void start_training(ddp_group *group, training *run) {
  const double decay = 0.9;
  ddp_tensor gradient;
  CHECK(ddp_state_init(&run->state, sizeof run->state));
  CHECK(ddp_model_create(group, NULL, &run->state.model));
  CHECK(ddp_model_add_array(run->state.model, "weight", run->weight, NULL, LENGTH, NULL));
  CHECK(ddp_model_commit(run->state.model, NULL));
  CHECK(ddp_model_get_grad(run->state.model, 0, &gradient));
  run->gradient = gradient.data;
  CHECK(ddp_optimizer_create_adam(run->state.model, NULL, NULL, &run->state.optimizer));
  CHECK(ddp_ema_create(run->state.model, &decay, 1, &run->state.ema));
}

/* Pull every weight towards a target that depends on the step and the rank: enough to give Adam something to remember. */
static void take_steps(training *run, int rank, int count) {
  ddp_state *state = &run->state;
  for (int n = 0; n < count; ++n, ++state->step) {
    CHECK(ddp_model_begin_backward(state->model, DDP_PASS_REDUCE));
    for (int i = 0; i < LENGTH; ++i) run->gradient[i] = run->weight[i] - (float)((i + rank + (int)state->step) % 17);
    CHECK(ddp_model_mark_ready(state->model, 0, NULL));
    CHECK(ddp_model_end_backward(state->model, NULL));
    CHECK(ddp_optimizer_step(state->optimizer, NULL));
    CHECK(ddp_ema_update(state->ema, NULL));
  }
}

/* Hashes of the weights and of their running average. */
static void get_hashes(const training *run, int64_t hashes[2]) {
  CHECK(ddp_model_get_hash(run->state.model, &hashes[0]));
  CHECK(ddp_ema_swap(run->state.ema, 0, NULL)); /* the average takes the place of the weights, for evaluation */
  CHECK(ddp_model_get_hash(run->state.model, &hashes[1]));
  CHECK(ddp_ema_swap(run->state.ema, 0, NULL));
}

static void end_training(training *run) {
  ddp_ema_destroy(run->state.ema);
  ddp_optimizer_destroy(run->state.optimizer);
  ddp_model_destroy(run->state.model);
}

int main(int argc, char **argv) {
  static training first, second;
  const char *path = argc > 1 ? argv[1] : "06_checkpoint.safetensors";
  setvbuf(stdout, NULL, _IOLBF, 0);
  ddp_group *group = NULL;
  CHECK(ddp_group_create(NULL, NULL, &group));
  const int rank = ddp_group_get_rank(group);

  start_training(group, &first);
  take_steps(&first, rank, BEFORE);
  /* A checkpoint may hold texts: a configuration, a tokenizer, the best accuracy. */
  CHECK(ddp_model_set_metadata(first.state.model, "note", "saved by example 6"));
  CHECK(ddp_state_save_file(&first.state, path));
  if (rank == 0) printf("saved %s after step %lld\n", path, (long long)first.state.step);
  take_steps(&first, rank, AFTER);

  start_training(group, &second);
  ddp_load_report found_there = {.struct_size = sizeof found_there};
  CHECK(ddp_state_load_file(&second.state, path, NULL, &found_there));
  second.state.step = found_there.step;
  const char *note = NULL;
  CHECK(ddp_model_get_metadata(second.state.model, "note", &note));
  if (rank == 0) printf("loaded it: step %lld, note: %s\n", (long long)second.state.step, note != NULL ? note : "none");
  take_steps(&second, rank, AFTER);

  int64_t expected[2], found[2];
  get_hashes(&first, expected);
  get_hashes(&second, found);
  const int equal = expected[0] == found[0] && expected[1] == found[1];
  if (rank == 0) {
    printf("without interruption: weights %016llx, average %016llx\n", (unsigned long long)expected[0],
           (unsigned long long)expected[1]);
    printf("from the checkpoint:  weights %016llx, average %016llx\n", (unsigned long long)found[0],
           (unsigned long long)found[1]);
    printf("%s\n", equal ? "equal to the bit" : "DIFFERENT");
  }
  end_training(&second);
  end_training(&first);
  ddp_group_destroy(group);
  return equal ? 0 : 1;
}
