/* SPDX-License-Identifier: Apache-2.0 */
/* ddp/sampler.h as a C99 program sees it. */
#include "ddp/sampler.h"

#include <stddef.h>
#include <string.h>

#include "ddp/library.h"
#include "support/check.h"

static ddp_sampler make_sampler(int64_t dataset_size, int32_t rank, int32_t size) {
  ddp_sampler sampler;
  assert_int_equal(ddp_sampler_init(&sampler, sizeof sampler), DDP_OK);
  sampler.dataset_size = dataset_size;
  sampler.rank = rank;
  sampler.size = size;
  return sampler;
}

static void assert_refused(ddp_status status, const char *part) {
  assert_int_equal(status, DDP_ERROR_INVALID_ARGUMENT);
  assert_non_null(strstr(ddp_last_error(), part));
}

check_case(init_writes_the_defaults) {
  ddp_sampler sampler;
  memset(&sampler, 0xff, sizeof sampler);
  assert_int_equal(ddp_sampler_init(&sampler, sizeof sampler), DDP_OK);
  assert_int_equal(sampler.struct_size, sizeof sampler);
  assert_int_equal(sampler.dataset_size, 0);
  assert_int_equal(sampler.seed, 0);
  assert_int_equal(sampler.rank, 0);
  assert_int_equal(sampler.size, 1);
  assert_int_equal(sampler.shuffle, 1);
  assert_int_equal(sampler.drop_last, 0);
  assert_int_equal(sampler.seen, 0);
  assert_refused(ddp_sampler_init(NULL, sizeof sampler), "sampler is NULL");
  assert_refused(ddp_sampler_init(&sampler, 0), "struct_size");
}

check_case(a_never_initialised_sampler_is_refused) {
  ddp_sampler sampler;
  int64_t count = -7;
  memset(&sampler, 0, sizeof sampler);
  sampler.dataset_size = 10;
  assert_refused(ddp_sampler_get_count(&sampler, &count), "_init");
  assert_int_equal(count, -7);
}

check_case(an_epoch_is_dealt_out_once) {
  int seen[10] = {0};
  int32_t rank;
  int i;
  for (rank = 0; rank < 2; ++rank) {
    ddp_sampler sampler = make_sampler(10, rank, 2);
    int64_t indices[5];
    int64_t count = 0;
    assert_int_equal(ddp_sampler_get_count(&sampler, &count), DDP_OK);
    assert_int_equal(count, 5);
    assert_int_equal(ddp_sampler_fill(&sampler, 1, 0, count, indices), DDP_OK);
    for (i = 0; i < 5; ++i) {
      assert_in_range(indices[i], 0, 9);
      ++seen[indices[i]];
    }
  }
  for (i = 0; i < 10; ++i) assert_int_equal(seen[i], 1);
}

check_case(resuming_gives_the_rest_of_the_epoch) {
  ddp_sampler sampler = make_sampler(1797, 3, 4);
  int64_t whole[450];
  int64_t rest[250];
  assert_int_equal(ddp_sampler_fill(&sampler, 2, 0, 450, whole), DDP_OK);
  assert_int_equal(ddp_sampler_fill(&sampler, 2, 200, 250, rest), DDP_OK);
  assert_memory_equal(rest, whole + 200, sizeof rest);
}

/* Two ranks use two samples each, then there is one rank. */
check_case(an_epoch_goes_on_with_another_number_of_ranks) {
  int seen[10] = {0};
  int64_t indices[6];
  int64_t count = 0;
  int32_t rank;
  int i;
  ddp_sampler sampler;
  for (rank = 0; rank < 2; ++rank) {
    sampler = make_sampler(10, rank, 2);
    assert_int_equal(ddp_sampler_fill(&sampler, 1, 0, 2, indices), DDP_OK);
    for (i = 0; i < 2; ++i) ++seen[indices[i]];
  }
  sampler = make_sampler(10, 0, 1);
  sampler.seen = 4;
  assert_int_equal(ddp_sampler_get_count(&sampler, &count), DDP_OK);
  assert_int_equal(count, 6);
  assert_int_equal(ddp_sampler_fill(&sampler, 1, 0, 6, indices), DDP_OK);
  for (i = 0; i < 6; ++i) ++seen[indices[i]];
  for (i = 0; i < 10; ++i) assert_int_equal(seen[i], 1);
  sampler.seen = 11;
  assert_refused(ddp_sampler_get_count(&sampler, &count), "seen is 11");
}

