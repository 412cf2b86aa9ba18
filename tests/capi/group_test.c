/* SPDX-License-Identifier: Apache-2.0 */
/* ddp/group.h on one rank: life cycle, every argument that cannot be right, handles that are none, and collectives that
 * change nothing. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/ranks.h"

check_case(options_have_the_documented_defaults) {
  check_defaults(group_options, options);
  check_int(options.struct_size, sizeof options);
  check_int(options.rank, -1);
  check_int(options.world_size, -1);
  check_int(options.backend, DDP_BACKEND_AUTO);
  check_int(options.device_index, -1);
  check_int(options.timeout_ms, 1800000);
  check_int(options.heartbeat_ms, 1000);
  check_int(options.dead_after_ms, 10000);
  check_int(options.rendezvous_timeout_ms, 120000);
  check_true(options.store == NULL);
  check_int(options.reproducible, 0);
  check_int(options.nccl_max_ctas, 0);
  check_true(options.nccl_comm == NULL);
  check_int(options.first_port, 0);
  check_int(options.last_port, 0);
}

static ddp_group_options one_rank(void) {
  check_defaults(group_options, options);
  options.rank = 0;
  options.world_size = 1;
  options.rendezvous_timeout_ms = 1000;
  return options;
}

/* Creating fails with INVALID_ARGUMENT and leaves the output alone. */
static void check_refused(const char *place, const ddp_group_options *options, const char *file, int line) {
  ddp_group *group = garbage;
  check_error_at((check_arm(), ddp_group_create(place, options, &group)), DDP_ERROR_INVALID_ARGUMENT, place ? place : "NULL",
                 file, line);
  check_true(group == (ddp_group *)garbage);
}

check_case(create_refuses_places_that_cannot_be_right) {
  const ddp_group_options options = one_rank();
  const char *const places[] = {"",           "nonsense",    "gopher://host:1", "tcp://",
                                "tcp://host", "tcp://host:", "tcp://host:0x1",  "tcp://host:70000",
                                "file://",    "local://",    "store://"};
  for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) check_refused(places[i], &options, __FILE__, __LINE__);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_create("local://x", &options, NULL));
}

check_case(create_refuses_options_that_cannot_be_right) {
  ddp_group_options options = one_rank();
#define REFUSED(member, value)                                    \
  do {                                                            \
    options = one_rank();                                         \
    options.member = (value);                                     \
    check_refused("local://wrong", &options, __FILE__, __LINE__); \
  } while (0)
  REFUSED(reproducible, 2);
  REFUSED(reproducible, -1);
  REFUSED(rank, 1);
  REFUSED(rank, -2);
  REFUSED(world_size, 0);
  REFUSED(world_size, -2);
  REFUSED(backend, (ddp_backend)17);
  REFUSED(backend, (ddp_backend)-1);
  REFUSED(timeout_ms, -1);
  REFUSED(heartbeat_ms, 0);
  REFUSED(dead_after_ms, 0);
  REFUSED(rendezvous_timeout_ms, -1);
  REFUSED(nccl_max_ctas, -1);
  REFUSED(nccl_max_ctas, 65);
  REFUSED(first_port, 5); /* to 0 */
  REFUSED(first_port, -1);
  REFUSED(last_port, 5); /* from 0 */
  REFUSED(struct_size, 0);
  REFUSED(struct_size, -8);
  REFUSED(struct_size, INT64_MAX);
#undef REFUSED
  options = one_rank();
  options.nccl_max_ctas = 4;
  options.nccl_comm = &options;
  check_refused("local://wrong", &options, __FILE__, __LINE__); /* a communicator has been made with its own */
}

check_case(options_of_an_older_and_a_newer_program_work) {
  struct {
    ddp_group_options known;
    int64_t unknown;
  } newer;
  ddp_group *group = NULL;
  struct {
    int64_t struct_size;
    int32_t rank, world_size;
  } older = {sizeof older, 0, 1};
  check_ok(ddp_group_create("local://older", (const ddp_group_options *)(const void *)&older, &group));
  check_int(ddp_group_get_size(group), 1);
  ddp_group_destroy(group);

  memset(&newer, 0, sizeof newer);
  newer.known = one_rank();
  newer.known.struct_size = sizeof newer;
  group = NULL;
  check_ok(ddp_group_create("local://newer", &newer.known, &group));
  ddp_group_destroy(group);
  newer.unknown = 1;
  group = NULL;
  check_error(DDP_ERROR_NOT_SUPPORTED, ddp_group_create("local://newer", &newer.known, &group));
  check_true(group == NULL);
}

check_alone_case(constants_describe_the_group) {
  check_int(ddp_group_get_rank(group), 0);
  check_int(ddp_group_get_size(group), 1);
  check_ok(ddp_group_status(group));
  check_true(ddp_group_get_backend(group) >= DDP_BACKEND_AUTO && ddp_group_get_backend(group) <= DDP_BACKEND_LOCAL);
}

