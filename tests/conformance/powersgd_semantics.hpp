// SPDX-License-Identifier: Apache-2.0
// What PowerSGD promises, on every transport (conformance/powersgd_test.cpp). The oracle is the mean by a naive loop over
// all ranks' gradients in F64.
#pragma once

#include <cmath>
#include <cstring>

#include "conformance/wire_semantics.hpp"
#include "core/random.hpp"
#include "extra/powersgd.hpp"
#include "parts/model_pass.hpp"

namespace ddp::test {

inline ddp_powersgd_options powersgd_options(int32_t rank) {
  ddp_powersgd_options options = extra::default_powersgd_options();
  options.rank = rank;
  options.start_pass = 0;
  options.seed = 7;
  return options;
}

struct PowerShape {
  ddp_dtype dtype;
  std::vector<int64_t> shape;
};
/// A matrix, four dimensions, a vector, something too small to gain, and F64.
inline const std::vector<PowerShape> kPowerShapes = {
    {DDP_F32, {60, 50}}, {DDP_F32, {32, 8, 3, 3}}, {DDP_F32, {77}}, {DDP_F32, {3, 4}}, {DDP_F64, {40, 64}}};
inline constexpr size_t kCompressed[] = {0, 1, 4};

using PowerGradient = std::function<double(int rank, size_t parameter, int64_t row, int64_t column)>;

struct PowerWorld {
  std::vector<std::vector<std::byte>> values;
  std::unique_ptr<model::Model> model;

