/* SPDX-License-Identifier: Apache-2.0 */
/* What every program that network.sh compares measures: a barrier, and in-place F32 sums of BENCH_SIZES (bytes, separated by
 * commas; 0 is the barrier). For each: two calls to warm up, of which the first is checked, then BENCH_CALLS calls (at most
 * BENCH_SECONDS, or 3 s), each begun at one instant. Rank 0 prints N <bytes> <bytes sent by the busiest host, in the median
 * call> <frames dropped in all calls> <microseconds of each call> ... */
#ifndef DDP_TESTS_BENCH_NETWORK_PROTOCOL_H
#define DDP_TESTS_BENCH_NETWORK_PROTOCOL_H

#include "meeting.h"

enum { PROTOCOL_CALLS = 64 };

typedef struct protocol {
  meeting place;
  void *context; /* for the two functions */
  void (*sum)(void *context, float *data, int64_t count);
  void (*barrier)(void *context);
} protocol;

static inline void protocol_call(const protocol *p, float *data, int64_t bytes) {
  if (bytes == 0)
    p->barrier(p->context);
  else
    p->sum(p->context, data, bytes / 4);
}

static inline void protocol_check(const protocol *p, float *data, int64_t bytes) {
  const int64_t count = bytes / 4, n = p->place.size;
  for (int64_t i = 0; i < count; ++i) data[i] = (float)(p->place.rank + 1) + (float)(i % 7);
  protocol_call(p, data, bytes);
  for (int64_t i = 0; i < count; ++i) {
    const float wanted = (float)(n * (n + 1) / 2) + (float)n * (float)(i % 7);
    if (data[i] == wanted) continue;
    fprintf(stderr, "wrong sum at element %lld: %g, not %g\n", (long long)i, (double)data[i], (double)wanted);
    exit(3);
  }
  memset(data, 0, (size_t)bytes);
}

static inline int protocol_compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Calls of `bytes` bytes, after one to warm up; rank 0 prints them as `label`. */
static inline void protocol_time(const protocol *p, const char *label, float *data, int64_t bytes, int calls) {
  const meeting *m = &p->place;
  const char *seconds = getenv("BENCH_SECONDS");
  const double most_us = (seconds != NULL ? atof(seconds) : 3) * 1e6;
  double us[PROTOCOL_CALLS], begun = meeting_now_us(), sent[PROTOCOL_CALLS];
  meeting_wait(m);
  protocol_call(p, data, bytes);
  int done = 0;
  const int64_t drops = meeting_drops(m);
  for (int more = 1; more != 0;) {
    int64_t before[MAX_PORTS];
    meeting_wait(m);
    for (int32_t h = 0; h < m->hosts; ++h) before[h] = meeting_sent(m, h);
    const double begin = meeting_now_us();
    protocol_call(p, data, bytes);
    us[done] = meeting_slowest(m, meeting_now_us() - begin);
    usleep(2000); /* acknowledgements */
    sent[done] = 0;
    for (int32_t h = 0; h < m->hosts; ++h) {
      const double bytes_sent = (double)(meeting_sent(m, h) - before[h]);
      if (bytes_sent > sent[done]) sent[done] = bytes_sent;
    }
    ++done;
    more = meeting_slowest(m, m->rank == 0 && done < calls && meeting_now_us() - begun < most_us ? 1 : 0) > 0;
  }
  if (m->rank != 0) return;
  qsort(sent, (size_t)done, sizeof *sent, protocol_compare);
  printf("N %s %.0f %lld", label, sent[done / 2], (long long)(meeting_drops(m) - drops));
  for (int i = 0; i < done; ++i) printf(" %.1f", us[i]);
  puts("");
  fflush(stdout);
}

/* BENCH_CALLS, or as many as `standard`. */
static inline int protocol_calls(int standard) {
  const char *calls = getenv("BENCH_CALLS");
  const int most = calls != NULL ? atoi(calls) : standard;
  return most < PROTOCOL_CALLS ? most : PROTOCOL_CALLS;
}

static inline void protocol_run(const protocol *p) {
  const char *sizes = getenv("BENCH_SIZES");
  int64_t largest = 64;
  char *end = NULL;
  for (const char *at = sizes != NULL ? sizes : "0"; *at != '\0'; at = *end == ',' ? end + 1 : end) {
    const int64_t bytes = strtoll(at, &end, 10);
    if (end == at) break;
    if (bytes > largest) largest = bytes;
  }
  float *data = NULL;
  if (posix_memalign((void **)&data, 4096, (size_t)largest) != 0) exit(2);
  memset(data, 0, (size_t)largest);
  for (const char *at = sizes != NULL ? sizes : "0"; *at != '\0'; at = *end == ',' ? end + 1 : end) {
    const int64_t bytes = strtoll(at, &end, 10);
    if (end == at) break;
    char label[32];
    snprintf(label, sizeof label, "%lld", (long long)bytes);
    protocol_check(p, data, bytes);
    protocol_time(p, label, data, bytes, protocol_calls(9));
  }
  p->barrier(p->context);
  free(data);
}

#endif
