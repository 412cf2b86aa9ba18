/* SPDX-License-Identifier: Apache-2.0 */
/* Loading into another model and on one rank alone, as a C99 program does it; ranks are threads. */
#include <stdlib.h>
#include <unistd.h>

#include "support/ranks.h"

static char folder[] = "/tmp/ddp-load-XXXXXX";

static const char *path_of(const char *name) {
  static __thread char path[200];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static ddp_model *make_model(ddp_group *group, const char *const *names, float (*values)[2], int count) {
  ddp_model *model = new_model(group, NULL);
  for (int i = 0; i < count; i++) {
    const ddp_tensor tensor = vector_of(values[i], DDP_F32, 2);
    check_ok(ddp_model_add_parameter(model, names[i], &tensor, NULL, NULL));
  }
  return model;
}

static ddp_state state_of(ddp_model *model) {
  check_defaults(state, state);
  state.model = model;
  return state;
}

static ddp_load_options mode_of(int32_t partial, int32_t local) {
  ddp_load_options options;
  memset(&options, 1, sizeof options);
  check_ok(ddp_load_options_init(&options, sizeof options));
  check_int(options.partial, 0);
  check_int(options.local, 0);
  options.partial = partial;
  options.local = local;
  return options;
}

static void save(ddp_group *group) {
  const char *const names[] = {"a", "b", "c"};
  float values[3][2] = {{1, 2}, {3, 4}, {5, 6}};
  ddp_model *model = make_model(group, names, values, 3);
  ddp_state state = state_of(model);
  ddp_optimizer *optimizer = NULL;
  check_ok(ddp_optimizer_create_adam(model, NULL, NULL, &optimizer));
  check_ok(ddp_optimizer_set_rate(optimizer, 0.125));
  state.optimizer = optimizer;
  state.epoch = 4;
  state.step = 9;
  check_ok(ddp_state_save_file(&state, path_of("state")));
  ddp_optimizer_destroy(optimizer);
  ddp_model_destroy(model);
}

static void load_parts(rank *self) {
  const char *const names[] = {"c", "d"};
  float values[2][2] = {{-1, -1}, {-2, -2}};
  ddp_model *model = make_model(self->group, names, values, 2);
  ddp_state state = state_of(model);
  check_ok(ddp_model_commit(model, NULL));
  check_true(ddp_model_get_missing(model, 0) == NULL);
  ddp_load_options options = mode_of(1, 0);
  ddp_load_report report = {.struct_size = sizeof report, .missing = -1};
  check_error_text(DDP_ERROR_MISMATCH, ddp_state_load_file(&state, path_of("state"), NULL, &report),
                   "1 missing (\"d\" F32 [2]), 2 unexpected (\"a\" F32 [2]");
  check_number(values[0][0], -1);
  check_int(report.missing, -1);
  check_ok(ddp_state_load_file(&state, path_of("state"), &options, &report));
  check_number(values[0][0], 5);
  check_number(values[1][0], -2);
  check_int(report.epoch, 4);
  check_int(report.step, 9);
  check_int(report.missing, 1);
  check_int(report.unexpected, 2);
  check_text(ddp_model_get_missing(model, 0), "d");
  check_true(ddp_model_get_missing(model, 1) == NULL && ddp_model_get_missing(model, -1) == NULL);
  check_text(ddp_model_get_unexpected(model, 0), "a");
  check_text(ddp_model_get_unexpected(model, 1), "b");
  check_true(ddp_model_get_unexpected(model, 2) == NULL && ddp_model_get_unexpected(model, INT64_MAX) == NULL);
  options.partial = self->index; /* not the same on all ranks */
  check_error_text(DDP_ERROR_MISMATCH, ddp_state_load_file(&state, path_of("state"), &options, NULL), "partial");
  ddp_model_destroy(model);
  check_true(ddp_model_get_missing(model, 0) == NULL && ddp_model_get_unexpected(NULL, 0) == NULL);
}

check_case(a_partial_load_reports_on_every_rank) { run_ranks(2, "local://load-parts", load_parts, NULL); }

static void load_alone(rank *self) {
  const char *const names[] = {"a", "b", "c"};
  float values[3][2] = {{0, 0}, {0, 0}, {0, 0}};
  double rate = 0;
  ddp_optimizer *optimizer = NULL;
  ddp_model *model = make_model(self->group, names, values, 3);
  ddp_state state = state_of(model);
  check_ok(ddp_optimizer_create_adam(model, NULL, NULL, &optimizer));
  state.optimizer = optimizer;
  const ddp_load_options local = mode_of(0, 1);
  if (self->index == 0) check_ok(ddp_state_load_file(&state, path_of("state"), &local, NULL));
  check_ok(ddp_model_commit(model, NULL));
  check_number(values[2][1], 6);
  check_ok(ddp_optimizer_get_rate(optimizer, &rate));
  check_number(rate, 0.125);
  check_error(DDP_ERROR_INVALID_STATE, ddp_state_load_file(&state, path_of("state"), &local, NULL));
  check_ok(ddp_state_load_file(&state, self->index == 0 ? path_of("state") : NULL, NULL, NULL));
  ddp_optimizer_destroy(optimizer);
  ddp_model_destroy(model);
}

check_case(rank_0_loads_alone_and_commit_spreads_it) { run_ranks(3, "local://load-alone", load_alone, NULL); }

check_alone_case(wrong_arguments_are_refused) {
  const char *const names[] = {"a"};
  float values[1][2] = {{0, 0}};
  ddp_model *model = make_model(group, names, values, 1);
  const ddp_tensor tensor = vector_of(values[0], DDP_F32, 1);
  ddp_state state = state_of(model);
  ddp_load_options options = mode_of(2, 0);
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_load_file(&state, path_of("state"), &options, NULL),
                   "partial is 2");
  options = mode_of(0, -1);
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_load_file(&state, path_of("state"), &options, NULL), "local -1");
  options = mode_of(0, 1);
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_load_file(&state, NULL, &options, NULL), "path is NULL");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_load_options_init(NULL, sizeof options));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_parameter(model, "__metadata__", &tensor, NULL, NULL),
                   "__metadata__");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_buffer(model, "__metadata__", &tensor, NULL), "__metadata__");
  ddp_model_destroy(model);
}

static int make_file(void **state) {
  (void)state;
  if (mkdtemp(folder) == NULL) return -1;
  ddp_group *group = alone();
  save(group);
  ddp_group_destroy(group);
  return 0;
}

static int remove_file(void **state) {
  (void)state;
  unlink(path_of("state"));
  return rmdir(folder);
}

check_around(make_file, remove_file)
