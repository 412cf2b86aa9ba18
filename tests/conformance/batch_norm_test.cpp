// SPDX-License-Identifier: Apache-2.0
// Batch normalisation over several ranks against a float64 batch norm of the joined batch, on every path; and inside a
// model's backward while its buckets are under way.
#include "extra/batch_norm/batch_norm.hpp"

#include "conformance/pass_world.hpp"
#include "support/batch_norm_oracle.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"
#include "unit/optim/oracle.hpp"

constexpr int kWorldSizes[] = {1, 2, 3, 4};

/// An array of any floating dtype, read and written as doubles.
struct Array {
  ddp_dtype dtype;
  std::vector<std::byte> bytes;
  Tensor tensor;

  Array(ddp_dtype type, const std::vector<int64_t>& shape, const std::vector<double>& values = {}) : dtype(type) {
    tensor.dtype = type;
    tensor.ndim = static_cast<int32_t>(shape.size());
    tensor.count = 1;
    for (size_t d = 0; d < shape.size(); ++d) tensor.count *= tensor.shape[d] = shape[d];
    bytes.resize(static_cast<size_t>(tensor.bytes()));
    tensor.data = bytes.data();
    for (size_t i = 0; i < values.size(); ++i) set(i, values[i]);
  }
  void set(size_t i, double value) { set_element(dtype, tensor.data, i, value); }
  [[nodiscard]] double get(size_t i) const { return get_element(dtype, tensor.data, i); }
};

/// One rounding to the dtype, plus what F64 sums of different order may differ by.
double tolerance(ddp_dtype dtype, double value, double magnitude) {
  const double unit = dtype == DDP_F64 ? 0 : dtype == DDP_F32 ? 0x1p-24 : dtype == DDP_F16 ? 0x1p-11 : 0x1p-8;
  return std::abs(value) * unit * 1.0001 + magnitude * 1e-12 + (dtype == DDP_F16 ? 0x1p-24 : 0);
}

void expect_near(double got, double wanted, double limit, const std::string& what) {
  if (std::abs(got - wanted) <= limit) return;
  throw std::runtime_error(what + " is " + std::to_string(got) + ", expected " + std::to_string(wanted) + " within " +
                           std::to_string(limit));
}

