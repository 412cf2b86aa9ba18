/* SPDX-License-Identifier: Apache-2.0 */
/* ddp_get_error_details and its lists on one thread: what they hold before and after errors, and what they refuse. What they
 * hold of errors of several ranks is in capi/errors_of_ranks_test.cpp. */
#include "support/ranks.h"

/* check_ok makes a call that fails first, so what reads the numbers of an error is looked at by check_int. */

static ddp_error_details details(void) {
  ddp_error_details found;
  memset(&found, 0xff, sizeof found);
  found.struct_size = sizeof found;
  check_int(ddp_get_error_details(&found), DDP_OK);
  check_int(found.struct_size, sizeof found);
  check_int(found.reserved, 0);
  return found;
}

static void expect_nothing_but(ddp_status status) {
  int32_t count = -1;
  const ddp_error_details found = details();
  check_int(found.status, status);
  check_int(found.rank_count, 0);
  check_int(found.parameter_count, 0);
  check_int(found.call, 0);
  check_int(found.other_call, 0);
  check_int(found.bytes_expected, -1);
  check_int(found.bytes_got, -1);
  check_int(ddp_get_error_ranks(NULL, 0, &count), DDP_OK);
  check_int(count, 0);
  count = -1;
  check_int(ddp_get_error_parameters(NULL, 0, &count), DDP_OK);
  check_int(count, 0);
}

static void *on_a_fresh_thread(void *argument) {
  (void)argument;
  expect_nothing_but(DDP_OK);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_set_log((ddp_log_level)99, NULL, NULL));
  expect_nothing_but(DDP_ERROR_INVALID_ARGUMENT);
  return NULL;
}

/* A model of three parameters, committed. */
static ddp_model *make_model(ddp_group *group) {
  static float values[3][2], grads[3][2];
  const char *const names[3] = {"a", "b", "c"};
  ddp_model *model = new_model(group, NULL);
  for (int at = 0; at < 3; at++) check_ok(ddp_model_add_array(model, names[at], values[at], grads[at], 2, NULL));
  check_ok(ddp_model_commit(model, NULL));
  return model;
}

check_case(numbers_belong_to_their_thread) {
  pthread_t thread;
  ddp_group *const group = alone();
  ddp_model *const model = make_model(group);
  check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  check_ok(ddp_model_mark_ready(model, 1, NULL));
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_mark_ready(model, 1, NULL));
  assert_int_equal(pthread_create(&thread, NULL, on_a_fresh_thread, NULL), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  int32_t found[2] = {-1, -1}, count = 0;
  check_int(ddp_get_error_parameters(found, 2, &count), DDP_OK);
  check_int(count, 1);
  check_int(found[0], 1);
  check_int(found[1], -1);
  check_int(details().status, DDP_ERROR_INVALID_STATE);

  /* A call that succeeds does not touch them, and the pass that fails names the others. */
  check_int(ddp_group_status(group), DDP_OK);
  check_int(details().parameter_count, 1);
  check_error(DDP_ERROR_INVALID_STATE, ddp_model_end_backward(model, NULL));
  check_int(details().parameter_count, 2);
  check_int(ddp_get_error_parameters(found, 1, &count), DDP_OK);
  check_int(count, 2);
  check_int(found[0], 0);
  check_int(found[1], -1);
  check_int(ddp_get_error_parameters(found, 2, &count), DDP_OK);
  check_int(found[1], 2);
  check_int(ddp_get_error_ranks(found, 2, &count), DDP_OK);
  check_int(count, 1);
  check_int(found[0], 0);
  check_int(strcmp(ddp_call_name(details().call), "ddp_model_end_backward"), 0);
  ddp_model_destroy(model);
  ddp_group_destroy(group);
}

check_case(what_is_refused_replaces_the_error) {
  int32_t number = 7, count = 7;
  ddp_error_details found;
  memset(&found, 0, sizeof found);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_get_error_details(NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_get_error_details(&found));
  check_text(ddp_last_error(), "struct_size");
  found.struct_size = 7;
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_get_error_details(&found));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_get_error_ranks(&number, 1, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_get_error_ranks(NULL, 1, &count));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_get_error_ranks(&number, -1, &count));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_get_error_parameters(&number, 1, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_get_error_parameters(NULL, 1, &count));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_get_error_parameters(&number, -1, &count));
  check_int(number, 7);
  check_int(count, 7);
  expect_nothing_but(DDP_ERROR_INVALID_ARGUMENT);
}

/* A program of an earlier version has a shorter struct. */
check_case(a_shorter_struct_is_filled_as_far_as_it_goes) {
  struct {
    int64_t struct_size;
    ddp_status status;
    int32_t rank_count, behind;
  } early = {16, DDP_OK, -1, 77};
  (void)ddp_group_barrier(NULL);
  check_int(ddp_get_error_details((ddp_error_details *)(void *)&early), DDP_OK);
  check_int(early.status, DDP_ERROR_INVALID_ARGUMENT);
  check_int(early.rank_count, 0);
  check_int(early.behind, 77);
}

check_case(calls_have_names) {
  check_int(strcmp(ddp_call_name(0), ""), 0);
  check_int(strcmp(ddp_call_name(-1), ""), 0);
  check_int(strcmp(ddp_call_name(1), "ddp_group_barrier"), 0);
  check_int(strcmp(ddp_call_name(100000), ""), 0);
}
