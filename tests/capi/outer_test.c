/* SPDX-License-Identifier: Apache-2.0 */
/* ddp/outer.h through the C API. Ranks are threads. */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/ranks.h"

typedef struct world {
  ddp_model *model;
  ddp_optimizer *optimizer;
  ddp_outer *outer;
  float value[40], grad[40];
} world;

static void open_world(world *w, ddp_group *group, const ddp_outer_options *options) {
  memset(w, 0, sizeof *w);
  for (int i = 0; i < 40; i++) w->value[i] = (float)i;
  check_ok(ddp_model_create(group, NULL, &w->model));
  check_ok(ddp_model_add_array(w->model, "w", w->value, w->grad, 40, NULL));
  check_ok(ddp_model_commit(w->model, NULL));
  check_ok(ddp_optimizer_create_sgd(w->model, NULL, NULL, &w->optimizer));
  check_ok(ddp_outer_create(w->model, options, &w->outer));
}

static void close_world(world *w) {
  ddp_outer_destroy(w->outer);
  ddp_optimizer_destroy(w->optimizer);
  ddp_model_destroy(w->model);
}

static void local_step(world *w, int index, int step) {
  check_ok(ddp_model_begin_backward(w->model, DDP_PASS_LOCAL));
  for (int i = 0; i < 40; i++) w->grad[i] = w->value[i] - (float)((index + step + i) % 5);
  check_ok(ddp_model_mark_ready(w->model, 0, NULL));
  check_ok(ddp_model_end_backward(w->model, NULL));
  check_ok(ddp_optimizer_step(w->optimizer, NULL));
}

static ddp_outer_options options_of(int64_t every, int64_t overlap) {
  check_defaults(outer_options, options);
  options.every = every;
  options.overlap = overlap;
  return options;
}

check_case(wrong_arguments_are_refused) {
  ddp_group *group = alone();
  ddp_outer *outer = garbage;
  float value[2] = {0}, grad[2] = {0};
  ddp_outer_options options = options_of(4, 0);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_outer_options_init(NULL, sizeof options));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_outer_options_init(&options, 0));
  ddp_model *model = new_model(group, NULL);
  check_ok(ddp_model_add_array(model, "w", value, grad, 2, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_outer_create(model, NULL, &outer), "not committed");
  check_ok(ddp_model_commit(model, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_outer_create(model, NULL, NULL));
#define REFUSED(field, wrong, text)                                                                \
  do {                                                                                             \
    options = options_of(4, 0);                                                                    \
    options.field = wrong;                                                                         \
    check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_outer_create(model, &options, &outer), text); \
  } while (0)
  REFUSED(every, 0, "every is 0");
  REFUSED(overlap, 4, "overlap is 4");
  REFUSED(overlap, -1, "overlap is -1");
  REFUSED(rate, 0, "rate is 0");
  REFUSED(rate, NAN, "rate");
  REFUSED(momentum, 1, "momentum is 1");
  REFUSED(keep, 1, "keep is 1");
  REFUSED(fragments, 0, "fragments is 0");
  REFUSED(bits, 5, "bits is 5");
  REFUSED(nesterov, 2, "nesterov is 2");
  REFUSED(error_feedback, -1, "error_feedback -1");
  check_true(outer == (ddp_outer *)garbage);
  ddp_outer *second = NULL;
  check_ok(ddp_outer_create(model, NULL, &outer));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_outer_create(model, NULL, &second), "has an outer optimizer");
  ddp_outer_stats stats = {0};
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_outer_get_stats(outer, &stats)); /* no struct_size */
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_outer_get_stats(outer, NULL));
  ddp_outer_destroy(outer);
  check_ok(ddp_outer_create(model, NULL, &second)); /* the first one was destroyed */
  ddp_outer_destroy(second);
  ddp_model_destroy(model);
  ddp_group_destroy(group);
}

static void train_and_stop_in_flight(rank *self) {
  const ddp_outer_options options = options_of(3, 2);
  world w;
  open_world(&w, self->group, &options);
  ddp_outer_stats stats = {.struct_size = sizeof stats};
  for (int step = 0; step < 4; step++) {
    local_step(&w, self->index, step);
    check_ok(ddp_outer_step(w.outer));
  }
  check_ok(ddp_outer_get_stats(w.outer, &stats));
  check_int(stats.steps, 4);
  check_int(stats.under_way, 1);
  check_int(stats.exchanges, 0);
  check_ok(ddp_group_barrier(self->group)); /* not in the way */
  check_defaults(state, checkpoint);
  checkpoint.model = w.model;
  checkpoint.outer = w.outer;
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_state_save_file(&checkpoint, self->data), "under way");
  close_world(&w); /* drops it, on all ranks after the same step */
  check_ok(ddp_group_barrier(self->group));
}

check_case(what_is_under_way_can_be_dropped) {
  run_ranks(3, "local://outer-flight", train_and_stop_in_flight, "unused.safetensors");
}

/* Steps 0 to 9 with a checkpoint after step 4 give what a new program gives that loads it. */
static void go_on_from_a_checkpoint(rank *self) {
  const ddp_outer_options options = options_of(2, 0);
  float wanted[40];
  for (int again = 0; again < 2; again++) {
    world w;
    open_world(&w, self->group, &options);
    check_defaults(state, checkpoint);
    checkpoint.model = w.model;
    checkpoint.optimizer = w.optimizer;
    checkpoint.outer = w.outer;
    if (again == 1) check_ok(ddp_state_load_file(&checkpoint, self->data, NULL, NULL));
    for (int step = 5 * again; step < 10; step++) {
      local_step(&w, self->index, step);
      check_ok(ddp_outer_step(w.outer));
      if (step != 4) continue;
      check_ok(ddp_outer_sync(w.outer));
      check_ok(ddp_model_check_replicas(w.model, NULL));
      check_ok(ddp_state_save_file(&checkpoint, self->data));
    }
    if (again == 0) memcpy(wanted, w.value, sizeof wanted);
    check_true(memcmp(wanted, w.value, sizeof wanted) == 0);
    if (again == 1) { /* the model alone: the outer optimizer begins anew there */
      checkpoint.outer = NULL;
      check_defaults(load_options, partial);
      partial.partial = 1;
      check_ok(ddp_state_load_file(&checkpoint, self->data, &partial, NULL));
      check_ok(ddp_outer_step(w.outer));
      check_ok(ddp_outer_sync(w.outer));
      check_ok(ddp_model_check_replicas(w.model, NULL));
    }
    close_world(&w);
    check_ok(ddp_group_barrier(self->group));
  }
}

check_case(a_checkpoint_holds_it) {
  char path[] = "outer-XXXXXX";
  const int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  run_ranks(2, "local://outer-checkpoint", go_on_from_a_checkpoint, path);
  unlink(path);
}
