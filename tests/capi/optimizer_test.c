/* SPDX-License-Identifier: Apache-2.0 */
/* ddp/optimizer.h on one rank: options, what is refused, the life of a callback's data, and exact steps. */
#include <math.h>

#include "support/optimizer_fixture.h"

check_case(options_have_the_documented_defaults) {
  ddp_sgd_options sgd;
  ddp_adam_options adam;
  memset(&sgd, 0xff, sizeof sgd);
  memset(&adam, 0xff, sizeof adam);
  check_ok(ddp_sgd_options_init(&sgd, sizeof sgd));
  check_ok(ddp_adam_options_init(&adam, sizeof adam));
  check_int(sgd.struct_size, sizeof sgd);
  check_number(sgd.rate, 0.01);
  check_number(sgd.momentum, 0);
  check_number(sgd.dampening, 0);
  check_number(sgd.weight_decay, 0);
  check_int(sgd.nesterov, 0);
  check_int(adam.struct_size, sizeof adam);
  check_number(adam.rate, 0.001);
  check_number(adam.beta1, 0.9);
  check_number(adam.beta2, 0.999);
  check_number(adam.epsilon, 1e-8);
  check_number(adam.weight_decay, 0.01);
  check_int(adam.decoupled, 1);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_sgd_options_init(NULL, sizeof sgd));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_adam_options_init(NULL, sizeof adam));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_sgd_options_init(&sgd, 0));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_adam_options_init(&adam, -1));
}

check_fixture_case(create_refuses_wrong_sgd_options, open_fixture(f)) {
  ddp_optimizer *optimizer = garbage;
  ddp_sgd_options options;
#define REFUSED(member, value)                                                                                             \
  do {                                                                                                                     \
    check_ok(ddp_sgd_options_init(&options, sizeof options));                                                              \
    options.member = (value);                                                                                              \
    check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_create_sgd(f->model, &options, NULL, &optimizer), #member); \
  } while (0)
  REFUSED(struct_size, 0);
  REFUSED(rate, -0.1);
  REFUSED(rate, NAN);
  REFUSED(momentum, -0.1);
  REFUSED(dampening, INFINITY);
  REFUSED(weight_decay, -1);
  REFUSED(nesterov, 2);
  REFUSED(nesterov, 1); /* without momentum */
  REFUSED(reserved, 1);
#undef REFUSED
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_create_sgd(f->model, NULL, NULL, NULL));
  check_true(optimizer == (ddp_optimizer *)garbage);
}

check_fixture_case(create_refuses_wrong_adam_options, open_fixture(f)) {
  ddp_optimizer *optimizer = garbage;
  ddp_adam_options options;
#define REFUSED(member, value)                                                                                              \
  do {                                                                                                                      \
    check_ok(ddp_adam_options_init(&options, sizeof options));                                                              \
    options.member = (value);                                                                                               \
    check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_create_adam(f->model, &options, NULL, &optimizer), #member); \
  } while (0)
  REFUSED(struct_size, 0);
  REFUSED(rate, INFINITY);
  REFUSED(beta1, 1);
  REFUSED(beta2, -0.1);
  REFUSED(epsilon, NAN);
  REFUSED(epsilon, 0);
  REFUSED(weight_decay, -1);
  REFUSED(decoupled, 3);
  REFUSED(reserved, 1);
#undef REFUSED
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_create_adam(f->model, NULL, NULL, NULL));
  check_true(optimizer == (ddp_optimizer *)garbage);
}

check_fixture_case(rates_and_groups_are_checked_and_kept, open_fixture(f)) {
  ddp_optimizer *optimizer = NULL;
  double rate = 0;
  check_ok(ddp_optimizer_create_sgd(f->model, NULL, NULL, &optimizer));
  check_ok(ddp_optimizer_set_rate(optimizer, 0.5));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_set_rate(optimizer, -1), "rate is -1");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_set_rate(optimizer, NAN));
  check_ok(ddp_optimizer_get_rate(optimizer, &rate));
  check_number(rate, 0.5);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_get_rate(optimizer, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_get_step_count(optimizer, NULL));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_set_parameter_options(optimizer, 2, 0, 1), "index is 2");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_set_parameter_options(optimizer, -1, 0, 1));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_set_parameter_options(optimizer, 0, -1, 1));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_optimizer_set_parameter_options(optimizer, 0, 0, INFINITY));
  check_ok(ddp_optimizer_set_parameter_options(optimizer, 0, 0.5, 2)); /* g = 2 + p / 2, rate 1 */
  check_ok(ddp_optimizer_set_parameter_options(optimizer, 1, 0, 0));   /* frozen */
  check_ok(ddp_optimizer_step(optimizer, NULL));
  for (int i = 0; i < 3; i++) {
    check_number(f->value[0][i], (i + 1) - (2 + (i + 1) * 0.5));
    check_number(f->value[1][i], i + 1);
  }
  ddp_optimizer_destroy(optimizer);
}

