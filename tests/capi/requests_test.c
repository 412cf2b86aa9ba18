/* SPDX-License-Identifier: Apache-2.0 */
/* ddp/request.h from C: what each call does on ranks that are threads, wrong arguments, states, and destroyed handles. */
#include "ddp/backward.h"
#include "ddp/messages.h"
#include "ddp/request.h"
#include "support/ranks.h"

enum { kRanks = 3 };

static int32_t ended(ddp_request *request) {
  int32_t done = -7;
  check_ok(ddp_request_wait(request, -1, &done));
  check_int(done, 1);
  check_ok(ddp_request_test(request, &done));
  check_int(done, 1);
  check_int(ddp_request_get_source(request), -1);
  ddp_request_destroy(request);
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_request_test(request, &done), "live handle");
  return 0;
}

check_ranks_case(every_collective_has_its_posted_form, kRanks) {
  const int32_t me = self->index;
  float sum[2] = {1, 2}, all[3] = {0, 0, 0}, given[3] = {1, 2, 3}, part = -1, sent = (float)me, counted[3] = {0, 0, 0};
  const int64_t gives[3] = {1, 1, 1};
  const ddp_tensor sums = vector_of(sum, DDP_F32, 2), one = vector_of(&sent, DDP_F32, 1), three = vector_of(all, DDP_F32, 3),
                   whole = vector_of(given, DDP_F32, 3), parts = vector_of(&part, DDP_F32, 1),
                   each = vector_of(counted, DDP_F32, 3);
  ddp_group *group = self->group;
  ddp_request *request = NULL;
  check_ok(ddp_group_post_barrier(group, &request)), ended(request);
  check_ok(ddp_group_post_all_reduce(group, &sums, DDP_SUM, &request, NULL)), ended(request);
  check_number(sum[1], 6);
  check_ok(ddp_group_post_all_gather(group, &one, &three, &request, NULL)), ended(request);
  check_number(all[2], 2);
  check_ok(ddp_group_post_reduce_scatter(group, &whole, &parts, DDP_SUM, &request, NULL)), ended(request);
  check_number(part, 3 * (me + 1));
  check_ok(ddp_group_post_broadcast(group, &parts, 1, &request, NULL)), ended(request);
  check_number(part, 6);
  check_ok(ddp_group_post_reduce(group, &parts, DDP_MAX, 2, &request, NULL)), ended(request);
  check_ok(ddp_group_post_gather(group, &one, me == 1 ? &three : NULL, 1, &request, NULL)), ended(request);
  check_ok(ddp_group_post_scatter(group, me == 0 ? &whole : NULL, &parts, 0, &request, NULL)), ended(request);
  check_number(part, me + 1);
  check_ok(ddp_group_post_all_to_all(group, &whole, &three, NULL, NULL, &request, NULL)), ended(request);
  check_number(all[0], me + 1);
  check_ok(ddp_group_post_all_gather_counts(group, &one, &each, gives, &request, NULL)), ended(request);
  check_number(counted[1], 1);
}

check_ranks_case(a_posted_message_comes_and_says_from_whom, 2) {
  float number = (float)self->index + 1, got = -1;
  const ddp_tensor given = vector_of(&number, DDP_F32, 1), taken = vector_of(&got, DDP_F32, 1);
  const int32_t other = 1 - self->index;
  ddp_request *sent = NULL, *received = NULL;
  int32_t done = -7, index = -7;
  int64_t ids[2];
  check_ok(ddp_group_post_receive(self->group, &taken, DDP_ANY_SOURCE, 4, &received, NULL));
  check_ok(ddp_request_wait(received, 5, &done));
  check_int(done, 0);
  check_int(ddp_request_get_source(received), -1);
  check_ok(ddp_group_barrier(self->group));
  check_ok(ddp_group_post_send(self->group, &given, other, 4, &sent, NULL));
  ids[0] = ddp_request_get_id(received), ids[1] = ddp_request_get_id(sent);
  check_ok(ddp_request_wait_any(&ids[1], 1, -1, &index));
  check_int(index, 0);
  check_ok(ddp_request_wait_any(ids, 1, 20000, &index));
  check_int(index, 0);
  check_number(got, other + 1);
  check_int(ddp_request_get_source(received), other);
  check_ok(ddp_request_wait(received, -1, NULL));
  ddp_request_destroy(sent), ddp_request_destroy(received);
  ddp_request_destroy(received), ddp_request_destroy(NULL);
  check_true(ddp_request_get_id(received) == 0);
  check_int(ddp_request_get_source(received), -1);
  check_ok(ddp_group_post_receive(self->group, &taken, other, 5, &received, NULL));
  ids[0] = ddp_request_get_id(received);
  check_ok(ddp_request_wait_any(ids, 1, 0, &index));
  check_int(index, -1);
  ddp_request_destroy(received); /* withdrawn: nothing has come */
  check_ok(ddp_group_barrier(self->group));
}

