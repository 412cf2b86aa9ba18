/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of the benchmark's models are those of their losses: each is compared with central differences of the loss
 * along the gradient itself (its length is right) and along others (so is its direction), on small shapes that do not
 * fill the tiles of the products. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"
#include "model.h"
#include "support/check.h"

static void count_call(void *calls, int32_t index) { ++((int32_t *)calls)[index]; }

/* How much faster the loss grows along `direction` than by the gradient, relative to the gradient's length. */
static double slope_error(model *m, parameter *p, const double *direction) {
  float *values = malloc((size_t)p->count * sizeof *values);
  double expected = 0, length = 0, loss[2];
  memcpy(values, p->value, (size_t)p->count * sizeof *values);
  for (int side = 0; side < 2; ++side) {
    for (int64_t e = 0; e < p->count; ++e)
      p->value[e] = (float)((double)values[e] + (side == 0 ? 0.01 : -0.01) * direction[e]);
    loss[side] = m->run(m, NULL, NULL);
  }
  memcpy(p->value, values, (size_t)p->count * sizeof *values);
  free(values);
  for (int64_t e = 0; e < p->count; ++e) {
    expected += (double)p->grad[e] * direction[e];
    length += (double)p->grad[e] * (double)p->grad[e];
  }
  return ((loss[0] - loss[1]) / 0.02 - expected) / (sqrt(length) + 0.01);
}

/* Of length 1: `share` of it along the gradient, the rest at random. */
static void choose_direction(const parameter *p, double share, uint64_t *random, double *direction) {
  double length = 0, total = 0;
  for (int64_t e = 0; e < p->count; ++e) length += (double)p->grad[e] * (double)p->grad[e];
  for (int64_t e = 0; e < p->count; ++e) {
    direction[e] = share * (double)p->grad[e] / (sqrt(length) + 1e-9) +
                   (1 - share) * (double)model_random(random) / sqrt((double)p->count / 3);
    total += direction[e] * direction[e];
  }
  for (int64_t e = 0; e < p->count; ++e) direction[e] /= sqrt(total) + 1e-9;
}

static void gradients_are_those_of_the_loss(model *m) {
  int32_t *calls = calloc((size_t)m->count, sizeof *calls);
  uint64_t random = 7;
  for (int32_t i = 0; i < m->count; ++i) m->parameters[i].grad = malloc((size_t)m->parameters[i].count * sizeof(float));
  m->run(m, count_call, calls);
  for (int32_t i = 0; i < m->count; ++i) {
    parameter *p = &m->parameters[i];
    double *direction = malloc((size_t)p->count * sizeof *direction);
    assert_int_equal(calls[i], 1);
    for (int try = 0; try < 5; ++try) {
      choose_direction(p, try == 0 ? 1 : 0.5, &random, direction);
      const double error = slope_error(m, p, direction);
      if (fabs(error) > 0.02) fail_msg("%s, direction %d: off by %g", p->name, try, error);
    }
    free(direction);
  }
  free(calls);
}

static model *volatile the_mlp, *volatile the_gpt; /* models live until the program ends, in sight of the leak checker */

check_case(the_mlp_differentiates) {
  static const int32_t sizes[] = {19, 37, 33, 11};
  the_mlp = mlp_create(sizes, 3, 7, 3);
  gradients_are_those_of_the_loss(the_mlp);
}

check_case(the_gpt_differentiates) {
  the_gpt = gpt_create((gpt_shape){29, 24, 2, 3, 2, 9}, 3);
  gradients_are_those_of_the_loss(the_gpt);
}

check_case(the_gpt_is_asked_for_the_batch_that_was_set) {
  int32_t tokens[18], wanted[18], others[18];
  for (int32_t r = 0; r < 18; ++r) {
    tokens[r] = r * 5 % 29;
    wanted[r] = r * 7 % 29;
    others[r] = r * 11 % 29;
  }
  gpt_set_batch(the_gpt, tokens, wanted);
  const double loss = the_gpt->run(the_gpt, NULL, NULL);
  gpt_set_batch(the_gpt, tokens, others);
  const double loss_of_others = the_gpt->run(the_gpt, NULL, NULL);
  gpt_set_batch(the_gpt, others, wanted);
  const double loss_after_others = the_gpt->run(the_gpt, NULL, NULL);
  gpt_set_batch(the_gpt, tokens, wanted);
  assert_true(the_gpt->run(the_gpt, NULL, NULL) == loss);
  assert_true(loss_of_others != loss && loss_after_others != loss);
}

check_case(products_are_those_of_a_double_loop) {
  enum { M = 101, N = 75, K = 300 };
  static float a[M * K], b[K * N], c[M * N];
  uint64_t random = 1;
  for (int i = 0; i < M * K; ++i) a[i] = model_random(&random);
  for (int i = 0; i < K * N; ++i) b[i] = model_random(&random);
  for (int i = 0; i < M * N; ++i) c[i] = 1;
  multiply((matrix){a, 1, M}, (matrix){b, 1, K}, (matrix){c, N, 1}, M, N, K, 1);
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      double sum = 1;
      for (int k = 0; k < K; ++k) sum += (double)a[k * M + i] * (double)b[j * K + k];
      if (fabs(sum - (double)c[i * N + j]) > 1e-3) fail_msg("element %d, %d: %g, not %g", i, j, (double)c[i * N + j], sum);
    }
}
