/* SPDX-License-Identifier: Apache-2.0 */
/* ddp/messages.h from C: what each call does on ranks that are threads, wrong arguments, and states. */
#include "support/ranks.h"

check_ranks_case(a_message_goes_from_one_rank_to_the_other, 2) {
  float numbers[3] = {1, 2, 3}, got[3] = {0, 0, 0};
  int32_t source = -7;
  const ddp_tensor given = vector_of(numbers, DDP_F32, 3), taken = vector_of(got, DDP_F32, 3);
  const int32_t other = 1 - self->index;
  check_ok(ddp_group_send(self->group, &given, other, 5, NULL));
  check_ok(ddp_group_receive(self->group, &taken, other, 5, &source, NULL));
  check_int(source, other);
  check_number(got[2], 3);
  check_ok(ddp_group_send(self->group, &given, other, 0, NULL));
  check_ok(ddp_group_receive(self->group, &taken, DDP_ANY_SOURCE, 0, NULL, NULL));
  check_ok(ddp_group_barrier(self->group));
}

check_ranks_case(wrong_arguments_are_refused_before_anything_is_sent, 2) {
  float numbers[4] = {1, 2, 3, 4}, more[4] = {0, 0, 0, 0};
  int32_t source = -7;
  const ddp_tensor given = vector_of(numbers, DDP_F32, 2), odd = vector_of(numbers, DDP_F32, 3),
                   whole = vector_of(more, DDP_F32, 4), other_type = vector_of(more, DDP_I32, 4);
  ddp_tensor on_gpu = given;
  const int32_t me = self->index, other = 1 - me;
  const int64_t counts[2] = {1, 1}, negative[2] = {-1, 3}, few[2] = {1, 0}, huge[2] = {INT64_MAX, INT64_MAX};
  ddp_group *group = self->group;
  on_gpu.device = DDP_CUDA;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_send(group, &given, me, 1, NULL), "this rank itself");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_send(group, &given, 2, 1, NULL), "ranks 0 to 1");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_send(group, &given, -1, 1, NULL));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_send(group, &given, other, -1, NULL), "tag");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_send(group, NULL, other, 1, NULL));
  check_error(DDP_ERROR_NOT_SUPPORTED, ddp_group_send(group, &on_gpu, other, 1, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_receive(group, &given, me, 1, &source, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_receive(group, &given, -2, 1, &source, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_receive(group, &given, other, -1, &source, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_receive(group, NULL, other, 1, &source, NULL));
  check_int(source, -7);
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_reduce(group, &given, DDP_SUM, 2, NULL), "root is 2");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_reduce(group, &given, (ddp_reduce)5, 0, NULL), "0 to 4");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_gather(group, &given, &whole, -1, NULL), "root is -1");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_gather(group, &given, NULL, me, NULL), "output is NULL");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_gather(group, &given, &odd, me, NULL), "4 elements");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_gather(group, &given, &other_type, me, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_gather(group, NULL, &whole, me, NULL));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_scatter(group, NULL, &given, me, NULL), "input is NULL");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_scatter(group, &odd, &given, me, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_scatter(group, &whole, NULL, me, NULL));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_to_all(group, &odd, &whole, NULL, NULL, NULL), "evenly");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_to_all(group, &whole, &other_type, NULL, NULL, NULL));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_to_all(group, &given, &whole, few, NULL, NULL), "add up to 1");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_to_all(group, &given, &whole, negative, NULL, NULL),
                   "input_counts[0] is -1");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_to_all(group, &given, &whole, NULL, huge, NULL),
                   "output_counts[1] is 9223372036854775807");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_gather_counts(group, &given, &whole, NULL, NULL));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_gather_counts(group, &given, &whole, counts, NULL),
                   "add up to 2");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_gather_counts(group, &whole, &given, counts, NULL),
                   "does not fit");
  check_ok(ddp_group_barrier(group)); /* nothing of it has reached the other rank */
}