check_ranks_case(wrong_arguments_are_refused_before_anything_is_posted, 2) {
  float numbers[4] = {1, 2, 3, 4};
  const ddp_tensor given = vector_of(numbers, DDP_F32, 2), odd = vector_of(numbers, DDP_F32, 3);
  ddp_group *group = self->group;
  ddp_request *request = NULL;
  int32_t done = -7, index = -7;
  const int64_t wrong[1] = {12345};
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_post_barrier(group, NULL), "out_request is NULL");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_post_all_reduce(group, NULL, DDP_SUM, &request, NULL),
                   "ddp_group_post_all_reduce: tensor");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_post_all_reduce(group, &given, (ddp_reduce)9, &request, NULL),
                   "op is 9");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_post_all_gather(group, &given, &odd, &request, NULL),
                   "ddp_group_post_all_gather: output");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_post_reduce_scatter(group, &given, &odd, DDP_SUM, &request, NULL));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_post_broadcast(group, &given, 7, &request, NULL), "root is 7");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_post_reduce(group, &given, DDP_SUM, -1, &request, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_post_gather(group, &given, NULL, self->index, &request, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_post_scatter(group, NULL, &given, self->index, &request, NULL));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_post_all_to_all(group, &odd, &given, NULL, NULL, &request, NULL),
                   "evenly");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_post_all_gather_counts(group, &given, &odd, NULL, &request, NULL),
                   "counts is NULL");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_post_send(group, &given, self->index, 1, &request, NULL),
                   "ddp_group_post_send: peer");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_post_receive(group, &given, 1 - self->index, -1, &request, NULL),
                   "tag is -1");
  check_true(request == NULL);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_request_wait_any(wrong, 1, -1, &index));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_request_wait_any(NULL, 1, -1, &index));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_request_wait_any(wrong, 0, -1, &index), "count is 0");
  check_ok(ddp_group_post_barrier(group, &request)); /* nothing of it has reached the other rank */
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_request_wait(request, -2, &done), "timeout_ms is -2");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_request_test(request, NULL));
  check_int(done, -7);
  ddp_request_destroy(request); /* waits for it */
  check_ok(ddp_group_barrier(group));
}

check_ranks_case(requests_are_posted_while_a_pass_is_open, 2) {
  float w[2] = {0, 0}, grad[2] = {1, 1}, value = 1;
  const ddp_tensor number = vector_of(&value, DDP_F32, 1);
  ddp_request *request = NULL;
  ddp_model *model = new_model(self->group, NULL);
  check_ok(ddp_model_add_array(model, "w", w, grad, 2, NULL));
  check_ok(ddp_model_commit(model, NULL));
  check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  check_error_text(DDP_ERROR_INVALID_STATE, ddp_group_post_all_reduce(self->group, &number, DDP_SUM, &request, NULL),
                   "requests = 1");
  check_ok(ddp_model_mark_ready(model, 0, NULL));
  check_ok(ddp_model_end_backward(model, NULL));
  check_ok(ddp_group_post_barrier(self->group, &request));
  ddp_request_destroy(request);
  check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  if (self->index == 0) { /* one rank waits before its marks, the other posts behind the end */
    check_ok(ddp_group_post_all_reduce(self->group, &number, DDP_SUM, &request, NULL));
    check_ok(ddp_model_mark_ready(model, 0, NULL));
    check_ok(ddp_model_end_backward(model, NULL));
  } else {
    check_ok(ddp_model_mark_ready(model, 0, NULL));
    check_ok(ddp_group_post_all_reduce(self->group, &number, DDP_SUM, &request, NULL));
    check_ok(ddp_model_end_backward(model, NULL));
  }
  check_ok(ddp_request_wait(request, -1, NULL));
  check_number(value, 2);
  check_number(grad[0], 1);
  ddp_request_destroy(request);
  ddp_model_destroy(model);
}

check_ranks_case(a_wait_before_the_marks_that_others_need_is_found, 2) {
  float w[2] = {0, 0}, grad[2] = {1, 1};
  ddp_request *request = NULL;
  ddp_model *model = new_model(self->group, NULL);
  check_ok(ddp_model_add_array(model, "w", w, grad, 2, NULL));
  check_ok(ddp_model_commit(model, NULL));
  check_ok(ddp_group_post_barrier(self->group, &request));
  ddp_request_destroy(request);
  check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  if (self->index == 0) {
    check_ok(ddp_group_post_barrier(self->group, &request));
    check_error_text(DDP_ERROR_DIFFERENT_CALLS, ddp_request_wait(request, -1, NULL), "ddp_group_post_barrier");
    ddp_request_destroy(request);
  } else {
    check_ok(ddp_model_mark_ready(model, 0, NULL));
    check_error_text(DDP_ERROR_DIFFERENT_CALLS, ddp_model_end_backward(model, NULL), "ddp_model_end_backward");
  }
  ddp_model_destroy(model);
}

check_case(a_group_of_one_posts_too) {
  float value = 3;
  const ddp_tensor number = vector_of(&value, DDP_F32, 1);
  ddp_group *group = alone();
  ddp_request *request = NULL;
  int32_t done = 0;
  check_ok(ddp_group_post_all_reduce(group, &number, DDP_SUM, &request, NULL));
  while (done == 0) check_ok(ddp_request_test(request, &done));
  check_number(value, 3);
  ddp_request_destroy(request);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_post_receive(group, &number, DDP_ANY_SOURCE, 1, &request, NULL));
  check_ok(ddp_group_post_barrier(group, &request));
  ddp_group_destroy(group);
  check_true(ddp_request_get_id(request) != 0);
  ddp_request_destroy(request);
}
