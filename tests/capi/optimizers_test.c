/* SPDX-License-Identifier: Apache-2.0 */
/* Several optimizers of one model: which parameters each gets, what is refused, and their states in one checkpoint. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/ranks.h"

enum { P = 4, N = 3 };

typedef struct fixture {
  ddp_group *group;
  ddp_model *model;
  float value[P][N], grad[P][N];
} fixture;

static const char *const kNames[P] = {"w1", "b1", "w2", "b2"};

static void open_model(fixture *f, ddp_group *group) {
  memset(f, 0, sizeof *f);
  f->group = group;
  check_defaults(model_options, options);
  check_ok(ddp_model_create(f->group, &options, &f->model));
  for (int p = 0; p < P; p++) check_ok(ddp_model_add_array(f->model, kNames[p], f->value[p], f->grad[p], N, NULL));
}

static ddp_status make(const fixture *f, double rate, const int32_t *list, int64_t count, int32_t in_backward,
                       ddp_optimizer **out) {
  check_defaults(sgd_options, rule);
  check_defaults(optimizer_options, options);
  rule.rate = rate;
  options.parameters = list;
  options.parameter_count = count;
  options.in_backward = in_backward;
  return ddp_optimizer_create_sgd(f->model, &rule, &options, out);
}

static void pass(fixture *f) {
  check_ok(ddp_model_begin_backward(f->model, DDP_PASS_REDUCE));
  for (int p = P; p-- > 0;) {
    for (int i = 0; i < N; i++) f->grad[p][i] = (float)(p + 1);
    check_ok(ddp_model_mark_ready(f->model, p, NULL));
  }
  check_ok(ddp_model_end_backward(f->model, NULL));
}

static void check_values(const fixture *f, const double *wanted) {
  for (int p = 0; p < P; p++)
    for (int i = 0; i < N; i++) check_number(f->value[p][i], wanted[p]);
}

check_case(each_changes_its_own_parameters) {
  for (int32_t in_backward = 0; in_backward < 2; in_backward++) {
    fixture f;
    ddp_optimizer *weights = NULL, *rest = NULL;
    const int32_t list[] = {2, 0};
    open_model(&f, alone());
    check_ok(make(&f, 1, list, 2, in_backward, &weights));
    check_ok(make(&f, 10, NULL, 0, 0, &rest));
    check_ok(ddp_model_commit(f.model, NULL));
    pass(&f);
    if (in_backward == 1)
      check_error_text(DDP_ERROR_INVALID_STATE, ddp_model_begin_backward(f.model, DDP_PASS_REDUCE),
                       "optimizer 0 (sgd), which has in_backward");
    check_ok(ddp_optimizer_step(rest, NULL));
    check_ok(ddp_optimizer_step(weights, NULL));
    check_values(&f, (const double[]){-1, -20, -3, -40});
    check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(rest, NULL), "used these gradients already");
    check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_set_parameter_options(rest, 2, 0, 1), "optimizer 1 (sgd)");
    check_text(ddp_last_error(), "\"w2\"");
    check_ok(ddp_optimizer_set_parameter_options(weights, 2, 0, 2));
    pass(&f);
    check_ok(ddp_optimizer_step(weights, NULL));
    check_ok(ddp_optimizer_step(rest, NULL));
    check_values(&f, (const double[]){-2, -40, -9, -80});
    ddp_optimizer_destroy(weights);
    ddp_optimizer_destroy(rest);
    ddp_model_destroy(f.model);
    ddp_group_destroy(f.group);
  }
}

check_case(a_parameter_has_one_optimizer) {
  fixture f;
  float later_value[N] = {0}, later_grad[N] = {0};
  ddp_optimizer *a = NULL, *b = NULL, *c = NULL;
  const int32_t first[] = {1, 2}, second[] = {3, 2}, third[] = {3};
  open_model(&f, alone());
  check_ok(make(&f, 1, first, 2, 0, &a));
  check_error_text(DDP_ERROR_INVALID_STATE, make(&f, 1, second, 2, 0, &b), "parameter \"w2\"");
  check_text(ddp_last_error(), "optimizer 0 (sgd)");
  check_text(ddp_last_error(), "optimizer 1 (sgd)");
  check_ok(make(&f, 1, third, 1, 0, &b));
  check_defaults(adam_options, rule);
  check_ok(ddp_optimizer_create_adam(f.model, &rule, NULL, &c)); /* w1, and what is added later */
  check_ok(ddp_model_add_array(f.model, "later", later_value, later_grad, N, NULL));
  const int32_t later[] = {4};
  ddp_optimizer *d = NULL;
  check_error_text(DDP_ERROR_INVALID_STATE, make(&f, 1, later, 1, 0, &d), "parameter \"later\"");
  check_text(ddp_last_error(), "optimizer 2 (adam)");
  check_error_text(DDP_ERROR_INVALID_STATE, make(&f, 1, NULL, 0, 0, &d), "parameter \"w1\"");
  assert_null(d);
  ddp_optimizer_destroy(a); /* its parameters are free, and nobody's before they are asked for */
  check_ok(make(&f, 1, first, 2, 0, &d));
  ddp_optimizer_destroy(b);
  ddp_optimizer_destroy(c);
  ddp_optimizer_destroy(d);
  ddp_model_destroy(f.model);
  ddp_group_destroy(f.group);
}

