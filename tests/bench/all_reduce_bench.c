/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduce of 1 KiB to 100 MiB by libddp, measured by the method of peers/protocol.h.
 *
 *   ddprun -n 4 --no-prefix bench.all_reduce [zero-copy | shared | staged] [shm | gloo]
 *
 *   zero-copy  memory of libddp;  shared  the program's own, ddp_group_share;  staged  the program's own
 */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"
#include "peers/protocol.h"

static void sum(void *group, float *data, int64_t count) {
  ddp_tensor tensor;
  CHECK(ddp_tensor_init(&tensor, data, DDP_F32, 1, &count));
  CHECK(ddp_group_all_reduce(group, &tensor, DDP_SUM, NULL));
}

static void barrier(void *group) { CHECK(ddp_group_barrier(group)); }

int main(int argc, char **argv) {
  const int shared = argc > 1 && strcmp(argv[1], "shared") == 0;
  const int own = shared || (argc > 1 && strcmp(argv[1], "staged") == 0);
  ddp_group_options options;
  ddp_group *group = NULL;
  CHECK(ddp_group_options_init(&options, sizeof options));
  if (argc > 2) options.backend = strcmp(argv[2], "gloo") == 0 ? DDP_BACKEND_GLOO : DDP_BACKEND_SHM;
  CHECK(ddp_group_create(NULL, &options, &group));
  void *memory = NULL;
  if (own)
    memory = protocol_memory();
  else
    CHECK(ddp_group_alloc(group, LARGEST, &memory));
  if (shared) CHECK(ddp_group_share(group, memory, LARGEST));
  const protocol p = {ddp_group_get_rank(group), ddp_group_get_size(group), group, sum, barrier};
  protocol_run(&p, memory);
  if (shared) CHECK(ddp_group_unshare(group, memory));
  if (own) free(memory);
  ddp_group_destroy(group);
  return 0;
}
