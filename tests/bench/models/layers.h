/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that both models are made of. Forward functions write what their backward needs into arrays of the caller. */
#ifndef DDP_TESTS_BENCH_LAYERS_H
#define DDP_TESTS_BENCH_LAYERS_H

#include <stdint.h>

/* y = x w^T + b: x is rows x in, w is out x in. */
void linear_forward(const float *x, const float *w, const float *b, float *y, int64_t rows, int64_t in, int64_t out);
/* dx may be NULL; then it is not computed. */
void linear_backward(const float *x, const float *w, const float *dy, float *dx, float *dw, float *db, int64_t rows,
                     int64_t in, int64_t out);

/* keeps the inverse deviation of each row in `inverse` and the normalised rows in `unit` */
void norm_forward(const float *x, const float *gain, const float *shift, float *y, float *unit, float *inverse, int64_t rows,
                  int64_t width);
/* adds to dx */
void norm_backward(const float *dy, const float *gain, const float *unit, const float *inverse, float *dx, float *dgain,
                   float *dshift, int64_t rows, int64_t width);

void gelu_forward(const float *x, float *y, int64_t count);
void gelu_backward(const float *x, const float *dy, float *dx, int64_t count);

/* The mean of the rows' cross entropies; `logits` become their gradient. */
double cross_entropy(float *logits, const int32_t *wanted, int64_t rows, int64_t classes);

#endif
