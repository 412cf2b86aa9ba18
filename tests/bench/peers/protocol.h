/* SPDX-License-Identifier: Apache-2.0 */
/* What every all-reduce program measures, so that all are measured alike.
 *
 * For each size: one call whose result is checked, calls for 50 ms, so that the system has given each rank a core, then
 *   again:  BLOCKS blocks of calls one after the other on the same array, a barrier before each block;
 *   fresh:  (64 KiB and more) BLOCKS single calls; before each one every rank writes its whole array, as a backward does,
 *           and meets the others at a barrier. What one rank has just written must reach the others, so caches of different
 *           cores take part.
 * Every rank prints "R <rank> <bytes> <again | fresh> <microseconds a call> ..."; of a block the slowest rank counts. */
#ifndef DDP_TESTS_BENCH_PROTOCOL_H
#define DDP_TESTS_BENCH_PROTOCOL_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCKS = 5, SIZES = 5, LARGEST = 100 << 20, WARM_UP_US = 50000 };
static const int64_t protocol_sizes[SIZES] = {1 << 10, 64 << 10, 1 << 20, 25 << 20, LARGEST};
static const int protocol_calls[SIZES] = {300, 100, 30, 4, 2};

typedef struct protocol {
  int32_t rank, size;
  void *context; /* for the two functions */
  void (*sum)(void *context, float *data, int64_t count);
  void (*barrier)(void *context);
} protocol;

static inline double protocol_now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static inline void protocol_fill(const protocol *p, float *data, int64_t count) {
  for (int64_t i = 0; i < count; ++i) data[i] = (float)(p->rank + 1) + (float)(i % 7);
}

static inline void protocol_verify(const protocol *p, const float *data, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float wanted = (float)(p->size * (p->size + 1) / 2) + (float)p->size * (float)(i % 7);
    if (data[i] == wanted) continue;
    fprintf(stderr, "wrong sum at element %lld: %g, not %g\n", (long long)i, (double)data[i], (double)wanted);
    exit(3);
  }
}

static inline void protocol_print(const protocol *p, int64_t bytes, const char *kind, const double *us) {
  char line[256];
  int length = snprintf(line, sizeof line, "R %d %lld %s", (int)p->rank, (long long)bytes, kind);
  for (int b = 0; b < BLOCKS; ++b) length += snprintf(line + length, sizeof line - (size_t)length, " %.3f", us[b]);
  snprintf(line + length, sizeof line - (size_t)length, "\n");
  fputs(line, stdout); /* one write, so that lines of several ranks do not mix */
  fflush(stdout);
}

/* Until one rank finds that the time is over; the sum itself has that information. */
static inline void protocol_warm_up(const protocol *p, float *data, int64_t count, int calls) {
  const double end = protocol_now_us() + WARM_UP_US;
  do {
    for (int i = 0; i < calls / 2; ++i) p->sum(p->context, data, count);
    p->barrier(p->context);
    memset(data, 0, 64);
    data[0] = protocol_now_us() > end ? 1.0F : 0.0F;
    p->barrier(p->context);
    p->sum(p->context, data, 16);
  } while (data[0] == 0);
  p->barrier(p->context);
  memset(data, 0, 64);
  p->barrier(p->context);
}

static inline void protocol_measure_size(const protocol *p, float *data, int64_t bytes, int calls) {
  const int64_t count = bytes / 4;
  double us[BLOCKS];
  protocol_fill(p, data, count);
  p->barrier(p->context);
  p->sum(p->context, data, count);
  protocol_verify(p, data, count);
  p->barrier(p->context); /* the others verify before these are overwritten */
  memset(data, 0, (size_t)bytes);
  p->barrier(p->context);
  protocol_warm_up(p, data, count, calls);
  for (int b = 0; b < BLOCKS; ++b) {
    p->barrier(p->context);
    const double begin = protocol_now_us();
    for (int i = 0; i < calls; ++i) p->sum(p->context, data, count);
    us[b] = (protocol_now_us() - begin) / calls;
  }
  protocol_print(p, bytes, "again", us);
  if (bytes < 64 << 10) return;
  for (int b = 0; b < BLOCKS; ++b) {
    p->barrier(p->context);
    protocol_fill(p, data, count);
    p->barrier(p->context);
    const double begin = protocol_now_us();
    p->sum(p->context, data, count);
    us[b] = protocol_now_us() - begin;
  }
  protocol_print(p, bytes, "fresh", us);
}

/* `data` holds LARGEST bytes; its pages are touched here. */
static inline void protocol_run(const protocol *p, float *data) {
  memset(data, 0, LARGEST);
  for (int s = 0; s < SIZES; ++s) protocol_measure_size(p, data, protocol_sizes[s], protocol_calls[s]);
  p->barrier(p->context);
}

/* Private memory as a program has it: page-aligned, which is the best case for all libraries. */
static inline float *protocol_memory(void) {
  void *memory = NULL;
  if (posix_memalign(&memory, 4096, LARGEST) != 0) {
    fprintf(stderr, "no memory for %d bytes\n", (int)LARGEST);
    exit(2);
  }
  return (float *)memory;
}

#endif