check_fixture_case(momentum_follows_the_formula_exactly, open_fixture(f)) {
  ddp_optimizer *optimizer = NULL;
  int64_t count = 0;
  check_defaults(sgd_options, options);
  options.rate = 0.5;
  options.momentum = 0.5;
  options.dampening = 0.5;
  check_ok(ddp_optimizer_create_sgd(f->model, &options, NULL, &optimizer));
  check_ok(ddp_optimizer_step(optimizer, NULL)); /* buffer 2, undampened */
  check_number(f->value[0][0], 1 - 0.5 * 2);
  check_ok(ddp_optimizer_step(optimizer, NULL)); /* buffer 0.5 * 2 + 0.5 * 2 */
  check_number(f->value[0][0], 1 - 0.5 * 2 - 0.5 * 2);
  check_ok(ddp_optimizer_get_step_count(optimizer, &count));
  check_int(count, 2);
  ddp_optimizer_destroy(optimizer);
}

check_fixture_case(the_first_adam_step_has_the_length_of_the_rate, open_fixture(f)) {
  ddp_optimizer *optimizer = NULL;
  check_defaults(adam_options, options);
  options.rate = 0.125;
  options.weight_decay = 0;
  check_ok(ddp_optimizer_create_adam(f->model, &options, NULL, &optimizer));
  check_ok(ddp_optimizer_step(optimizer, NULL));
  for (int i = 0; i < 3; i++) check_true(fabs((double)f->value[0][i] - (i + 1 - 0.125)) < 1e-6);
  ddp_optimizer_destroy(optimizer);
}

check_alone_case(a_step_needs_a_ready_model) {
  ddp_optimizer *optimizer = NULL;
  ddp_model *model = new_model(group, NULL);
  check_ok(ddp_optimizer_create_adam(model, NULL, NULL, &optimizer));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(optimizer, NULL), "ddp_optimizer_step");
  check_ok(ddp_model_commit(model, NULL));
  check_ok(ddp_optimizer_step(optimizer, NULL));
  check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(optimizer, NULL), "ddp_optimizer_step");
  check_ok(ddp_model_end_backward(model, NULL));
  ddp_model_destroy(model);
  check_error(DDP_ERROR_INVALID_STATE, ddp_optimizer_step(optimizer, NULL));
  ddp_optimizer_destroy(optimizer);
}

typedef struct calls {
  int updates, releases;
  int32_t answer;
  double rate;
} calls;

static int32_t count_update(void *user_data, const ddp_update_slice *slice) {
  calls *c = user_data;
  check_int(slice->struct_size, sizeof *slice);
  check_int(slice->index, c->updates % 2);
  check_int(slice->dtype, DDP_F32);
  check_int(slice->first, 0);
  check_int(slice->count, 3);
  check_int(slice->state_count, 0);
  check_int(slice->device, DDP_CPU);
  check_true(slice->stream == NULL);
  ((float *)slice->value)[0] -= (float)slice->rate * ((const float *)slice->grad)[0];
  c->updates++;
  c->rate = slice->rate;
  return c->answer;
}

static void count_release(void *user_data) { ((calls *)user_data)->releases++; }

check_fixture_case(a_custom_update_is_called_and_released_once, open_fixture(f)) {
  calls c = {0, 0, 0, -1};
  double rate = -7;
  ddp_optimizer *optimizer = NULL;
  check_ok(ddp_optimizer_create_custom(f->model, NULL, NULL, NULL, count_update, &c, count_release, &optimizer));
  check_ok(ddp_optimizer_get_rate(optimizer, &rate));
  check_number(rate, 0);
  check_ok(ddp_optimizer_set_rate(optimizer, 0.25));
  check_ok(ddp_optimizer_step(optimizer, NULL));
  check_int(c.updates, 2);
  check_number(c.rate, 0.25);
  check_number(f->value[1][0], 0.5);
  check_ok(ddp_optimizer_set_parameter_options(optimizer, 0, 0.1, 1));
  const float before = f->value[0][0];
  c.answer = 7;
  check_error_text(DDP_ERROR_CALLBACK, ddp_optimizer_step(optimizer, NULL), "\"weight\"");
  check_text(ddp_last_error(), "7");
  check_number(f->value[0][0], before); /* undo */
  check_int(c.releases, 0);
  ddp_optimizer_destroy(optimizer);
  check_int(c.releases, 1);
  ddp_optimizer_destroy(optimizer);
  check_int(c.releases, 1);
}

