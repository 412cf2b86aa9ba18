/* SPDX-License-Identifier: Apache-2.0 */
/* ddp/batch_norm.h: the numbers of a small batch by hand, on two ranks which are threads, and every argument that can be
 * wrong. */
#include <math.h>

#include "support/ranks.h"

static ddp_tensor matrix_of(void *data, ddp_dtype dtype, int64_t rows, int64_t channels) {
  const int64_t shape[2] = {rows, channels};
  ddp_tensor tensor;
  check_ok(ddp_tensor_init(&tensor, data, dtype, 2, shape));
  return tensor;
}

static ddp_batch_norm_options defaults(void) {
  check_defaults(batch_norm_options, options);
  return options;
}

check_case(init_writes_the_defaults) {
  ddp_batch_norm_options options;
  memset(&options, 0xff, sizeof options);
  check_ok(ddp_batch_norm_options_init(&options, sizeof options));
  check_int(options.struct_size, sizeof options);
  check_number(options.epsilon, 1e-5);
  check_number(options.momentum, 0.1);
  check_int(options.training, 1);
  check_int(options.accumulate, 0);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_batch_norm_options_init(NULL, sizeof options));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_batch_norm_options_init(&options, 0));
}

/* Rank 0 has the values 1 and 3, rank 1 the value 5: mean 3, variance 8/3, unbiased 4. */
check_ranks_case(two_ranks_normalise_as_one, 2) {
  const int r = self->index;
  float x[2] = {1, 3}, y[2] = {-7, -7}, dy[2] = {1, 0}, dx[2], weight[1] = {2}, bias[1] = {10}, running_mean[1] = {0},
        running_var[1] = {1};
  double mean[1], invstd[1];
  float dweight[1] = {0}, dbias[1] = {0};
  int64_t count = 0;
  if (r == 1) x[0] = 5, dy[0] = 4;
  ddp_batch_norm_options options = defaults();
  options.epsilon = 0;
  options.momentum = 0.5;
  const ddp_tensor xs = matrix_of(x, DDP_F32, 2 - r, 1), ys = matrix_of(y, DDP_F32, 2 - r, 1);
  const ddp_tensor dys = matrix_of(dy, DDP_F32, 2 - r, 1), dxs = matrix_of(dx, DDP_F32, 2 - r, 1);
  const ddp_tensor w = vector_of(weight, DDP_F32, 1), b = vector_of(bias, DDP_F32, 1),
                   rm = vector_of(running_mean, DDP_F32, 1);
  const ddp_tensor rv = vector_of(running_var, DDP_F32, 1), sm = vector_of(mean, DDP_F64, 1),
                   si = vector_of(invstd, DDP_F64, 1);
  const ddp_tensor dw = vector_of(dweight, DDP_F32, 1), db = vector_of(dbias, DDP_F32, 1);
  check_ok(ddp_batch_norm_forward(self->group, &options, &xs, &w, &b, &rm, &rv, &ys, &sm, &si, &count, NULL));
  const double s = sqrt(3.0 / 8.0);
  check_int(count, 3);
  check_number(mean[0], 3);
  check_true(fabs(invstd[0] - s) < 1e-15);
  check_number(running_mean[0], 1.5);
  check_number(running_var[0], 2.5);
  check_true(fabs((double)y[0] - (10 + 2 * s * (r == 0 ? -2 : 2))) < 1e-6);
  if (r == 1) check_number(y[1], -7); /* not mine */
  check_ok(ddp_batch_norm_backward(self->group, &options, &dys, &xs, &w, &sm, &si, count, &dxs, &dw, &db, NULL));
  /* Sums over all ranks: dy 1 + 0 + 4 = 5; dy * (x - mean) 1 * -2 + 4 * 2 = 6. */
  const double slope = 6 * s * s / 3;
  check_true(fabs((double)dx[0] - 2 * s * (r == 0 ? 1 - 5.0 / 3 + 2 * slope : 4 - 5.0 / 3 - 2 * slope)) < 1e-6);
  check_number(dbias[0], r == 0 ? 1 : 4);
  check_true(fabs((double)dweight[0] - (r == 0 ? -2 : 8) * s) < 1e-6);
  check_ok(ddp_batch_norm_forward(self->group, NULL, &xs, NULL, NULL, NULL, NULL, &ys, NULL, NULL, NULL, NULL));
  check_ok(ddp_batch_norm_backward(self->group, NULL, &dys, &xs, NULL, &sm, &si, count, NULL, NULL, NULL, NULL));
}

#define FORWARD(g, o, x, w, rm, rv, y, sm) ddp_batch_norm_forward(g, o, x, w, NULL, rm, rv, y, sm, &si, &count, NULL)
#define BACKWARD(g, dy, x, w, sm, count, dx, dw, si, db) \
  ddp_batch_norm_backward(g, NULL, dy, x, w, sm, si, count, dx, dw, db, NULL)
#define REFUSED(part, call) check_error_text(DDP_ERROR_INVALID_ARGUMENT, call, part)

struct backward_tensors {
  ddp_tensor xs, ys, less, dxs, w, one, rm, sm, si, db;
};