/* The one that gets what is added later need not have the first parameter, nor any. */
check_case(a_second_optimizer_without_a_list_is_refused) {
  const int32_t first[] = {0}, all[] = {0, 1, 2, 3};
  for (int count = 1; count <= 4; count += 3) {
    fixture f;
    ddp_optimizer *a = NULL, *b = NULL, *c = NULL;
    open_model(&f, alone());
    check_ok(make(&f, 1, count == 1 ? first : all, count, 0, &a));
    check_ok(make(&f, 1, NULL, 0, 0, &b));
    ddp_optimizer_destroy(a);
    check_error_text(DDP_ERROR_INVALID_STATE, make(&f, 1, NULL, 0, 0, &c),
                     count == 1 ? "parameter \"b1\"" : "all parameters");
    check_text(ddp_last_error(), "optimizer 1 (sgd)");
    ddp_optimizer_destroy(b);
    ddp_model_destroy(f.model);
    ddp_group_destroy(f.group);
  }
}

check_case(lists_that_are_wrong_are_refused) {
  fixture f;
  ddp_optimizer *optimizer = NULL;
  const int32_t below[] = {-1}, above[] = {0, P}, twice[] = {1, 3, 1}, good[] = {0};
  open_model(&f, alone());
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, make(&f, 1, below, 1, 0, &optimizer), "parameters[0] is -1");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, make(&f, 1, above, 2, 0, &optimizer), "parameters[1] is 4");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, make(&f, 1, twice, 3, 0, &optimizer), "\"b1\" (index 1) twice");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, make(&f, 1, good, 0, 0, &optimizer), "parameter_count is 0");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, make(&f, 1, good, -1, 0, &optimizer), "parameter_count is -1");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, make(&f, 1, NULL, 1, 0, &optimizer), "parameters is NULL");
  assert_null(optimizer);
  ddp_model_destroy(f.model);
  ddp_group_destroy(f.group);
}

