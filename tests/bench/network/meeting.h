/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of different "hosts" run on one machine: they meet in a file that all map, outside of the network that is measured,
 * so that a call begins at one instant on all of them and its time is that of the slowest. Environment: BENCH_MEETING (the
 * file), BENCH_COUNTERS (what the switch counts; optional), BENCH_HOSTS (hosts in it). */
#ifndef DDP_TESTS_BENCH_NETWORK_MEETING_H
#define DDP_TESTS_BENCH_NETWORK_MEETING_H

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "switch.h"

enum { MEETING_BYTES = 65536, MEETING_RANKS = 1024 };

typedef struct meeting_file {
  int32_t arrived; /* both changed with atomic operations */
  int32_t turn;
  double us[MEETING_RANKS];
} meeting_file;

typedef struct meeting {
  meeting_file *file;
  const volatile struct port_counters *counters; /* NULL: none */
  int32_t rank, size, hosts;
} meeting;

static inline double meeting_now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static inline void *meeting_map(const char *path, size_t bytes) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  void *data = fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    perror(path);
    exit(2);
  }
  close(fd);
  return data;
}

static inline meeting meeting_open(int32_t rank, int32_t size) {
  const char *path = getenv("BENCH_MEETING"), *counters = getenv("BENCH_COUNTERS"), *hosts = getenv("BENCH_HOSTS");
  if (path == NULL || size > MEETING_RANKS) {
    fprintf(stderr, "BENCH_MEETING is not set: start this by network.sh\n");
    exit(2);
  }
  meeting m = {NULL, NULL, rank, size, hosts != NULL ? atoi(hosts) : 0};
  m.file = (meeting_file *)meeting_map(path, MEETING_BYTES);
  if (counters != NULL) m.counters = (const volatile struct port_counters *)meeting_map(counters, COUNTERS_BYTES);
  return m;
}

/* All ranks leave together; a waiting rank sleeps, since it may share its core with one that works. */
static inline void meeting_wait(const meeting *m) {
  const int32_t turn = __atomic_load_n(&m->file->turn, __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&m->file->arrived, 1, __ATOMIC_ACQ_REL) == m->size) {
    __atomic_store_n(&m->file->arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&m->file->turn, turn + 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &m->file->turn, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return;
  }
  while (__atomic_load_n(&m->file->turn, __ATOMIC_ACQUIRE) == turn)
    syscall(SYS_futex, &m->file->turn, FUTEX_WAIT, turn, NULL, NULL, 0);
}

/* The longest of all ranks' times, on every rank. */
static inline double meeting_slowest(const meeting *m, double us) {
  m->file->us[m->rank] = us;
  meeting_wait(m);
  double slowest = 0;
  for (int32_t r = 0; r < m->size; ++r)
    if (m->file->us[r] > slowest) slowest = m->file->us[r];
  meeting_wait(m);
  return slowest;
}

/* Bytes that the busiest host has sent so far; 0 if they are not counted. */
static inline int64_t meeting_sent(const meeting *m, int32_t host) {
  return m->counters == NULL || host >= m->hosts ? 0 : m->counters[host].sent;
}

static inline int64_t meeting_drops(const meeting *m) {
  int64_t drops = 0;
  for (int32_t h = 0; m->counters != NULL && h < m->hosts; ++h) drops += m->counters[h].dropped;
  return drops;
}

#endif