check_ranks_case(three_ranks_exchange_parts, 3) {
  const int32_t me = self->index, size = self->size;
  int32_t mine[3] = {10 * me, 10 * me + 1, 10 * me + 2}, all[9], part = -1, sum = me + 1;
  const ddp_tensor one = vector_of(mine, DDP_I32, 1), three = vector_of(mine, DDP_I32, 3), nine = vector_of(all, DDP_I32, 9),
                   parts = vector_of(&part, DDP_I32, 1), sums = vector_of(&sum, DDP_I32, 1),
                   gathered = vector_of(all, DDP_I32, 3);
  const int64_t gives[3] = {0, 1, 2}, takes[3] = {me, me, me}, counts[3] = {1, 2, 3};
  check_ok(ddp_group_gather(self->group, &one, me == 1 ? &gathered : NULL, 1, NULL));
  for (int32_t from = 0; me == 1 && from < size; from++) check_int(all[from], 10 * from);
  check_ok(ddp_group_scatter(self->group, me == 1 ? &gathered : NULL, &parts, 1, NULL));
  check_int(part, 10 * me);
  check_ok(ddp_group_all_to_all(self->group, &three, &gathered, NULL, NULL, NULL));
  for (int32_t from = 0; from < size; from++) check_int(all[from], 10 * from + me);
  { /* rank r gets r elements of each */
    const ddp_tensor some = vector_of(all, DDP_I32, 3 * me);
    check_ok(ddp_group_all_to_all(self->group, &three, &some, gives, takes, NULL));
    if (me == 2) check_int(all[5], 22);
  }
  { /* rank r gives r + 1 */
    const ddp_tensor some = vector_of(mine, DDP_I32, me + 1), six = vector_of(all, DDP_I32, 6);
    check_ok(ddp_group_all_gather_counts(self->group, &some, &six, counts, NULL));
    check_int(all[0], 0);
    check_int(all[2], 11);
    check_int(all[5], 22);
  }
  check_ok(ddp_group_reduce(self->group, &sums, DDP_PRODUCT, 2, NULL));
  if (me == 2) check_int(sum, 6);
  (void)nine;
}

check_alone_case(a_rank_alone_gets_what_it_gives) {
  float numbers[2] = {1, 2}, got[2] = {0, 0};
  const int64_t counts[1] = {2};
  const ddp_tensor given = vector_of(numbers, DDP_F32, 2), taken = vector_of(got, DDP_F32, 2);
  check_ok(ddp_group_gather(group, &given, &taken, 0, NULL));
  check_number(got[1], 2);
  got[1] = 0;
  check_ok(ddp_group_scatter(group, &given, &taken, 0, NULL));
  check_number(got[1], 2);
  got[1] = 0;
  check_ok(ddp_group_all_to_all(group, &given, &taken, NULL, NULL, NULL));
  check_number(got[1], 2);
  got[1] = 0;
  check_ok(ddp_group_all_gather_counts(group, &given, &taken, counts, NULL));
  check_number(got[1], 2);
  check_ok(ddp_group_reduce(group, &given, DDP_AVERAGE, 0, NULL));
  check_number(numbers[1], 2);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_send(group, &given, 0, 1, NULL));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_receive(group, &taken, DDP_ANY_SOURCE, 1, NULL, NULL),
                   "no other rank");
}

check_ranks_case(calls_in_a_broken_group_repeat_the_first_cause, 2) {
  float number = 1;
  const ddp_tensor tensor = vector_of(&number, DDP_F32, 1);
  if (self->index == 1) check_ok(ddp_group_abort(self->group, "enough"));
  check_error_text(DDP_ERROR_ABORTED, ddp_group_receive(self->group, &tensor, 1 - self->index, 1, NULL, NULL), "enough");
  check_error_text(DDP_ERROR_ABORTED, ddp_group_send(self->group, &tensor, 1 - self->index, 1, NULL), "enough");
}

check_ranks_case(messages_pass_while_a_backward_pass_is_open, 2) {
  float value[2] = {1, 2}, grad[2] = {1, 1}, got[2] = {0, 0};
  const ddp_tensor given = vector_of(value, DDP_F32, 2), taken = vector_of(got, DDP_F32, 2);
  ddp_model *model = new_model(self->group, NULL);
  check_ok(ddp_model_add_array(model, "w", value, grad, 2, NULL));
  check_ok(ddp_model_commit(model, NULL));
  check_ok(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  check_ok(ddp_group_send(self->group, &given, 1 - self->index, 1, NULL));
  check_ok(ddp_group_receive(self->group, &taken, 1 - self->index, 1, NULL, NULL));
  check_number(got[1], 2);
  check_error(DDP_ERROR_INVALID_STATE, ddp_group_gather(self->group, &given, NULL, 1 - self->index, NULL));
  check_ok(ddp_model_mark_ready(model, 0, NULL));
  check_ok(ddp_model_end_backward(model, NULL));
  ddp_model_destroy(model);
}
