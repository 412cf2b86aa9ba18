/* SPDX-License-Identifier: Apache-2.0 */
/* A step of several ranks needs gradients that a pass has reduced, or that the program has reduced and marked as reduced.
 * Else each rank would train a model of its own, and every call would succeed. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/ranks.h"

enum { PARAMETERS = 2, ELEMENTS = 3000 };

typedef struct world {
  ddp_group *group;
  ddp_model *model;
  ddp_optimizer *optimizer;
  float value[PARAMETERS][ELEMENTS], grad[PARAMETERS][ELEMENTS];
} world;

enum kind { PLAIN, SHARDED, IN_BACKWARD, SHARDED_IN_BACKWARD, RULE, SHARDED_RULE, ADAM, KINDS };

static int32_t descend(void *user_data, const ddp_update_slice *slice) {
  (void)user_data;
  float *value = slice->value;
  const float *grad = slice->grad;
  for (int64_t i = 0; i < slice->count; i++) value[i] -= (float)slice->rate * grad[i];
  return 0;
}

static world *open_world(ddp_group *group, enum kind kind, int32_t uneven) {
  world *w = calloc(1, sizeof *w);
  ddp_optimizer_options shared;
  check_defaults(model_options, options);
  options.uneven_inputs = uneven;
  w->group = group;
  check_ok(ddp_model_create(group, &options, &w->model));
  for (int p = 0; p < PARAMETERS; p++)
    check_ok(ddp_model_add_array(w->model, p == 0 ? "weight" : "bias", w->value[p], w->grad[p], ELEMENTS, NULL));
  check_ok(ddp_model_commit(w->model, NULL));
  check_ok(ddp_optimizer_options_init(&shared, sizeof shared));
  shared.shard = kind == SHARDED || kind == SHARDED_IN_BACKWARD || kind == SHARDED_RULE;
  shared.in_backward = kind == IN_BACKWARD || kind == SHARDED_IN_BACKWARD;
  if (kind == RULE || kind == SHARDED_RULE) {
    check_defaults(custom_options, rule);
    rule.rate = 1;
    check_ok(ddp_optimizer_create_custom(w->model, &rule, &shared, NULL, descend, NULL, NULL, &w->optimizer));
  } else if (kind == ADAM) {
    check_ok(ddp_optimizer_create_adam(w->model, NULL, &shared, &w->optimizer));
  } else {
    check_defaults(sgd_options, rule);
    rule.rate = 1;
    check_ok(ddp_optimizer_create_sgd(w->model, &rule, &shared, &w->optimizer));
  }
  return w;
}

static void close_world(world *w) {
  ddp_optimizer_destroy(w->optimizer);
  ddp_model_destroy(w->model);
  free(w);
}

static void fill(world *w, float number) {
  for (int p = 0; p < PARAMETERS; p++)
    for (int i = 0; i < ELEMENTS; i++) w->grad[p][i] = number;
}

static void pass(world *w, ddp_pass mode) {
  check_ok(ddp_model_begin_backward(w->model, mode));
  fill(w, (float)(2 * ddp_group_get_rank(w->group)));
  for (int p = 0; p < PARAMETERS; p++) check_ok(ddp_model_mark_ready(w->model, p, NULL));
  check_ok(ddp_model_end_backward(w->model, NULL));
}

/* Every element, on this rank. */
static void check_values(world *w, float number) {
  for (int p = 0; p < PARAMETERS; p++) {
    check_number(w->value[p][0], number);
    check_number(w->value[p][ELEMENTS - 1], number);
  }
}

static void refused(world *w) {
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(w->optimizer, NULL), "no pass has reduced these gradients");
  check_text(ddp_last_error(), "ddp_model_mark_reduced");
  check_text(ddp_last_error(), "DDP_PASS_LOCAL");
}

check_ranks_case(a_step_of_several_ranks_needs_a_pass, 2) {
  for (enum kind kind = PLAIN; kind < KINDS; kind++) {
    world *w = open_world(self->group, kind, 0);
    int64_t steps = -1;
    for (int step = 0; step < 3; step++) {
      fill(w, (float)(1 + self->index));
      refused(w);
    }
    check_values(w, 0);
    check_ok(ddp_optimizer_get_step_count(w->optimizer, &steps));
    check_int(steps, 0);
    check_ok(ddp_model_check_replicas(w->model, NULL));
    check_ok(ddp_group_status(self->group));
    pass(w, DDP_PASS_REDUCE); /* the mean of 0 and 2 */
    check_ok(ddp_optimizer_step(w->optimizer, NULL));
    if (kind != ADAM) check_values(w, -1);
    check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(w->optimizer, NULL), "make a pass first");
    check_ok(ddp_model_check_replicas(w->model, NULL));
    close_world(w);
  }
}

