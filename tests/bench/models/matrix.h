/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products on one thread, blocked for caches and vectors. Row and column strides make transposes free.
 * Tested by bench/models/backward_test.c. */
#ifndef DDP_TESTS_BENCH_MATRIX_H
#define DDP_TESTS_BENCH_MATRIX_H

#include <stdint.h>

typedef struct matrix {
  float *data;
  int64_t row, column; /* distance of neighbours in elements */
} matrix;

static inline matrix rows_of(float *data, int64_t columns) { return (matrix){data, columns, 1}; }
static inline matrix transposed(matrix m) { return (matrix){m.data, m.column, m.row}; }

/* c = a b (add: c += a b); a is m x k, b is k x n, c is m x n with columns next to each other. */
void multiply(matrix a, matrix b, matrix c, int64_t m, int64_t n, int64_t k, int add);

#endif
