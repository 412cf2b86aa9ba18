/* SPDX-License-Identifier: Apache-2.0 */
/* What parts of the global batch cost on a rank that has several: memory above that of a model without them, the time of
 * closing a part, and of the pass that reduces. One rank, one gradient; a memcpy of the gradient for comparison, and
 * processor time, so that others on the machine disturb less.
 *
 *   ddprun -n 1 --no-prefix bench.parts [MiB]
 */
#define _POSIX_C_SOURCE 200809L
#include <unistd.h>

#include "bench.h"

enum { STEPS = 9, MOST_PARTS = 16 };

static double thread_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static double resident_mib(void) {
  long pages = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%ld %ld", &pages, &resident) != 2) exit(1);
  fclose(file);
  return (double)resident * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

static double copy_ms(void *to, const void *from, size_t bytes) {
  double ms[STEPS];
  for (int i = 0; i < STEPS; ++i) {
    const double begin = thread_ms();
    memcpy(to, from, bytes);
    ms[i] = thread_ms() - begin;
  }
  return median(ms, STEPS);
}

static double pass_ms(ddp_model *model, ddp_pass mode) {
  const double begin = thread_ms();
  CHECK(ddp_model_begin_backward(model, mode));
  CHECK(ddp_model_mark_ready(model, 0, NULL));
  CHECK(ddp_model_end_backward(model, NULL));
  return thread_ms() - begin;
}

static void measure(ddp_dtype dtype, int64_t count, size_t size, int32_t parts) {
  ddp_group_options options;
  ddp_model_options model_options;
  ddp_group *group = NULL;
  ddp_model *model = NULL;
  ddp_tensor value, grad;
  CHECK(ddp_group_options_init(&options, sizeof options));
  options.virtual_ranks = parts;
  CHECK(ddp_group_create(NULL, &options, &group));
  CHECK(ddp_model_options_init(&model_options, sizeof model_options));
  model_options.progress = DDP_PROGRESS_CALLER; /* so that this thread's time has all of it */
  void *values = malloc((size_t)count * size), *grads = malloc((size_t)count * size);
  if (values == NULL || grads == NULL) exit(1);
  memset(values, 1, (size_t)count * size); /* not 0, which would be a calloc without pages */
  memset(grads, 1, (size_t)count * size);
  CHECK(ddp_tensor_init(&value, values, dtype, 1, &count));
  CHECK(ddp_tensor_init(&grad, grads, dtype, 1, &count));
  const double before = resident_mib();
  CHECK(ddp_model_create(group, &model_options, &model));
  CHECK(ddp_model_add_parameter(model, "w", &value, &grad, NULL));
  CHECK(ddp_model_commit(model, NULL));
  double close[STEPS * MOST_PARTS], last[STEPS];
  int closed = 0;
  for (int step = -1; step < STEPS; ++step) {
    for (int32_t part = 0; part + 1 < parts; ++part) {
      memset(grads, 1, (size_t)count * size);
      const double ms = pass_ms(model, DDP_PASS_PART);
      if (step >= 0) close[closed++] = ms;
    }
    const double ms = pass_ms(model, DDP_PASS_REDUCE);
    if (step >= 0) last[step] = ms;
  }
  const double above = resident_mib() - before;
  const double gradient = (double)count * (double)size / (1 << 20), copy = copy_ms(values, grads, (size_t)count * size);
  double sum = 0;
  for (int i = 0; i < closed; ++i) sum += close[i];
  printf(
      "%-4s %2d parts: %6.1f MiB above (%.2f gradients), closing %6.2f ms (mean; longest %6.2f), last pass %6.2f ms, memcpy "
      "%6.2f ms\n",
      dtype == DDP_F32 ? "F32" : "BF16", parts > 0 ? parts : 1, above, above / gradient, closed > 0 ? sum / closed : 0,
      closed > 0 ? (median(close, closed), close[closed - 1]) : 0, median(last, STEPS), copy);
  ddp_model_destroy(model);
  ddp_group_destroy(group);
  free(values);
  free(grads);
}

int main(int argc, char **argv) {
  const int64_t bytes = (argc > 1 ? atoll(argv[1]) : 64) << 20;
  const int32_t parts[] = {0, 2, 4, 5, 8, 16};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i) measure(DDP_F32, bytes / 4, 4, parts[i]);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i) measure(DDP_BF16, bytes / 2, 2, parts[i]);
  return 0;
}
