/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank costs as groups grow: time to create, descriptors, memory, time until a death is known, time to recover.
 * tests/bench/size.py starts it, as ranks of ddprun; SIZE_BENCH_DIR is a folder for their results, SIZE_BENCH_BACKEND=gloo
 * chooses sockets.
 * The last rank kills itself and leaves the time in a file first. */
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include "bench.h"

static int descriptors(void) {
  int count = -3; /* ".", "..", and the folder itself */
  DIR *folder = opendir("/proc/self/fd");
  if (folder == NULL) return -1;
  while (readdir(folder) != NULL) ++count;
  closedir(folder);
  return count;
}

/* KiB: this process's share of its memory, so that code is counted once. */
static long memory_kib(void) {
  char line[256];
  long kib = -1;
  FILE *file = fopen("/proc/self/smaps_rollup", "r");
  if (file == NULL) return -1;
  while (fgets(line, sizeof line, file) != NULL)
    if (sscanf(line, "Pss: %ld", &kib) == 1) break;
  fclose(file);
  return kib;
}

static FILE *open_in_folder(const char *name, const char *mode) {
  char path[4096];
  const char *folder = getenv("SIZE_BENCH_DIR");
  snprintf(path, sizeof path, "%s/%s", folder != NULL ? folder : ".", name);
  return fopen(path, mode);
}

static void die_and_say_when(void) {
  FILE *file = open_in_folder("death", "w");
  if (file == NULL) exit(1);
  fprintf(file, "%.3f\n", now_us());
  fclose(file);
  kill(getpid(), SIGKILL);
}

int main(void) {
  ddp_group_options options;
  ddp_group *group = NULL;
  CHECK(ddp_group_options_init(&options, sizeof options));
  options.recoverable = 1;
  const char *backend = getenv("SIZE_BENCH_BACKEND");
  if (backend != NULL && strcmp(backend, "gloo") == 0) options.backend = DDP_BACKEND_GLOO;
  options.rendezvous_timeout_ms = 300000;
  options.timeout_ms = 300000;
  const int before = descriptors();
  const long before_kib = memory_kib();
  const double start = now_us();
  CHECK(ddp_group_create(NULL, &options, &group));
  const double created = now_us();
  float values[1024] = {0};
  const int64_t shape[] = {1024};
  ddp_tensor tensor;
  CHECK(ddp_tensor_init(&tensor, values, DDP_F32, 1, shape));
  CHECK(ddp_group_all_reduce(group, &tensor, DDP_SUM, NULL)); /* links are made when they are needed */
  double waits[32];
  for (int i = 0; i < 32; ++i) {
    const double from = now_us();
    CHECK(ddp_group_barrier(group));
    waits[i] = now_us() - from;
  }
  const int after = descriptors();
  const long after_kib = memory_kib();
  const int rank = ddp_group_get_rank(group), size = ddp_group_get_size(group);
  CHECK(ddp_group_barrier(group));
  if (rank == size - 1) die_and_say_when();
  if (ddp_group_barrier(group) == DDP_OK) return 2; /* did no rank die? */
  const double known = now_us();
  ddp_recovery recovery = {.struct_size = sizeof recovery};
  CHECK(ddp_group_recover(group, NULL, &recovery));
  const double recovered = now_us();
  if (recovery.size != size - 1) return 3;
  CHECK(ddp_group_barrier(group));

  char name[32];
  snprintf(name, sizeof name, "rank-%d", rank);
  FILE *file = open_in_folder(name, "w");
  if (file == NULL) return 1;
  fprintf(file,
          "{\"created_us\": %.1f, \"barrier_us\": %.1f, \"descriptors\": %d, \"memory_kib\": %ld, \"known_at_us\": %.3f, "
          "\"recovered_us\": %.1f}\n",
          created - start, median(waits, 32), after - before, after_kib - before_kib, known, recovered - known);
  fclose(file);
  CHECK(ddp_group_barrier(group));
  ddp_group_destroy(group);
  return 0;
}
