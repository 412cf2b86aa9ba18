/* SPDX-License-Identifier: Apache-2.0 */
/* An all-reduce of 1 KiB that blocks, and one that is posted and waited for at once, in turn; and one that is posted, then
 * tested until it has ended.
 *
 *   ddprun -n 2 --no-prefix bench.request [shm | gloo]
 *
 * Each rank prints the median over the rounds of the time of a call in microseconds. */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"

enum { kRounds = 41, kElements = 256, kWays = 3 };
static const int calls[kWays] = {2000, 2000, 100}; /* one that is only tested takes hundreds of times longer */

static void call(ddp_group *group, const ddp_tensor *tensor, int way) {
  ddp_request *request = NULL;
  int32_t ended = 0;
  if (way == 0) {
    CHECK(ddp_group_all_reduce(group, tensor, DDP_MAX, NULL));
    return;
  }
  CHECK(ddp_group_post_all_reduce(group, tensor, DDP_MAX, &request, NULL));
  if (way == 1)
    CHECK(ddp_request_wait(request, -1, NULL));
  else
    while (!ended) CHECK(ddp_request_test(request, &ended));
  ddp_request_destroy(request);
}

int main(int argc, char **argv) {
  static const char *const ways[kWays] = {"blocking", "posted, waited for", "posted, tested"};
  static double times[kWays][kRounds];
  static float data[kElements];
  ddp_group_options options;
  ddp_group *group = NULL;
  ddp_tensor tensor;
  const int64_t count = kElements;
  CHECK(ddp_group_options_init(&options, sizeof options));
  if (argc > 1) options.backend = strcmp(argv[1], "gloo") == 0 ? DDP_BACKEND_GLOO : DDP_BACKEND_SHM;
  options.requests = 1;
  CHECK(ddp_group_create(NULL, &options, &group));
  CHECK(ddp_tensor_init(&tensor, data, DDP_F32, 1, &count));
  for (int round = 0; round < kRounds; ++round)
    for (int turn = 0; turn < kWays; ++turn) {
      const int way = (round + turn) % kWays;
      CHECK(ddp_group_barrier(group));
      const double begin = now_us();
      for (int i = 0; i < calls[way]; ++i) call(group, &tensor, way);
      times[way][round] = (now_us() - begin) / calls[way];
    }
  for (int way = 0; way < kWays; ++way)
    printf("rank %d: %-20s %8.3f us\n", ddp_group_get_rank(group), ways[way], median(times[way], kRounds));
  ddp_group_destroy(group);
  return 0;
}