/* Adagrad, with one array of state. */
static int32_t adagrad(void *user_data, const ddp_update_slice *slice) {
  (void)user_data;
  float *value = slice->value, *sum = slice->state[0];
  const float *grad = slice->grad;
  for (int64_t i = 0; i < slice->count; i++) {
    sum[i] += grad[i] * grad[i];
    value[i] -= (float)slice->rate * grad[i] / sqrtf(sum[i]);
  }
  return slice->step < 1 || slice->weight_decay != 0.5;
}

check_fixture_case(a_custom_rule_has_state_and_the_options_of_all, open_fixture(f)) {
  ddp_custom_options rule;
  ddp_optimizer_options shared;
  ddp_optimizer *optimizer = garbage;
  memset(&rule, 0xff, sizeof rule);
  check_ok(ddp_custom_options_init(&rule, sizeof rule));
  check_ok(ddp_optimizer_options_init(&shared, sizeof shared));
  check_number(rule.rate, 0);
  check_number(rule.weight_decay, 0);
  check_int(rule.whole_tensors, 0);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_custom_options_init(NULL, sizeof rule));
#define REFUSED(member, wrong)                                                                                     \
  do {                                                                                                             \
    check_ok(ddp_custom_options_init(&rule, sizeof rule));                                                         \
    rule.member = (wrong);                                                                                         \
    check_error_text(DDP_ERROR_INVALID_ARGUMENT,                                                                   \
                     ddp_optimizer_create_custom(f->model, &rule, &shared, NULL, adagrad, NULL, NULL, &optimizer), \
                     #member);                                                                                     \
  } while (0)
  REFUSED(struct_size, 0);
  REFUSED(rate, -1);
  REFUSED(weight_decay, NAN);
  REFUSED(whole_tensors, 2);
  REFUSED(reserved, 1);
#undef REFUSED
  const char *const wrong[] = {"a,,b", "a,b,a", "a/b", "a b", "a,", "master", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    check_error_text(DDP_ERROR_INVALID_ARGUMENT,
                     ddp_optimizer_create_custom(f->model, NULL, NULL, wrong[i], adagrad, NULL, NULL, &optimizer),
                     "state_names");
  check_ok(ddp_custom_options_init(&rule, sizeof rule));
  rule.whole_tensors = 1;
  shared.shard = 1;
  rule.rate = 0.25;
  rule.weight_decay = 0.5;
  check_ok(ddp_optimizer_create_custom(f->model, &rule, &shared, "sum", adagrad, NULL, NULL, &optimizer));
  const float before = f->value[0][0];
  check_ok(ddp_optimizer_step(optimizer, NULL)); /* g / sqrt(g * g) is 1 */
  check_number(f->value[0][0], before - 0.25F);
  ddp_optimizer_destroy(optimizer);
}

check_fixture_case(a_failed_custom_create_releases_once, open_fixture(f)) {
  calls c = {0, 0, 0, -1};
  ddp_optimizer *optimizer = garbage;
  check_error(DDP_ERROR_INVALID_ARGUMENT,
              ddp_optimizer_create_custom(NULL, NULL, NULL, NULL, count_update, &c, count_release, &optimizer));
  check_int(c.releases, 1);
  check_error(DDP_ERROR_INVALID_ARGUMENT,
              ddp_optimizer_create_custom(f->model, NULL, NULL, NULL, NULL, &c, count_release, &optimizer));
  check_int(c.releases, 2);
  check_error(DDP_ERROR_INVALID_ARGUMENT,
              ddp_optimizer_create_custom(f->model, NULL, NULL, NULL, count_update, &c, count_release, NULL));
  check_int(c.releases, 3);
  check_true(optimizer == (ddp_optimizer *)garbage);
  check_ok(ddp_optimizer_create_custom(f->model, NULL, NULL, NULL, count_update, NULL, NULL, &optimizer));
  ddp_optimizer_destroy(optimizer);
}