void expect_same_bits_everywhere(group::Group& group, const Array& array, const char* what) {
  const std::string mine(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
  for (const std::string& each : group.gather(what, mine))
    expect(each == mine, std::string("the same bits on all ranks: ") + what);
}

struct Case {
  ddp_dtype dtype;
  std::vector<int64_t> shape;  // after the rows
  double offset;
};

void check_case(group::Group& group, int rank, const Case& test) {
  const auto c_count = static_cast<size_t>(test.shape[0]);
  const int64_t inner = std::accumulate(test.shape.begin() + 1, test.shape.end(), int64_t{1}, std::multiplies<>());
  std::vector<Batch> batches;
  for (int r = 0; r < group.size(); ++r) {
    batches.push_back(make_batch(r, kRows[r], test.shape[0], inner, test.offset));
    for (auto* values : {&batches.back().x, &batches.back().dy})  // what the dtype can hold
      for (double& value : *values) {
        Array one(test.dtype, {1}, {value});
        value = one.get(0);
      }
  }
  const Batch& mine = batches[static_cast<size_t>(rank)];
  const ddp_batch_norm_options options = norm_options();
  const BatchNormOracle oracle(batches, options.epsilon);
  std::vector<int64_t> shape{mine.rows};
  shape.insert(shape.end(), test.shape.begin(), test.shape.end());
  std::vector<double> weights, biases;
  for (size_t c = 0; c < c_count; ++c)
    weights.push_back(0.5 + static_cast<double>(c % 3)), biases.push_back(static_cast<double>(c % 5) - 2);

  Array x(test.dtype, shape, mine.x), y(test.dtype, shape), dy(test.dtype, shape, mine.dy), dx(test.dtype, shape);
  Array weight(DDP_F32, {test.shape[0]}, weights), bias(DDP_F64, {test.shape[0]}, biases);
  Array running_mean(DDP_F32, {test.shape[0]}, std::vector<double>(c_count, 7)),
      running_var(DDP_F64, {test.shape[0]}, std::vector<double>(c_count, 2));
  Array mean(DDP_F64, {test.shape[0]}), invstd(DDP_F64, {test.shape[0]}), dweight(DDP_F64, {test.shape[0]}),
      dbias(DDP_F32, {test.shape[0]});

  const int64_t count = batch_norm::forward(
      group, options,
      {x.tensor, weight.tensor, bias.tensor, running_mean.tensor, running_var.tensor, y.tensor, mean.tensor, invstd.tensor});
  expect_equal(count, oracle.count, "count");
  batch_norm::backward(
      group, options,
      {dy.tensor, x.tensor, weight.tensor, mean.tensor, invstd.tensor, count, dx.tensor, dweight.tensor, dbias.tensor});

  const double level = 1 + std::abs(test.offset) * static_cast<double>(c_count);
  for (size_t i = 0; i < mine.x.size(); ++i) {
    const size_t c = i / static_cast<size_t>(inner) % c_count;
    const double wanted = oracle.xhat(c, mine.x[i]) * weights[c] + biases[c];
    expect_near(y.get(i), wanted, tolerance(test.dtype, wanted, level), "y");
    const double gradient = oracle.dx(c, mine.x[i], mine.dy[i], weights[c]);
    expect_near(dx.get(i), gradient, tolerance(test.dtype, gradient, level), "dx");
  }
  std::vector<double> own_dy(c_count), own_dy_xhat(c_count);
  BatchNormOracle::each({mine}, [&](size_t c, double value, double gradient) {
    own_dy[c] += gradient;
    own_dy_xhat[c] += gradient * oracle.xhat(c, value);
  });
  for (size_t c = 0; c < c_count; ++c) {
    expect_near(running_mean.get(c), 0.7 * 7 + 0.3 * oracle.mean[c], tolerance(DDP_F32, 7 + std::abs(oracle.mean[c]), level),
                "running mean");
    expect_near(running_var.get(c), 0.7 * 2 + 0.3 * oracle.unbiased_var(c), 1e-11 * level, "running variance");
    expect_near(dweight.get(c), own_dy_xhat[c], 1e-11 * level, "dweight");
    expect_near(dbias.get(c), own_dy[c], tolerance(DDP_F32, own_dy[c], level), "dbias");
  }
  for (const auto& [array, what] : std::initializer_list<std::pair<Array*, const char*>>{
           {&running_mean, "running_mean"}, {&running_var, "running_var"}, {&mean, "saved_mean"}, {&invstd, "saved_invstd"}})
    expect_same_bits_everywhere(group, *array, what);
}

ddp_case_on(kThreePaths, unequal_and_empty_batches_equal_the_joined_batch) {
  for (const int size : kWorldSizes)
    run_on(path, size, [](group::Group& group, int rank) {
      for (const ddp_dtype dtype : {DDP_F32, DDP_F64, DDP_F16, DDP_BF16})
        for (const std::vector<int64_t>& shape : {std::vector<int64_t>{37}, {1, 2}, {5, 3, 3}, {3, 41, 26}, {2, 1, 700, 3}})
          check_case(group, rank, {dtype, shape, 0.25});
      check_case(group, rank, {DDP_F64, {700}, 1e4});  // far from zero, where a sum of squares loses all digits
      check_case(group, rank, {DDP_F64, {4, 64}, 1e4});
      check_case(group, rank, {DDP_F32, {4, 64}, 1e4});
    });
}

ddp_ranks_case_on(kThreePaths, run_on, a_single_value_in_all_is_an_error_on_every_rank, 1, 3) {
  const int64_t rows = rank == 0 ? 1 : 0;
  Array x(DDP_F32, {rows, 2}, std::vector<double>(static_cast<size_t>(2 * rows), 3)), y(DDP_F32, {rows, 2});
  Array running_mean(DDP_F32, {2}), running_var(DDP_F32, {2});
  const batch_norm::Forward call{x.tensor, {}, {}, running_mean.tensor, running_var.tensor, y.tensor, {}, {}};
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { batch_norm::forward(group, norm_options(), call); }, {"single value"});
  expect(running_mean.get(0) == 0, "nothing was written");
  group.barrier();  // the group is whole
  ddp_batch_norm_options options = norm_options();
  options.training = 0;
  expect_equal(batch_norm::forward(group, options, call), rows, "one value without training");
}

