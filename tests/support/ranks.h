/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads of the test, for C: run_ranks(2, "local://name", body, data) makes a group on each thread, calls the body
 * and destroys the group. check_ranks_case(sums_are_exact, 2) { ... } is a case whose body is that of each rank, `self`. */
#ifndef DDP_TESTS_RANKS_H
#define DDP_TESTS_RANKS_H

#include <pthread.h>

#include "support/check.h"

#define RANKS_MAX 8

typedef struct rank {
  int32_t index, size;
  ddp_group *group; /* may be destroyed and set to NULL by the body */
  void *data;       /* shared by all ranks */
  const char *place;
  void (*body)(struct rank *rank);
} rank;

static inline ddp_group *make_group(const char *place, int32_t index, int32_t size) {
  ddp_group_options options;
  ddp_group *group = NULL;
  check_ok(ddp_group_options_init(&options, sizeof options));
  options.rank = index;
  options.world_size = size;
  options.rendezvous_timeout_ms = 20000;
  options.heartbeat_ms = 100;
  options.dead_after_ms = 10000;
  options.timeout_ms = 20000;
  check_ok(ddp_group_create(place, &options, &group));
  return group;
}

static inline void *rank_main(void *argument) {
  rank *self = argument;
  self->group = make_group(self->place, self->index, self->size);
  if (self->group != NULL) self->body(self);
  ddp_group_destroy(self->group);
  return NULL;
}

static inline void run_ranks(int32_t size, const char *place, void (*body)(rank *), void *data) {
  pthread_t threads[RANKS_MAX];
  rank ranks[RANKS_MAX];
  for (int32_t i = 0; i < size; i++) {
    ranks[i] = (rank){i, size, NULL, data, place, body};
    assert_int_equal(pthread_create(&threads[i], NULL, rank_main, &ranks[i]), 0);
  }
  for (int32_t i = 0; i < size; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

#define check_ranks_case(function, size)                                               \
  static void function##_on(rank *self);                                               \
  check_case(function) { run_ranks(size, "local://" #function, function##_on, NULL); } \
  static void function##_on(rank *self)

/* A case of a file that has `fixture` and close_fixture(f); `opening` is a call of its open_fixture(f, ...). */
#define check_fixture_case(function, opening) \
  static void function##_with(fixture *f);    \
  check_case(function) {                      \
    fixture own, *f = &own;                   \
    opening;                                  \
    function##_with(f);                       \
    close_fixture(f);                         \
  }                                           \
  static void function##_with(fixture *f)

/* A group of this thread alone. */
static inline ddp_group *alone(void) { return make_group("local://alone", 0, 1); }

/* A case with `group`, a group of this thread alone. */
#define check_alone_case(function)             \
  static void function##_in(ddp_group *group); \
  check_case(function) {                       \
    ddp_group *group = alone();                \
    function##_in(group);                      \
    ddp_group_destroy(group);                  \
  }                                            \
  static void function##_in(ddp_group *group)

static inline ddp_model *new_model(ddp_group *group, const ddp_model_options *options) {
  ddp_model *model = NULL;
  check_ok(ddp_model_create(group, options, &model));
  return model;
}

/* A dense CPU tensor with one dimension. */
static inline ddp_tensor vector_of(void *data, ddp_dtype dtype, int64_t count) {
  ddp_tensor tensor;
  check_ok(ddp_tensor_init(&tensor, data, dtype, 1, &count));
  return tensor;
}

/* What no call of the library gave. The address is not touched. */
__attribute__((unused)) static void *const garbage = (void *)8;

#endif