check_case(an_empty_data_set_gives_nothing) {
  ddp_sampler sampler = make_sampler(0, 1, 2);
  int64_t count = -1;
  int64_t index = -7;
  assert_int_equal(ddp_sampler_get_count(&sampler, &count), DDP_OK);
  assert_int_equal(count, 0);
  assert_int_equal(ddp_sampler_fill(&sampler, 0, 0, 0, NULL), DDP_OK);
  assert_refused(ddp_sampler_fill(&sampler, 0, 0, 1, &index), "a rank has 0");
  assert_int_equal(index, -7);
}

check_case(a_range_outside_the_share_is_refused) {
  ddp_sampler sampler = make_sampler(10, 0, 2);
  int64_t indices[8];
  assert_refused(ddp_sampler_fill(&sampler, 0, 0, 6, indices), "a rank has 5");
  assert_refused(ddp_sampler_fill(&sampler, 0, 5, 1, indices), "position 5");
  assert_refused(ddp_sampler_fill(&sampler, 0, -1, 1, indices), "position -1");
  assert_refused(ddp_sampler_fill(&sampler, 0, 0, -1, indices), "-1 indices");
  assert_refused(ddp_sampler_fill(&sampler, 0, INT64_MAX, INT64_MAX, indices), "a rank has 5");
  assert_refused(ddp_sampler_fill(&sampler, -1, 0, 1, indices), "epoch is -1");
  assert_int_equal(ddp_sampler_fill(&sampler, 0, 5, 0, indices), DDP_OK);
}

check_case(null_arguments_are_refused) {
  ddp_sampler sampler = make_sampler(10, 0, 2);
  int64_t number = 0;
  assert_refused(ddp_sampler_get_count(NULL, &number), "sampler is NULL");
  assert_refused(ddp_sampler_get_count(&sampler, NULL), "out_count is NULL");
  assert_refused(ddp_sampler_fill(NULL, 0, 0, 1, &number), "sampler is NULL");
  assert_refused(ddp_sampler_fill(&sampler, 0, 0, 1, NULL), "out_indices is NULL");
}

check_case(a_wrong_field_is_named) {
  ddp_sampler sampler = make_sampler(10, 2, 2);
  int64_t count = -7;
  assert_refused(ddp_sampler_get_count(&sampler, &count), "rank is 2");
  sampler = make_sampler(-5, 0, 2);
  assert_refused(ddp_sampler_get_count(&sampler, &count), "dataset_size is -5");
  sampler = make_sampler(10, 0, 0);
  assert_refused(ddp_sampler_get_count(&sampler, &count), "size is 0");
  sampler = make_sampler(10, 0, 1);
  sampler.shuffle = 5;
  assert_refused(ddp_sampler_fill(&sampler, 0, 0, 1, &count), "shuffle is 5");
  assert_int_equal(count, -7);
}

check_case(a_shorter_struct_of_an_older_header_gets_the_defaults) {
  ddp_sampler sampler = make_sampler(10, 0, 1);
  int64_t with_default[10];
  int64_t with_older[10];
  assert_int_equal(ddp_sampler_fill(&sampler, 0, 0, 10, with_default), DDP_OK);
  sampler.shuffle = 99; /* beyond what this caller knows */
  sampler.struct_size = (int64_t)offsetof(ddp_sampler, shuffle);
  assert_int_equal(ddp_sampler_fill(&sampler, 0, 0, 10, with_older), DDP_OK);
  assert_memory_equal(with_older, with_default, sizeof with_older);
}