check_case(buckets_are_cut_by_commit) {
  fixture f;
  ddp_optimizer *weights = NULL, *rest = NULL;
  const int32_t list[] = {0, 2};
  open_model(&f, alone());
  check_ok(ddp_model_commit(f.model, NULL));
  check_error_text(DDP_ERROR_INVALID_STATE, make(&f, 1, list, 2, 1, &weights), "before it");
  assert_null(weights);
  check_ok(make(&f, 1, list, 2, 0, &weights)); /* without a part in passes it may come at any time */
  check_ok(make(&f, 10, NULL, 0, 0, &rest));
  pass(&f);
  check_ok(ddp_optimizer_step(weights, NULL));
  check_ok(ddp_optimizer_step(rest, NULL));
  check_values(&f, (const double[]){-1, -20, -3, -40});
  ddp_optimizer_destroy(weights);
  ddp_optimizer_destroy(rest);
  ddp_model_destroy(f.model);
  ddp_group_destroy(f.group);
  open_model(&f, alone());
  const int32_t buckets[] = {0, 1, -1, 2, 3};
  check_ok(ddp_model_set_buckets(f.model, buckets, 5));
  check_ok(make(&f, 1, list, 2, 1, &weights));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_model_commit(f.model, NULL), "the parameters 0 and 1 are in one bucket");
  ddp_optimizer_destroy(weights);
  check_ok(ddp_model_commit(f.model, NULL));
  const int32_t bucket[] = {0, 1};
  check_ok(make(&f, 1, bucket, 2, 1, &weights)); /* the buckets of the program have no other parameter there */
  check_ok(make(&f, 10, NULL, 0, 1, &rest));
  pass(&f);
  check_values(&f, (const double[]){-1, -2, -30, -40});
  check_ok(ddp_optimizer_step(weights, NULL));
  check_ok(ddp_optimizer_step(rest, NULL));
  ddp_optimizer_destroy(weights);
  ddp_optimizer_destroy(rest);
  ddp_model_destroy(f.model);
  ddp_group_destroy(f.group);
}

check_case(a_state_has_them_in_order) {
  fixture f;
  char path[] = "/tmp/ddp_optimizers_XXXXXX";
  assert_int_not_equal(close(mkstemp(path)), -1);
  ddp_optimizer *made[3] = {NULL, NULL, NULL}, *other = NULL;
  const int32_t list[] = {0, 2};
  open_model(&f, alone());
  check_ok(make(&f, 1, list, 2, 0, &made[0]));
  check_ok(ddp_optimizer_create_adam(f.model, NULL, NULL, &made[1]));
  made[2] = made[0];
  check_ok(ddp_model_commit(f.model, NULL));
  pass(&f);
  check_ok(ddp_optimizer_step(made[0], NULL));
  check_ok(ddp_optimizer_step(made[1], NULL));
  check_defaults(state, saved);
  saved.model = f.model;
  saved.optimizers = made;
  saved.optimizer_count = 2;
  check_ok(ddp_state_save_file(&saved, path));
  check_ok(ddp_optimizer_set_rate(made[0], 7));
  check_ok(ddp_optimizer_set_rate(made[1], 8));
  check_ok(ddp_state_load_file(&saved, path, NULL, NULL));
  double rate = 0;
  check_ok(ddp_optimizer_get_rate(made[0], &rate));
  check_number(rate, 1);
  check_ok(ddp_optimizer_get_rate(made[1], &rate));
  check_number(rate, 0.001);
  saved.optimizers = made + 1; /* the other order */
  check_error_text(DDP_ERROR_MISMATCH, ddp_state_load_file(&saved, path, NULL, NULL), "as number 0");
  saved.optimizers = made;
  saved.optimizer_count = 1;
  check_error_text(DDP_ERROR_MISMATCH, ddp_state_load_file(&saved, path, NULL, NULL), "2 optimizers, but 1 were passed");
  saved.optimizer_count = 3;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_file(&saved, path), "an optimizer twice");
  saved.optimizer_count = 0;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_file(&saved, path), "optimizer_count is 0");
  saved.optimizer_count = 2;
  saved.optimizer = made[0];
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_file(&saved, path), "both set");
  saved.optimizer = NULL;
  saved.optimizers = &other;
  saved.optimizer_count = 1;
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_file(&saved, path));
  ddp_optimizer_destroy(made[0]);
  ddp_optimizer_destroy(made[1]);
  ddp_model_destroy(f.model);
  ddp_group_destroy(f.group);
  unlink(path);
}

