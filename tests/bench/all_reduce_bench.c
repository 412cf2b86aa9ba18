/* All-reduce of 1 KiB to 100 MiB. Every rank prints "R <rank> <bytes> <microseconds a call, one for each block>"; the slowest rank of a
 * block counts. The first call of each size is checked.
 *
 *   ddprun -n 4 --no-prefix bench.all_reduce [zero-copy | staged] [shm | gloo]
 */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"

enum { BLOCKS = 5, SIZES = 5 };
static const int64_t sizes[SIZES] = {1 << 10, 64 << 10, 1 << 20, 25 << 20, 100 << 20};
static const int calls[SIZES] = {300, 100, 30, 4, 2};

static void verify(const float *data, int64_t count, int32_t size) {
  for (int64_t i = 0; i < count; ++i) {
    const float wanted = (float)(size * (size + 1) / 2) + (float)size * (float)(i % 7);
    if (data[i] != wanted) {
      fprintf(stderr, "wrong sum at %lld: %g, not %g\n", (long long)i, (double)data[i], (double)wanted);
      exit(3);
    }
  }
}

int main(int argc, char **argv) {
  const int staged = argc > 1 && strcmp(argv[1], "staged") == 0;
  ddp_group_options options;
  ddp_group *group = NULL;
  CHECK(ddp_group_options_init(&options, sizeof options));
  if (argc > 2) options.backend = strcmp(argv[2], "gloo") == 0 ? DDP_BACKEND_GLOO : DDP_BACKEND_SHM;
  CHECK(ddp_group_create(NULL, &options, &group));
  const int32_t rank = ddp_group_rank(group), size = ddp_group_size(group);
  void *memory = NULL;
  if (staged)
    memory = malloc((size_t)sizes[SIZES - 1]);
  else
    CHECK(ddp_group_alloc(group, sizes[SIZES - 1], &memory));
  if (memory == NULL) return 1;
  float *data = memory;
  memset(data, 0, (size_t)sizes[SIZES - 1]);

  for (int s = 0; s < SIZES; ++s) {
    const int64_t count = sizes[s] / 4;
    ddp_tensor tensor;
    double us[BLOCKS];
    CHECK(ddp_tensor_init(&tensor, data, DDP_F32, 1, &count));
    for (int64_t i = 0; i < count; ++i) data[i] = (float)(rank + 1) + (float)(i % 7);
    CHECK(ddp_group_all_reduce(group, &tensor, DDP_SUM, NULL));
    verify(data, count, size);
    CHECK(ddp_group_barrier(group)); /* the others verify before these are overwritten */
    memset(data, 0, (size_t)sizes[s]);
    for (int i = 0; i < calls[s] / 2; ++i) CHECK(ddp_group_all_reduce(group, &tensor, DDP_SUM, NULL));
    for (int b = 0; b < BLOCKS; ++b) {
      CHECK(ddp_group_barrier(group));
      const double begin = now_us();
      for (int i = 0; i < calls[s]; ++i) CHECK(ddp_group_all_reduce(group, &tensor, DDP_SUM, NULL));
      us[b] = (now_us() - begin) / calls[s];
    }
    printf("R %d %lld", rank, (long long)sizes[s]);
    for (int b = 0; b < BLOCKS; ++b) printf(" %.3f", us[b]);
    printf("\n");
    fflush(stdout);
  }
  CHECK(ddp_group_barrier(group));
  if (staged) free(memory);
  ddp_group_destroy(group);
  return 0;
}