check_alone_case(collectives_on_one_rank_change_nothing) {
  float values[3] = {1.5f, -2.0f, 3e38f}, copy[3] = {0, 0, 0};
  int64_t whole[2] = {INT64_MAX, -7};
  ddp_tensor floats = vector_of(values, DDP_F32, 3), other = vector_of(copy, DDP_F32, 3),
             wholes = vector_of(whole, DDP_I64, 2);
  double metric[2] = {0.1, -4};
  check_ok(ddp_group_barrier(group));
  for (int op = DDP_AVERAGE; op <= DDP_MAX; op++) {
    check_ok(ddp_group_all_reduce(group, &floats, (ddp_reduce)op, NULL));
    check_ok(ddp_group_all_reduce(group, &wholes, (ddp_reduce)op, NULL));
    check_ok(ddp_group_reduce_metrics(group, metric, 2, (ddp_reduce)op));
    check_ok(ddp_group_reduce_scatter(group, &floats, &other, (ddp_reduce)op, NULL));
    check_int(memcmp(values, copy, sizeof values), 0);
  }
  check_number(values[2], 3e38f);
  check_int(whole[0], INT64_MAX);
  check_int(whole[1], -7);
  check_number(metric[0], 0.1);
  memset(copy, 0, sizeof copy);
  check_ok(ddp_group_all_gather(group, &floats, &other, NULL));
  check_int(memcmp(values, copy, sizeof values), 0);
  check_ok(ddp_group_all_gather(group, &floats, &floats, NULL)); /* the input at its own place */
  check_ok(ddp_group_broadcast(group, &floats, 0, NULL));
  check_number(values[0], 1.5);
}