static void check_backward_refuses(ddp_group *group, const struct backward_tensors *t, int64_t count) {
  REFUSED("group", BACKWARD(NULL, &t->ys, &t->xs, NULL, &t->sm, count, &t->dxs, NULL, &t->si, &t->db));
  REFUSED("dy is NULL", BACKWARD(group, NULL, &t->xs, NULL, &t->sm, count, &t->dxs, NULL, &t->si, &t->db));
  REFUSED("x is NULL", BACKWARD(group, &t->ys, NULL, NULL, &t->sm, count, &t->dxs, NULL, &t->si, &t->db));
  REFUSED("saved_mean is NULL", BACKWARD(group, &t->ys, &t->xs, NULL, NULL, count, &t->dxs, NULL, &t->si, &t->db));
  REFUSED("alike", BACKWARD(group, &t->less, &t->xs, NULL, &t->sm, count, &t->dxs, NULL, &t->si, &t->db));
  REFUSED("alike", BACKWARD(group, &t->ys, &t->xs, NULL, &t->sm, count, &t->less, NULL, &t->si, &t->db));
  REFUSED("out_count", BACKWARD(group, &t->ys, &t->xs, NULL, &t->sm, count - 1, &t->dxs, NULL, &t->si, &t->db));
  REFUSED("weight", BACKWARD(group, &t->ys, &t->xs, &t->one, &t->sm, count, &t->dxs, NULL, &t->si, &t->db));
  REFUSED("dweight", BACKWARD(group, &t->ys, &t->xs, NULL, &t->sm, count, &t->dxs, &t->one, &t->si, &t->db));
  REFUSED("F64", BACKWARD(group, &t->ys, &t->xs, NULL, &t->rm, count, &t->dxs, NULL, &t->si, &t->db));
  REFUSED("overlaps", BACKWARD(group, &t->ys, &t->xs, NULL, &t->sm, count, &t->xs, NULL, &t->si, &t->db));
  REFUSED("overlaps", BACKWARD(group, &t->ys, &t->xs, NULL, &t->sm, count, &t->dxs, &t->db, &t->si, &t->db));
}

check_case(wrong_arguments_are_refused) {
  enum { N = 4, C = 2 };
  float x[N * C] = {0}, y[N * C], dx[N * C], weight[C] = {1, 1}, running_mean[C] = {0}, running_var[C] = {0}, dweight[C],
              dbias[C];
  double mean[C] = {0}, invstd[C] = {0};
  int32_t whole[N * C] = {0};
  int64_t count = -3;
  ddp_group *group = alone();
  ddp_batch_norm_options options = defaults();
  const ddp_tensor xs = matrix_of(x, DDP_F32, N, C), ys = matrix_of(y, DDP_F32, N, C),
                   less = matrix_of(y, DDP_F32, N - 1, C);
  const ddp_tensor dxs = matrix_of(dx, DDP_F32, N, C), wholes = matrix_of(whole, DDP_I32, N, C),
                   flat = vector_of(x, DDP_F32, N * C);
  const ddp_tensor w = vector_of(weight, DDP_F32, C), one = vector_of(weight, DDP_F32, 1),
                   rm = vector_of(running_mean, DDP_F32, C);
  const ddp_tensor rv = vector_of(running_var, DDP_F32, C), sm = vector_of(mean, DDP_F64, C),
                   si = vector_of(invstd, DDP_F64, C);
  const ddp_tensor dw = vector_of(dweight, DDP_F32, C), db = vector_of(dbias, DDP_F32, C),
                   shifted = matrix_of(x + 1, DDP_F32, N - 1, C);
  const ddp_tensor low = matrix_of(x, DDP_F32, N - 1, C);
  REFUSED("x is NULL", FORWARD(group, NULL, NULL, NULL, NULL, NULL, &ys, NULL));
  REFUSED("y is NULL", FORWARD(group, NULL, &xs, NULL, NULL, NULL, NULL, NULL));
  REFUSED("two dimensions", FORWARD(group, NULL, &flat, NULL, NULL, NULL, &flat, NULL));
  REFUSED("I32", FORWARD(group, NULL, &wholes, NULL, NULL, NULL, &wholes, NULL));
  REFUSED("alike", FORWARD(group, NULL, &xs, NULL, NULL, NULL, &less, NULL));
  REFUSED("weight", FORWARD(group, NULL, &xs, &one, NULL, NULL, &ys, NULL));
  REFUSED("both or neither", FORWARD(group, NULL, &xs, NULL, &rm, NULL, &ys, NULL));
  REFUSED("F64", FORWARD(group, NULL, &xs, NULL, NULL, NULL, &ys, &w));
  REFUSED("overlaps", FORWARD(group, NULL, &low, NULL, NULL, NULL, &shifted, NULL));
  REFUSED("overlaps", FORWARD(group, NULL, &xs, &w, &w, &rv, &ys, NULL));
  options.training = 0;
  REFUSED("running_mean", FORWARD(group, &options, &xs, NULL, NULL, NULL, &ys, NULL));
  options.training = 2;
  REFUSED("training", FORWARD(group, &options, &xs, NULL, NULL, NULL, &ys, NULL));
  options = defaults();
  options.epsilon = -1;
  REFUSED("epsilon", FORWARD(group, &options, &xs, NULL, NULL, NULL, &ys, NULL));
  options = defaults();
  options.momentum = NAN;
  REFUSED("momentum", FORWARD(group, &options, &xs, NULL, NULL, NULL, &ys, NULL));
  options.struct_size = 0;
  REFUSED("_init", FORWARD(group, &options, &xs, NULL, NULL, NULL, &ys, NULL));
  check_int(count, -3);
  const struct backward_tensors all = {xs, ys, less, dxs, w, one, rm, sm, si, db};
  check_backward_refuses(group, &all, N);
  check_ok(BACKWARD(group, &ys, &xs, NULL, &sm, N, &ys, &dw, &si, &db));
  ddp_group_destroy(group);
  REFUSED("group", FORWARD(group, NULL, &xs, NULL, NULL, NULL, &ys, NULL));
  REFUSED("group", BACKWARD(group, &ys, &xs, NULL, &sm, N, &dxs, NULL, &si, &db));
}