check_case(a_loss_scale_is_set_for_all) {
  fixture f;
  ddp_optimizer *weights = NULL, *rest = NULL;
  double scale = 0;
  const int32_t list[] = {0, 2};
  check_defaults(loss_scale_options, options);
  options.initial = 8;
  options.interval = 0;
  open_model(&f, alone());
  check_ok(make(&f, 1, list, 2, 0, &weights));
  check_ok(ddp_optimizer_set_loss_scale(weights, &options));
  check_ok(make(&f, 1, NULL, 0, 0, &rest)); /* made later, it has the scale of the model */
  check_ok(ddp_optimizer_get_loss_scale(rest, &scale));
  check_number(scale, 8);
  options.initial = 2;
  check_ok(ddp_optimizer_set_loss_scale(rest, &options));
  check_ok(ddp_optimizer_get_loss_scale(weights, &scale));
  check_number(scale, 2);
  ddp_optimizer_destroy(weights);
  ddp_optimizer_destroy(rest);
  ddp_model_destroy(f.model);
  ddp_group_destroy(f.group);
}

/* A checkpoint of version 0.1.0 with format 1, as that version wrote it: SGD with momentum 0.5 and the rate 0.5 over
 * gradients of 1 and 2, twice; then the rate was set. */
static const char kFormat1[] =
    "{\"__metadata__\":{\"ddp.checksum\":\"c76192a06e6c6132\",\"ddp.epoch\":\"3\",\"ddp.format\":\"1\",\"ddp.o"
    "ptimizer\":\"sgd\",\"ddp.optimizer.clip_value\":\"0\",\"ddp.optimizer.dampening\":\"0\",\"ddp.optimize"
    "r.group.bias\":\"0.25 2\",\"ddp.optimizer.groups\":\"1\",\"ddp.optimizer.loss_scale\":\"1\",\"ddp.opti"
    "mizer.loss_scale.backoff\":\"1\",\"ddp.optimizer.loss_scale.good_steps\":\"0\",\"ddp.optimizer.los"
    "s_scale.growth\":\"1\",\"ddp.optimizer.loss_scale.interval\":\"0\",\"ddp.optimizer.loss_scale.maxi"
    "mum\":\"1\",\"ddp.optimizer.loss_scale.minimum\":\"0\",\"ddp.optimizer.max_norm\":\"0\",\"ddp.optimize"
    "r.momentum\":\"0.5\",\"ddp.optimizer.nesterov\":\"0\",\"ddp.optimizer.nonfinite\":\"0\",\"ddp.optimize"
    "r.rate\":\"0.125\",\"ddp.optimizer.skipped\":\"0\",\"ddp.optimizer.step_count\":\"2\",\"ddp.optimizer."
    "steps.bias\":\"2\",\"ddp.optimizer.steps.weight\":\"2\",\"ddp.optimizer.weight_decay\":\"0\",\"ddp.pre"
    "fix\":\"ddp:\",\"ddp.step\":\"2\",\"ddp.tensor_hashes\":\"5f558f99ee079778c6c71c27721190fc49e51f2b8d"
    "5699ba51173f17725a2e2e\",\"ddp.version\":\"0.1.0\",\"user.note\":\"format 1\"},\"weight\":{\"dtype\":\"F"
    "32\",\"shape\":[3],\"data_offsets\":[0,12]},\"bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[1"
    "2,24]},\"ddp:optimizer/weight.momentum_buffer\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[2"
    "4,36]},\"ddp:optimizer/bias.momentum_buffer\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[36,"
    "48]}}";
static const float kFormat1Data[12] = {-0.25F, 0.75F, 1.75F, -2.75F, -2.3125F, -1.875F,
                                       1.5F,   1.5F,  1.5F,  3.75F,  4.0625F,  4.375F};