check_alone_case(collectives_refuse_wrong_arguments) {
  float values[4] = {1, 2, 3, 4};
  const ddp_tensor good = vector_of(values, DDP_F32, 2), longer = vector_of(values, DDP_F32, 3),
                   doubles = vector_of(values, DDP_F64, 2);
  ddp_tensor broken[4] = {good, good, good, good};
  broken[0].dtype = (ddp_dtype)77;
  broken[1].ndim = 9;
  broken[2].shape[0] = -1;
  broken[3].data = NULL;
  double metric = 0;
  for (size_t i = 0; i < 4; i++) {
    check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_reduce(group, &broken[i], DDP_SUM, NULL));
    check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_broadcast(group, &broken[i], 0, NULL));
    check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_gather(group, &broken[i], &good, NULL));
    check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_gather(group, &good, &broken[i], NULL));
    check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_reduce_scatter(group, &broken[i], &good, DDP_SUM, NULL));
    check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_reduce_scatter(group, &good, &broken[i], DDP_SUM, NULL));
  }
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_reduce(group, NULL, DDP_SUM, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_reduce(group, &good, (ddp_reduce)5, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_reduce(group, &good, (ddp_reduce)-1, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_gather(group, NULL, &good, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_gather(group, &good, NULL, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_gather(group, &good, &longer, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_all_gather(group, &good, &doubles, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_reduce_scatter(group, NULL, &good, DDP_SUM, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_reduce_scatter(group, &good, NULL, DDP_SUM, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_reduce_scatter(group, &longer, &good, DDP_SUM, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_reduce_scatter(group, &doubles, &good, DDP_SUM, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_reduce_scatter(group, &good, &good, (ddp_reduce)9, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_broadcast(group, NULL, 0, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_broadcast(group, &good, 1, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_broadcast(group, &good, -1, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_reduce_metrics(group, NULL, 1, DDP_SUM));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_reduce_metrics(group, &metric, 0, DDP_SUM));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_reduce_metrics(group, &metric, 1025, DDP_SUM));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_reduce_metrics(group, &metric, 1, (ddp_reduce)7));
  check_number(values[0], 1);
  check_ok(ddp_group_status(group));
}

check_case(alloc_gives_zeroed_aligned_memory) {
  ddp_group *group = alone(), *other = alone();
  unsigned char *data = NULL, *more = NULL;
  check_ok(ddp_group_alloc(group, 1000, (void **)&data));
  check_ok(ddp_group_alloc(group, 1, (void **)&more));
  check_true(data != NULL && more != NULL && data != more);
  check_int((uintptr_t)data % 64, 0);
  check_int((uintptr_t)more % 64, 0);
  for (int i = 0; data != NULL && i < 1000; i++) check_int(data[i], 0);
  if (data != NULL) memset(data, 0x5a, 1000);

  void *untouched = garbage;
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_alloc(group, 0, &untouched));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_alloc(group, -1, &untouched));
  check_error(DDP_ERROR_OUT_OF_MEMORY, ddp_group_alloc(group, INT64_C(1) << 60, &untouched));
  check_true(untouched == garbage);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_alloc(group, 8, NULL));

  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_free(group, &untouched));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_free(group, data + 1));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_free(other, data));
  check_ok(ddp_group_free(group, NULL));
  check_ok(ddp_group_free(group, data));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_free(group, data));
  ddp_group_destroy(other);
  ddp_group_destroy(group); /* takes `more` along */
}

check_case(abort_breaks_the_group_with_its_reason) {
  ddp_group *group = alone();
  float value = 1;
  const ddp_tensor tensor = vector_of(&value, DDP_F32, 1);
  check_ok(ddp_group_abort(group, "the loss is not a number"));
  check_error_text(DDP_ERROR_ABORTED, ddp_group_status(group), "the loss is not a number");
  check_error_text(DDP_ERROR_ABORTED, ddp_group_barrier(group), "the loss is not a number");
  check_error_text(DDP_ERROR_ABORTED, ddp_group_all_reduce(group, &tensor, DDP_SUM, NULL), "the loss is not a number");
  check_ok(ddp_group_abort(group, "a later reason"));
  check_error_text(DDP_ERROR_ABORTED, ddp_group_status(group), "the loss is not a number");
  check_int(ddp_group_get_rank(group), 0);
  ddp_group_destroy(group);

  group = alone(); /* the process continues */
  check_ok(ddp_group_barrier(group));
  check_ok(ddp_group_abort(group, NULL));
  check_error(DDP_ERROR_ABORTED, ddp_group_barrier(group));
  ddp_group_destroy(group);
}

/* The child's exit code is whether it was refused; closing the group there sends no goodbye. */
check_case(a_fork_of_the_process_is_refused) {
  ddp_group *group = alone();
  check_ok(ddp_group_barrier(group));
  const pid_t child = fork();
  if (child == 0) {
    const int refused = ddp_group_barrier(group) == DDP_ERROR_INVALID_STATE && strstr(ddp_last_error(), "fork") != NULL;
    ddp_group_destroy(group);
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  check_true(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  check_ok(ddp_group_barrier(group));
  ddp_group_destroy(group);
}

check_case(groups_come_and_go) {
  for (int i = 0; i < 200; i++) ddp_group_destroy(alone());
}

check_case(who_is_there_is_asked_in_two_steps) {
  ddp_status (*const ask[])(const ddp_group *, int32_t *, int32_t, int32_t *) = {
      ddp_group_get_failed, ddp_group_get_gone, ddp_group_get_joined, ddp_group_get_renumbered};
  ddp_group_options options = one_rank();
  for (int recoverable = 0; recoverable <= 1; recoverable++) {
    ddp_group *group = NULL;
    options.recoverable = recoverable;
    check_ok(ddp_group_create("tcp://127.0.0.1:1", &options, &group));
    for (size_t i = 0; i < sizeof ask / sizeof ask[0]; i++) {
      int32_t ranks[1] = {7}, count = 7;
      check_ok(ask[i](group, NULL, 0, &count));
      check_int(count, 0);
      count = 7;
      check_ok(ask[i](group, ranks, 1, &count));
      check_int(count, 0);
      check_int(ranks[0], 7);
      check_error(DDP_ERROR_INVALID_ARGUMENT, ask[i](group, ranks, 1, NULL));
      check_error(DDP_ERROR_INVALID_ARGUMENT, ask[i](group, NULL, 1, &count));
      check_error(DDP_ERROR_INVALID_ARGUMENT, ask[i](group, ranks, -1, &count));
      check_error(DDP_ERROR_INVALID_ARGUMENT, ask[i](NULL, ranks, 1, &count));
    }
    ddp_group_destroy(group);
  }
}

check_case(progress_names_the_last_call) {
  ddp_group_options options = one_rank();
  ddp_group *group = NULL;
  ddp_rank_progress at;
  memset(&at, 0, sizeof at);
  check_ok(ddp_group_create("tcp://127.0.0.1:1", &options, &group));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_get_progress(group, 0, &at)); /* struct_size */
  at.struct_size = sizeof at;
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_get_progress(group, 1, &at));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_get_progress(group, -1, &at));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_get_progress(group, 0, NULL));
  check_ok(ddp_group_get_progress(group, 0, &at));
  check_int(at.call, 0);
  check_int(strlen(ddp_call_name(0)), 0);
  check_int(strlen(ddp_call_name(-1)), 0);
  check_int(strlen(ddp_call_name(1 << 30)), 0);
  check_int(at.in_call, 0);
  check_int(at.pass_index, -1);
  check_ok(ddp_group_barrier(group));
  check_ok(ddp_group_get_progress(group, 0, &at));
  check_text(ddp_call_name(at.call), "ddp_group_barrier");
  check_int(at.in_call, 0);
  ddp_group_destroy(group);
}
