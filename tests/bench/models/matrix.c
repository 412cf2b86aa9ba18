/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "matrix.h"

#include <stdlib.h>
#include <string.h>

/* Panels of `b` (KC x NC) and of `a` (MC x KC) are packed, so that the inner loop reads both in order; it keeps a tile of 12
 * x 32 sums in registers (24 of 32 vectors of 16). That is the usual design; the figures of the tile were tried out. */
enum { MR = 12, NR = 32, MC = 96, KC = 256, NC = 1024, VECTOR = 16 };
typedef float vector __attribute__((vector_size(64), aligned(4), may_alias));

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void pack_a(matrix a, int64_t m, int64_t k, float *to) {
  for (int64_t i0 = 0; i0 < m; i0 += MR) {
    const int64_t rows = least(MR, m - i0);
    for (int64_t p = 0; p < k; ++p, to += MR) {
      for (int64_t i = 0; i < rows; ++i) to[i] = a.data[(i0 + i) * a.row + p * a.column];
      for (int64_t i = rows; i < MR; ++i) to[i] = 0;
    }
  }
}

/* A stretch of `b` whose rows are in order is copied by rows; one whose columns do is turned in tiles of 16 x 16, so that
 * whole lines are read. */
static void pack_b(matrix b, int64_t k, int64_t n, float *to) {
  for (int64_t j0 = 0; j0 < n; j0 += NR, to += k * NR) {
    const int64_t columns = least(NR, n - j0);
    if (columns < NR) memset(to, 0, (size_t)(k * NR) * sizeof *to);
    if (b.column == 1) {
      for (int64_t p = 0; p < k; ++p) memcpy(to + p * NR, b.data + p * b.row + j0, (size_t)columns * sizeof *to);
    } else {
      for (int64_t p0 = 0; p0 < k; p0 += VECTOR)
        for (int64_t j = 0; j < columns; ++j) {
          const float *from = b.data + p0 * b.row + (j0 + j) * b.column;
          for (int64_t p = 0; p < least(VECTOR, k - p0); ++p) to[(p0 + p) * NR + j] = from[p * b.row];
        }
    }
  }
}

static inline void tile(const float *a, const float *b, int64_t k, vector sums[MR][2]) {
  for (int64_t p = 0; p < k; ++p) {
    const vector b0 = *(const vector *)(b + p * NR), b1 = *(const vector *)(b + p * NR + VECTOR);
    for (int i = 0; i < MR; ++i) {
      const float x = a[p * MR + i];
      sums[i][0] += x * b0;
      sums[i][1] += x * b1;
    }
  }
}

static void tile_to(const float *a, const float *b, matrix c, int64_t m, int64_t n, int64_t k, int add) {
  vector sums[MR][2] = {{{0}}};
  tile(a, b, k, sums);
  for (int64_t i = 0; i < m; ++i) {
    float *to = c.data + i * c.row;
    if (n == NR) {
      vector *out0 = (vector *)to, *out1 = (vector *)(to + VECTOR);
      if (add) {
        *out0 += sums[i][0];
        *out1 += sums[i][1];
      } else {
        *out0 = sums[i][0];
        *out1 = sums[i][1];
      }
    } else {
      for (int64_t j = 0; j < n; ++j) to[j] = (add ? to[j] : 0) + sums[i][j / VECTOR][j % VECTOR];
    }
  }
}

static float *panel(size_t floats) {
  void *memory = NULL;
  if (posix_memalign(&memory, 64, floats * sizeof(float)) != 0) abort();
  return memory;
}

void multiply(matrix a, matrix b, matrix c, int64_t m, int64_t n, int64_t k, int add) {
  static float *packed_a, *packed_b;
  if (packed_a == NULL) {
    packed_a = panel((size_t)MC * KC);
    packed_b = panel((size_t)KC * NC);
  }
  for (int64_t j0 = 0; j0 < n; j0 += NC)
    for (int64_t p0 = 0; p0 < k; p0 += KC) {
      const int64_t width = least(NC, n - j0), depth = least(KC, k - p0);
      pack_b((matrix){b.data + p0 * b.row + j0 * b.column, b.row, b.column}, depth, width, packed_b);
      for (int64_t i0 = 0; i0 < m; i0 += MC) {
        const int64_t height = least(MC, m - i0);
        pack_a((matrix){a.data + i0 * a.row + p0 * a.column, a.row, a.column}, height, depth, packed_a);
        for (int64_t j = 0; j < width; j += NR)
          for (int64_t i = 0; i < height; i += MR)
            tile_to(packed_a + i * depth, packed_b + j * depth, (matrix){c.data + (i0 + i) * c.row + j0 + j, c.row, 1},
                    least(MR, height - i), least(NR, width - j), depth, add || p0 > 0);
      }
    }
}