static void write_format_1(const char *path) {
  const uint64_t length = 1272; /* with the spaces that align the data */
  char header[1272];
  memset(header, ' ', sizeof header);
  memcpy(header, kFormat1, sizeof kFormat1 - 1);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  check_int(fwrite(&length, sizeof length, 1, file), 1);
  check_int(fwrite(header, sizeof header, 1, file), 1);
  check_int(fwrite(kFormat1Data, sizeof kFormat1Data, 1, file), 1);
  fclose(file);
}

static void check_loaded(ddp_model *model, ddp_optimizer *optimizer, float value[2][3]) {
  double rate = 0;
  int64_t steps = 0;
  const char *note = NULL;
  check_ok(ddp_optimizer_get_rate(optimizer, &rate));
  check_number(rate, 0.125);
  check_ok(ddp_optimizer_get_step_count(optimizer, &steps));
  check_int(steps, 2);
  check_ok(ddp_model_get_metadata(model, "note", &note));
  assert_string_equal(note, "format 1");
  check_number(value[0][0], -0.25);
  check_number(value[1][2], -1.875);
}

static void pass_of_format_1(ddp_model *model, float grad[2][3]) {
  check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  for (int p = 0; p < 2; p++) {
    for (int i = 0; i < 3; i++) grad[p][i] = (float)(p + 1);
    check_ok(ddp_model_mark_ready(model, p, NULL));
  }
  check_ok(ddp_model_end_backward(model, NULL));
}

check_case(a_file_of_format_1_is_read) {
  char path[] = "/tmp/ddp_optimizers_XXXXXX";
  assert_int_not_equal(close(mkstemp(path)), -1);
  write_format_1(path);
  for (int round = 0; round < 2; round++) { /* then what this version writes of it */
    ddp_group *group = alone();
    ddp_optimizer *optimizer = NULL, *all[2] = {NULL, NULL};
    float value[2][3] = {{0}}, grad[2][3] = {{0}};
    ddp_model *model = new_model(group, NULL);
    check_ok(ddp_model_add_array(model, "weight", value[0], grad[0], 3, NULL));
    check_ok(ddp_model_add_array(model, "bias", value[1], grad[1], 3, NULL));
    check_ok(ddp_model_commit(model, NULL));
    check_defaults(sgd_options, rule);
    rule.momentum = 0.5;
    check_ok(ddp_optimizer_create_sgd(model, &rule, NULL, &optimizer));
    ddp_load_report report = {.struct_size = sizeof report};
    check_defaults(state, saved);
    saved.model = model;
    saved.optimizer = optimizer;
    check_ok(ddp_state_load_file(&saved, path, NULL, &report));
    check_int(report.epoch, 3);
    check_int(report.step, 2);
    check_loaded(model, optimizer, value);
    saved.epoch = 3;
    saved.step = 2;
    check_ok(ddp_state_save_file(&saved, path));
    pass_of_format_1(model, grad);
    check_ok(ddp_optimizer_step(optimizer, NULL));
    check_number(value[0][0], -0.25 - 0.125 * (0.5 * 1.5 + 1)); /* the momentum was 1 + 0.5 */
    ddp_optimizer_destroy(optimizer);
    const int32_t first[] = {0};
    check_defaults(optimizer_options, options);
    options.parameters = first;
    options.parameter_count = 1;
    check_ok(ddp_optimizer_create_sgd(model, &rule, &options, &all[0]));
    check_ok(ddp_optimizer_create_sgd(model, &rule, NULL, &all[1]));
    saved.optimizer = NULL;
    saved.optimizers = all;
    saved.optimizer_count = 2;
    check_error_text(DDP_ERROR_MISMATCH, ddp_state_load_file(&saved, path, NULL, NULL), "1 optimizer, but 2 were passed");
    ddp_optimizer_destroy(all[0]);
    ddp_optimizer_destroy(all[1]);
    ddp_model_destroy(model);
    ddp_group_destroy(group);
  }
  unlink(path);
}