ddp_ranks_case_on(kThreePaths, run_on, nothing_on_any_rank_changes_nothing, 2) {
  Array x(DDP_F32, {0, 2}), running_mean(DDP_F32, {2}, {1, 2}), running_var(DDP_F32, {2}, {3, 4}), saved(DDP_F64, {2}),
      scale(DDP_F64, {2});
  const int64_t count =
      batch_norm::forward(group, norm_options(),
                          {x.tensor, {}, {}, running_mean.tensor, running_var.tensor, x.tensor, saved.tensor, scale.tensor});
  expect(count == 0 && running_mean.get(1) == 2 && running_var.get(0) == 3, "untouched");
  Array dbias(DDP_F32, {2}, {9, 9});
  batch_norm::backward(group, norm_options(),
                       {x.tensor, x.tensor, {}, saved.tensor, scale.tensor, 0, x.tensor, {}, dbias.tensor});
  expect(dbias.get(0) == 0, "the gradient of nothing");
}

ddp_ranks_case_on(kThreePaths, run_on, different_options_are_a_mismatch_and_the_group_stays, 3) {
  ddp_batch_norm_options options = norm_options();
  if (rank == 2) options.momentum = 0.4;
  Array x(DDP_F32, {2, 2}), y(DDP_F32, {2, 2});
  expect_error(DDP_ERROR_MISMATCH,
               [&] {
                 batch_norm::forward(group, options, {x.tensor, {}, {}, {}, {}, y.tensor, {}, {}});
               },
               {"rank 2", "0.4"});
  group.barrier();
}

ddp_ranks_case_on(kThreePaths, run_on, without_training_nothing_is_sent, 2) {
  ddp_batch_norm_options options = norm_options();
  options.training = 0;
  for (int i = 0; i < rank + 1; ++i) {  // another number of calls on each rank
    Array x(DDP_F64, {2, 1}, {1, 5}), y(DDP_F64, {2, 1}), m(DDP_F32, {1}, {2}), v(DDP_F32, {1}, {4}), sm(DDP_F64, {1}),
        si(DDP_F64, {1});
    batch_norm::forward(group, options, {x.tensor, {}, {}, m.tensor, v.tensor, y.tensor, sm.tensor, si.tensor});
    const double invstd = 1 / std::sqrt(4.001);
    expect_near(y.get(1), 3 * invstd, 1e-14, "y");
    expect(m.get(0) == 2 && v.get(0) == 4 && sm.get(0) == 2, "running statistics are used and kept");
    Array dx(DDP_F64, {2, 1}), dweight(DDP_F32, {1}, {10});
    options.accumulate = 1;
    batch_norm::backward(group, options, {y.tensor, x.tensor, {}, sm.tensor, si.tensor, 2, dx.tensor, dweight.tensor, {}});
    expect_near(dx.get(0), -invstd * invstd, 1e-14, "dx is dy * invstd");
    expect_near(dweight.get(0), 10 + 10 / 4.001, 1e-5, "dweight was added");
  }
}

ddp_case_on(kThreePaths, a_second_group_normalises_while_buckets_are_under_way) {
  for (const ddp_progress progress : {DDP_PROGRESS_CALLER, DDP_PROGRESS_THREAD})
    run_pairs_on(path, 3, [&](group::Group& main, group::Group& second, int rank) {
      ddp_model_options options = model_options();
      options.progress = progress;
      PassWorld world(main, Memory::kMixed, options);
      for (int pass = 0; pass < 4; ++pass) {
        world.model->begin_backward(DDP_PASS_REDUCE);
        for (size_t p = kShapes.size(); p-- > 0;) {
          world.fill(rank, pass, p);
          world.model->pass().mark_ready(static_cast<int32_t>(p));
          if (p % 2 == 0) check_case(second, rank, {DDP_F32, {5, 3, 3}, 0.25});
        }
        (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { check_case(main, rank, {DDP_F32, {2}, 0}); });
        world.model->end_backward();
        world.expect_mean(3, pass, "pass " + std::to_string(pass));
      }
    });
}