check_ranks_case(gradients_that_the_program_has_reduced_are_good_for_one_step, 2) {
  for (enum kind kind = PLAIN; kind < KINDS; kind++) {
    world *w = open_world(self->group, kind, 0);
    const double decay = 0.5;
    ddp_ema *ema = NULL;
    double norm = 0;
    check_ok(ddp_ema_create(w->model, &decay, 1, &ema));
    for (int step = 0; step < 4; step++) {
      fill(w, (float)(4 * self->index)); /* the mean is 2 */
      for (int p = 0; p < PARAMETERS; p++) {
        const ddp_tensor grad = vector_of(w->grad[p], DDP_F32, ELEMENTS);
        check_ok(ddp_group_all_reduce(self->group, &grad, DDP_AVERAGE, NULL));
      }
      if (step == 2) check_ok(ddp_model_scale_grad(w->model, 0.5, NULL)); /* before or behind it, as a program likes */
      check_ok(ddp_model_mark_reduced(w->model));
      if (step == 3) check_ok(ddp_model_scale_grad(w->model, 0.5, NULL));
      check_ok(ddp_model_get_grad_norm(w->model, INFINITY, &norm, NULL));
      check_number(norm, step < 2 ? 2 : 1);
      check_int(ddp_model_was_used(w->model, 0), 1);
      check_ok(ddp_optimizer_step(w->optimizer, NULL));
      check_ok(ddp_ema_update(ema, NULL));
      check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(w->optimizer, NULL), "ddp_model_mark_reduced");
      check_ok(ddp_model_zero_grad(w->model, NULL));
      check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(w->optimizer, NULL), "ddp_model_mark_reduced");
    }
    if (kind != ADAM) check_values(w, -6);
    check_ok(ddp_model_check_replicas(w->model, NULL));
    pass(w, DDP_PASS_REDUCE); /* both ways may be mixed */
    if (kind == IN_BACKWARD || kind == SHARDED_IN_BACKWARD)
      check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_mark_reduced(w->model), "ddp_optimizer_step first");
    check_ok(ddp_optimizer_step(w->optimizer, NULL));
    if (kind != ADAM) check_values(w, -7);
    check_ok(ddp_model_check_replicas(w->model, NULL));
    ddp_ema_destroy(ema);
    close_world(w);
  }
}

check_ranks_case(what_other_passes_leave_is_no_mean_either, 2) {
  world *w = open_world(self->group, PLAIN, 0);
  pass(w, DDP_PASS_ACCUMULATE);
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(w->optimizer, NULL), "DDP_PASS_ACCUMULATE");
  check_ok(ddp_model_zero_grad(w->model, NULL)); /* nothing is accumulated any more, and nothing is reduced */
  refused(w);
  check_ok(ddp_model_begin_backward(w->model, DDP_PASS_REDUCE));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_mark_reduced(w->model)); /* a pass is open */
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_end_backward(w->model, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(w->optimizer, NULL), "ddp_model_zero_grad");
  check_ok(ddp_model_zero_grad(w->model, NULL)); /* of a pass that was void, the first one */
  refused(w);
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_skip_backward(w->model, NULL), "no rank contributed");
  check_ok(ddp_model_zero_grad(w->model, NULL));
  refused(w);
  if (self->index == 0) { /* one rank skips, the other one contributes */
    check_ok(ddp_model_skip_backward(w->model, NULL));
    fill(w, 1);
  } else {
    pass(w, DDP_PASS_REDUCE);
  }
  check_ok(ddp_optimizer_step(w->optimizer, NULL));
  check_ok(ddp_model_check_replicas(w->model, NULL));
  pass(w, DDP_PASS_LOCAL); /* a step of each rank alone */
  check_ok(ddp_optimizer_step(w->optimizer, NULL));
  check_error(DDP_ERROR_MISMATCH, ddp_model_check_replicas(w->model, NULL));
  check_ok(ddp_model_average_parameters(w->model, NULL));
  check_ok(ddp_model_check_replicas(w->model, NULL));
  close_world(w);
}

static void load_first(rank *self) {
  const char *path = self->data;
  for (int loads = 0; loads < 2; loads++) {
    world *w = open_world(self->group, ADAM, 0);
    check_defaults(state, state);
    state.model = w->model;
    state.optimizer = w->optimizer;
    if (loads == 0) {
      pass(w, DDP_PASS_REDUCE);
      check_ok(ddp_optimizer_step(w->optimizer, NULL));
      check_ok(ddp_state_save_file(&state, path));
    } else {
      check_ok(ddp_state_load_file(&state, path, NULL, NULL));
      fill(w, (float)self->index);
      refused(w);
      pass(w, DDP_PASS_REDUCE);
      check_ok(ddp_optimizer_step(w->optimizer, NULL));
    }
    check_ok(ddp_model_check_replicas(w->model, NULL));
    close_world(w);
  }
}

check_case(a_load_makes_no_gradients) {
  char path[] = "/tmp/ddp-step-XXXXXX";
  close(mkstemp(path));
  run_ranks(2, "local://load-first", load_first, path);
  unlink(path);
}

check_ranks_case(ranks_that_have_joined_change_nothing_about_it, 2) {
  world *w = open_world(self->group, PLAIN, 1);
  if (self->index == 0) {
    check_ok(ddp_model_join(w->model, NULL));
  } else {
    refused(w);
    pass(w, DDP_PASS_REDUCE);
    check_ok(ddp_optimizer_step(w->optimizer, NULL));
    check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(w->optimizer, NULL), "make a pass first");
    check_ok(ddp_model_join(w->model, NULL));
  }
  check_ok(ddp_model_check_replicas(w->model, NULL));
  close_world(w);
}

check_alone_case(a_group_of_one_may_step_without_a_pass) {
  for (enum kind kind = PLAIN; kind < KINDS; kind++) {
    world *w = open_world(group, kind, 0);
    for (int step = 0; step < 2; step++) {
      fill(w, 1);
      check_ok(ddp_optimizer_step(w->optimizer, NULL));
    }
    if (kind != ADAM) check_values(w, -2);
    fill(w, 1);
    check_ok(ddp_model_mark_reduced(w->model)); /* a program needs no if */
    check_ok(ddp_optimizer_step(w->optimizer, NULL));
    if (kind != ADAM) check_values(w, -3);
    close_world(w);
  }
}

check_alone_case(mark_reduced_refuses_what_is_no_committed_model) {
  ddp_model *model = new_model(group, NULL);
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_mark_reduced(model), "ddp_model_commit");
  ddp_model_destroy(model);
}
