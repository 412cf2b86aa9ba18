/* SPDX-License-Identifier: Apache-2.0 */
/* The bound: the least that an all-reduce over shared memory can be. No announcement, no comparison of calls, no failure
 * handling, no sleeping: two spinning barriers and one loop that adds this rank's part of all arrays and writes the sum to
 * all. The ranks are children of one process and all arrays are in one anonymous shared mapping. Measured by the method
 * of protocol.h.
 *   bound_all_reduce SIZE */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol.h"

enum { MOST_RANKS = 64, PADDED = LARGEST + 8192 /* no two arrays a multiple of a large power of two apart */ };
typedef float vector __attribute__((vector_size(64), aligned(4), may_alias));
typedef struct arrival {
  _Alignas(128) atomic_ulong number;
} arrival;
typedef struct bound {
  int32_t rank, size;
  unsigned long number;
  arrival *arrivals;
  char *arrays;
} bound;

static void barrier(void *context) {
  bound *b = context;
  atomic_store_explicit(&b->arrivals[b->rank].number, ++b->number, memory_order_release);
  for (int32_t r = 0; r < b->size; ++r)
    while (atomic_load_explicit(&b->arrivals[r].number, memory_order_acquire) < b->number) __builtin_ia32_pause();
}

static inline void add(float **arrays, int32_t size, int64_t begin, int64_t end) {
  int64_t i = begin;
  for (; i + 16 <= end; i += 16) {
    vector total = *(vector *)(arrays[0] + i);
    for (int32_t r = 1; r < size; ++r) total += *(vector *)(arrays[r] + i);
    for (int32_t r = 0; r < size; ++r) *(vector *)(arrays[r] + i) = total;
  }
  for (; i < end; ++i) {
    float total = arrays[0][i];
    for (int32_t r = 1; r < size; ++r) total += arrays[r][i];
    for (int32_t r = 0; r < size; ++r) arrays[r][i] = total;
  }
}

static void sum(void *context, float *data, int64_t count) {
  bound *b = context;
  float *arrays[MOST_RANKS];
  (void)data;
  for (int32_t r = 0; r < b->size; ++r) arrays[r] = (float *)(b->arrays + (int64_t)r * PADDED);
  const int64_t begin = count * b->rank / b->size / 16 * 16,
                end = b->rank + 1 == b->size ? count : count * (b->rank + 1) / b->size / 16 * 16;
  barrier(b);
  switch (b->size) { /* a constant number of arrays keeps their addresses in registers */
    case 2: add(arrays, 2, begin, end); break;
    case 4: add(arrays, 4, begin, end); break;
    case 8: add(arrays, 8, begin, end); break;
    default: add(arrays, b->size, begin, end);
  }
  barrier(b);
}

int main(int argc, char **argv) {
  const int32_t size = argc > 1 ? atoi(argv[1]) : 2;
  if (size < 1 || size > MOST_RANKS) return 2;
  const size_t bytes = sizeof(arrival[MOST_RANKS]) + (size_t)size * PADDED;
  char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 2;
  bound b = {0, size, 0, (arrival *)memory, memory + sizeof(arrival[MOST_RANKS])};
  while (b.rank + 1 < size && fork() != 0) ++b.rank; /* the parent becomes the last rank */
  const protocol p = {b.rank, size, &b, sum, barrier};
  protocol_run(&p, (float *)(b.arrays + (int64_t)b.rank * PADDED));
  int failed = 0, status = 0;
  while (b.rank + 1 == size && wait(&status) > 0) failed |= status != 0;
  return failed;
}