  PowerWorld(group::Group& group, const parts::Hook& hook, ddp_unused unused = DDP_UNUSED_ERROR) {
    ddp_model_options options = wire_options();
    options.unused = unused;
    model = std::make_unique<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    model->set_hook(hook);
    for (size_t p = 0; p < kPowerShapes.size(); ++p) {
      ddp_tensor shape{};
      shape.dtype = kPowerShapes[p].dtype;
      shape.device = DDP_CPU;
      int64_t count = 1;
      for (const int64_t extent : kPowerShapes[p].shape) {
        shape.shape[shape.ndim++] = extent;
        count *= extent;
      }
      values.emplace_back(static_cast<size_t>(count * dtype_size(shape.dtype)));
      shape.data = values.back().data();
      model->add_parameter("p" + std::to_string(p), checked_tensor(&shape, "the test"), nullptr);
    }
    model->commit();
  }
  [[nodiscard]] const Tensor& grad(size_t p) const { return model->table().parameter(static_cast<int32_t>(p)).grad; }
  [[nodiscard]] double get(size_t p, int64_t i) const {
    return grad(p).dtype == DDP_F32 ? static_cast<double>(load<float>(grad(p).data, i)) : load<double>(grad(p).data, i);
  }
  void fill(int rank, const PowerGradient& gradient) const {
    for (size_t p = 0; p < kPowerShapes.size(); ++p) {
      const int64_t columns = grad(p).count / kPowerShapes[p].shape[0];
      for (int64_t i = 0; i < grad(p).count; ++i) {
        const double value = gradient(rank, p, i / columns, i % columns);
        if (grad(p).dtype == DDP_F32)
          store(grad(p).data, i, static_cast<float>(value));
        else
          store(grad(p).data, i, value);
      }
    }
  }
  void run(int rank, const PowerGradient& gradient) const {
    fill(rank, gradient);
    model->begin_backward(DDP_PASS_REDUCE);
    for (int32_t p = model->table().parameter_count(); p-- > 0;) model->pass().mark_ready(p);
    model->end_backward();
  }
  [[nodiscard]] double mean(int size, const PowerGradient& gradient, size_t p, int64_t i) const {
    const int64_t columns = grad(p).count / kPowerShapes[p].shape[0];
    double sum = 0;
    for (int rank = 0; rank < size; ++rank) sum += gradient(rank, p, i / columns, i % columns);
    return sum / size;
  }
  /// The largest distance from the mean, as a part of its largest element.
  [[nodiscard]] double error(int size, const PowerGradient& gradient, size_t p) const {
    double most = 0, largest = 0;
    for (int64_t i = 0; i < grad(p).count; ++i) {
      const double wanted = mean(size, gradient, p, i);
      most = std::max(most, std::fabs(get(p, i) - wanted));
      largest = std::max(largest, std::fabs(wanted));
    }
    return most / largest;
  }
  /// All ranks hold the same bits.
  void expect_equal_bits(group::Group& group) const {
    for (size_t p = 0; p < kPowerShapes.size(); ++p) {
      std::vector<std::byte> all(static_cast<size_t>(grad(p).bytes() * group.size()));
      group.all_gather(flat_tensor(grad(p).data, DDP_U8, grad(p).bytes()),
                       flat_tensor(all.data(), DDP_U8, static_cast<int64_t>(all.size())));
      for (int rank = 1; rank < group.size(); ++rank)
        expect(std::memcmp(all.data(), all.data() + rank * grad(p).bytes(), static_cast<size_t>(grad(p).bytes())) == 0,
               "parameter " + std::to_string(p) + " has rank 0's bits on rank " + std::to_string(rank));
    }
  }
};

inline double wave(int64_t i, int frequency) { return std::sin(0.37 * frequency * static_cast<double>(i) + frequency); }

/// Of rank 2 on every rank, with the same spaces.
inline double low_rank_gradient(int rank, size_t parameter, int64_t row, int64_t column) {
  const int f = static_cast<int>(parameter) + 1;
  return (rank + 1) * wave(row, f) * wave(column, f + 1) + (2 - rank) * 0.5 * wave(row, f + 2) * wave(column, f + 3);
}
/// Of full rank, different on every rank.
inline double full_gradient(int rank, size_t parameter, int64_t row, int64_t column) {
  const auto bits = mix64(static_cast<uint64_t>(row * 1'000'003 + column) ^ static_cast<uint64_t>(parameter) << 50 ^
                          static_cast<uint64_t>(rank) << 58);
  return static_cast<double>(bits >> 40) / 8388608.0 - 1.0;
}

inline void gradients_of_low_rank_are_exact(const RunGroups& run_groups) {
  for (const int size : {1, 2, 3, 4})
    run_groups(size, [&](group::Group& group, int rank) {
      for (const bool remembers : {true, false}) {
        ddp_powersgd_options options = powersgd_options(3);
        options.warm_start = options.error_feedback = remembers ? 1 : 0;
        const PowerWorld world(group, extra::powersgd_hook(options));
        for (int pass = 0; pass < 3; ++pass) {
          world.run(rank, low_rank_gradient);
          for (size_t p = 0; p < kPowerShapes.size(); ++p) {
            const double error = world.error(size, low_rank_gradient, p);
            const double tolerance = p == 4 ? 1e-11 : 2e-5;
            expect(error < tolerance, "parameter " + std::to_string(p) + " is off by " + std::to_string(error) +
                                          " in pass " + std::to_string(pass));
          }
          world.expect_equal_bits(group);
        }
      }
      group.barrier();
    });
}

/// The same gradient in every pass; answers how far the mean of all results is from it.
inline double running_error(group::Group& group, int rank, const ddp_powersgd_options& options, int passes) {
  const PowerWorld world(group, extra::powersgd_hook(options));
  std::vector<std::vector<double>> sums(kPowerShapes.size());
  for (size_t p = 0; p < sums.size(); ++p) sums[p].resize(static_cast<size_t>(world.grad(p).count));
  for (int pass = 0; pass < passes; ++pass) {
    world.run(rank, full_gradient);
    for (size_t p = 0; p < sums.size(); ++p)
      for (size_t i = 0; i < sums[p].size(); ++i) sums[p][i] += world.get(p, static_cast<int64_t>(i));
  }
  world.expect_equal_bits(group);
  double off = 0, all = 0;
  for (const size_t p : kCompressed)
    for (size_t i = 0; i < sums[p].size(); ++i) {
      const double wanted = world.mean(group.size(), full_gradient, p, static_cast<int64_t>(i));
      off += (sums[p][i] / passes - wanted) * (sums[p][i] / passes - wanted);
      all += wanted * wanted;
    }
  return std::sqrt(off / all);
}

inline void error_feedback_makes_the_running_sum_converge(const RunGroups& run_groups) {
  run_groups(3, [&](group::Group& group, int rank) {
    ddp_powersgd_options options = powersgd_options(4);
    const double few = running_error(group, rank, options, 10);
    const double many = running_error(group, rank, options, 100);
    options.error_feedback = 0;
    const double without = running_error(group, rank, options, 100);
    expect(few > 0.2 && many < 0.15 && many < few / 3,
           "after 10 passes " + std::to_string(few) + ", after 100 " + std::to_string(many));
    expect(without > 0.5, "without feedback " + std::to_string(without));
    group.barrier();
  });
}

inline void the_first_passes_are_plain_and_the_rest_sends_less(const RunGroups& run_groups) {
  run_groups(3, [&](group::Group& group, int rank) {
    ddp_powersgd_options options = powersgd_options(1);
    options.start_pass = 2;
    const PowerWorld world(group, extra::powersgd_hook(options));
    int64_t plain = 0, compressed = 0;
    for (int pass = 0; pass < 4; ++pass) {
      world.run(rank, full_gradient);
      ddp_model_stats stats{};
      world.model->passes().meter().fill(stats);
      (pass < 2 ? plain : compressed) = stats.sent_bytes;
      for (const size_t p : kCompressed) {
        const double error = world.error(3, full_gradient, p);
        expect(pass < 2 ? error < 1e-6 : error > 0.05,
               "pass " + std::to_string(pass) + " is off by " + std::to_string(error));
      }
      for (const size_t p : {size_t{2}, size_t{3}})
        expect(world.error(3, full_gradient, p) < 1e-6, "what is not compressed is the mean");
    }
    // Between hosts; in shared memory the ranks read each other's buckets where they are, unless they are small. The vectors
    // are small enough to go whole to every rank: n - 1 times, where the gradients go 2 (n - 1) / n times.
    expect(group.backend() != DDP_BACKEND_GLOO || compressed <= plain / 3,
           "sent " + std::to_string(compressed) + " bytes instead of " + std::to_string(plain));
    group.barrier();
  });
}

inline void what_is_not_finite_is_nan_everywhere_for_one_pass(const RunGroups& run_groups) {
  run_groups(3, [&](group::Group& group, int rank) {
    const PowerWorld world(group, extra::powersgd_hook(powersgd_options(3)));
    world.run(rank, low_rank_gradient);
    for (const double bad : {NAN, INFINITY}) {
      world.run(rank, [&](int of, size_t p, int64_t row, int64_t column) {
        return of == 1 && p == 0 && row == 5 && column == 7 ? bad : low_rank_gradient(of, p, row, column);
      });
      for (int64_t i = 0; i < world.grad(0).count; ++i) expect(std::isnan(world.get(0, i)), "NaN on every rank");
      expect(world.error(3, low_rank_gradient, 1) < 1e-5, "its neighbour is not touched");
    }
    world.run(rank, low_rank_gradient);
    expect(world.error(3, low_rank_gradient, 0) < 1e-4, "the next pass is as if nothing had been");
    world.expect_equal_bits(group);
    group.barrier();
  });
}

inline void unused_and_zero_gradients_do_no_harm(const RunGroups& run_groups) {
  run_groups(3, [&](group::Group& group, int rank) {
    const PowerWorld world(group, extra::powersgd_hook(powersgd_options(2)), DDP_UNUSED_ALLOW);
    for (int pass = 0; pass < 2; ++pass) {
      world.run(rank, [](int, size_t, int64_t, int64_t) { return 0.0; });
      for (const size_t p : kCompressed)
        for (int64_t i = 0; i < world.grad(p).count; ++i) expect(world.get(p, i) == 0, "zero stays zero");
    }
    world.fill(rank, full_gradient);
    world.model->begin_backward(DDP_PASS_REDUCE);
    if (rank == 0) world.model->pass().mark_ready(2);
    world.model->end_backward();
    for (int64_t i = 0; i < world.grad(0).count; ++i)
      expect(world.get(0, i) == static_cast<double>(static_cast<float>(full_gradient(rank, 0, i / 50, i % 50))),
             "unused: untouched");
    world.run(rank, low_rank_gradient);  // unused gradients left nothing in memory, and the zeros ended no vector
    for (size_t p = 0; p < kPowerShapes.size(); ++p) expect(world.error(3, low_rank_gradient, p) < 3e-5, "exact again");
    world.expect_equal_bits(group);
    group.barrier();
  });
}

inline void options_that_differ_are_a_mismatch(const RunGroups& run_groups) {
  run_groups(2, [&](group::Group& group, int rank) {
    const std::string text = expect_error(
        DDP_ERROR_MISMATCH, [&] { const PowerWorld world(group, extra::powersgd_hook(powersgd_options(rank + 1))); });
    expect_contains(text, "powersgd of rank 2");
    group.barrier();
  });
}

inline constexpr Semantics kPowerSemantics[] = {
    {"gradients_of_low_rank_are_exact", &gradients_of_low_rank_are_exact},
    {"error_feedback_makes_the_running_sum_converge", &error_feedback_makes_the_running_sum_converge},
    {"the_first_passes_are_plain_and_the_rest_sends_less", &the_first_passes_are_plain_and_the_rest_sends_less},
    {"what_is_not_finite_is_nan_everywhere_for_one_pass", &what_is_not_finite_is_nan_everywhere_for_one_pass},
    {"unused_and_zero_gradients_do_no_harm", &unused_and_zero_gradients_do_no_harm},
    {"options_that_differ_are_a_mismatch", &options_that_differ_are_a_mismatch},
};

}  // namespace ddp::test
