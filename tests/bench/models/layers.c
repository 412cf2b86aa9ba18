/* SPDX-License-Identifier: Apache-2.0 */
#include "layers.h"

#include <math.h>
#include <string.h>

#include "matrix.h"

void linear_forward(const float *x, const float *w, const float *b, float *y, int64_t rows, int64_t in, int64_t out) {
  for (int64_t r = 0; r < rows; ++r) memcpy(y + r * out, b, (size_t)out * sizeof *y);
  multiply(rows_of((float *)x, in), transposed(rows_of((float *)w, in)), rows_of(y, out), rows, out, in, 1);
}

void linear_backward(const float *x, const float *w, const float *dy, float *dx, float *dw, float *db, int64_t rows,
                     int64_t in, int64_t out) {
  if (dx != NULL) multiply(rows_of((float *)dy, out), rows_of((float *)w, in), rows_of(dx, in), rows, in, out, 0);
  multiply(transposed(rows_of((float *)dy, out)), rows_of((float *)x, in), rows_of(dw, in), out, in, rows, 0);
  memset(db, 0, (size_t)out * sizeof *db);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < out; ++j) db[j] += dy[r * out + j];
}

void norm_forward(const float *x, const float *gain, const float *shift, float *y, float *unit, float *inverse, int64_t rows,
                  int64_t width) {
  for (int64_t r = 0; r < rows; ++r, x += width, y += width, unit += width) {
    float mean = 0, square = 0;
    for (int64_t i = 0; i < width; ++i) mean += x[i];
    mean /= (float)width;
    for (int64_t i = 0; i < width; ++i) square += (x[i] - mean) * (x[i] - mean);
    inverse[r] = 1.0F / sqrtf(square / (float)width + 1e-5F);
    for (int64_t i = 0; i < width; ++i) {
      unit[i] = (x[i] - mean) * inverse[r];
      y[i] = unit[i] * gain[i] + shift[i];
    }
  }
}

void norm_backward(const float *dy, const float *gain, const float *unit, const float *inverse, float *dx, float *dgain,
                   float *dshift, int64_t rows, int64_t width) {
  memset(dgain, 0, (size_t)width * sizeof *dgain);
  memset(dshift, 0, (size_t)width * sizeof *dshift);
  for (int64_t r = 0; r < rows; ++r, dy += width, unit += width, dx += width) {
    float sum = 0, product = 0;
    for (int64_t i = 0; i < width; ++i) {
      const float g = dy[i] * gain[i];
      sum += g;
      product += g * unit[i];
      dgain[i] += dy[i] * unit[i];
      dshift[i] += dy[i];
    }
    sum /= (float)width;
    product /= (float)width;
    for (int64_t i = 0; i < width; ++i) dx[i] += inverse[r] * (dy[i] * gain[i] - sum - unit[i] * product);
  }
}

static const float kRoot = 0.7978845608F; /* sqrt(2 / pi) */

void gelu_forward(const float *x, float *y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = 0.5F * x[i] * (1 + tanhf(kRoot * (x[i] + 0.044715F * x[i] * x[i] * x[i])));
}

void gelu_backward(const float *x, const float *dy, float *dx, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float t = tanhf(kRoot * (x[i] + 0.044715F * x[i] * x[i] * x[i]));
    const float inner = kRoot * (1 + 3 * 0.044715F * x[i] * x[i]);
    dx[i] = dy[i] * (0.5F * (1 + t) + 0.5F * x[i] * (1 - t * t) * inner);
  }
}

double cross_entropy(float *logits, const int32_t *wanted, int64_t rows, int64_t classes) {
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r, logits += classes) {
    float largest = logits[0], sum = 0;
    for (int64_t c = 1; c < classes; ++c) largest = logits[c] > largest ? logits[c] : largest;
    const double chosen = (double)logits[wanted[r]] - (double)largest;
    for (int64_t c = 0; c < classes; ++c) {
      logits[c] = expf(logits[c] - largest);
      sum += logits[c];
    }
    loss += log((double)sum) - chosen;
    const float scale = 1 / (sum * (float)rows);
    for (int64_t c = 0; c < classes; ++c) logits[c] *= scale;
    logits[wanted[r]] -= 1 / (float)rows;
  }
  return loss / (double)rows;
}
