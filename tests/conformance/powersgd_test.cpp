// SPDX-License-Identifier: Apache-2.0
// PowerSGD, on every transport.
#include "conformance/powersgd_world.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, gradients_of_low_rank_are_exact, 1, 2, 3, 4) {
  for (const bool remembers : {true, false}) {
    ddp_powersgd_options options = powersgd_options(3);
    options.warm_start = options.error_feedback = remembers ? 1 : 0;
    const PowerWorld world(group, extra::powersgd_hook(options));
    for (int pass = 0; pass < 3; ++pass) {
      world.run(rank, low_rank_gradient);
      for (size_t p = 0; p < kPowerShapes.size(); ++p) {
        const double error = world.error(group.size(), low_rank_gradient, p);
        const double tolerance = p == 4 ? 1e-11 : 2e-5;
        expect(error < tolerance, "parameter " + std::to_string(p) + " is off by " + std::to_string(error) + " in pass " +
                                      std::to_string(pass));
      }
      world.expect_equal_bits(group);
    }
  }
  group.barrier();
}

/// The same gradient in every pass; answers how far the mean of all results is from it.
double running_error(group::Group& group, int rank, const ddp_powersgd_options& options, int passes) {
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

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, error_feedback_makes_the_running_sum_converge, 3) {
  ddp_powersgd_options options = powersgd_options(4);
  const double few = running_error(group, rank, options, 10);
  const double many = running_error(group, rank, options, 100);
  options.error_feedback = 0;
  const double without = running_error(group, rank, options, 100);
  expect(few > 0.2 && many < 0.15 && many < few / 3,
         "after 10 passes " + std::to_string(few) + ", after 100 " + std::to_string(many));
  expect(without > 0.5, "without feedback " + std::to_string(without));
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, the_first_passes_are_plain_and_the_rest_sends_less, 3) {
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
      expect(pass < 2 ? error < 1e-6 : error > 0.05, "pass " + std::to_string(pass) + " is off by " + std::to_string(error));
    }
    for (const size_t p : {size_t{2}, size_t{3}})
      expect(world.error(3, full_gradient, p) < 1e-6, "what is not compressed is the mean");
  }
  // Between hosts; in shared memory the ranks read each other's buckets where they are, unless they are small. The vectors
  // are small enough to go whole to every rank: n - 1 times, where the gradients go 2 (n - 1) / n times.
  expect(group.backend() != DDP_BACKEND_GLOO || compressed <= plain / 3,
         "sent " + std::to_string(compressed) + " bytes instead of " + std::to_string(plain));
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, what_is_not_finite_is_nan_everywhere_for_one_pass, 3) {
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
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, unused_and_zero_gradients_do_no_harm, 3) {
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
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, options_that_differ_are_a_mismatch, 2) {
  expect_error(DDP_ERROR_MISMATCH, [&] { const PowerWorld world(group, extra::powersgd_hook(powersgd_options(rank + 1))); },
               {"powersgd of rank 2"});
  group.barrier();
}

/// A hook fails on one rank in the last bucket, when the others have been reduced. What follows has the bits of a training
/// without that pass, whatever the retry does with a bucket that the void pass had reduced.
ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, a_void_pass_leaves_no_memory, 2, 4) {
  enum Retry { kAlike, kUnused, kPlain };
  for (const Retry retry : {kAlike, kUnused, kPlain}) {
    bool fails = false, plain = false;
    parts::Hook hook = extra::powersgd_hook(powersgd_options(1));
    hook.body = [&](parts::HookBucket& bucket) {
      if (plain) return bucket.all_reduce(bucket.contents(), bucket.reduce());
      extra::reduce_by_powersgd(bucket, powersgd_options(1));
      if (fails && bucket.is_last() && rank == 1) throw Error(DDP_ERROR_INVALID_ARGUMENT, "the test's");
    };
    PowerWorld spoiled(group, hook, DDP_UNUSED_ALLOW), whole(group, hook, DDP_UNUSED_ALLOW);
    const auto train = [&](const PowerWorld& world, int pass, bool one_alone) {
      world.fill(rank, [&](int at, size_t p, int64_t row, int64_t column) {
        return full_gradient(at + group.size() * pass, p, row, column);
      });
      world.model->begin_backward(DDP_PASS_REDUCE);
      for (int32_t p = world.model->table().parameter_count(); p-- > 0;)
        if (!one_alone || p == 4) world.model->pass().mark_ready(p);
      world.model->end_backward();
    };
    for (int pass = 0; pass < 4; ++pass) {
      if (pass == 1) {
        fails = true;
        expect_error(DDP_ERROR_CALLBACK, [&] { train(spoiled, 9, false); }, {"the test's"});
        fails = false;
      }
      for (const PowerWorld* const world : {&spoiled, &whole}) {
        plain = pass == 1 && retry == kPlain;
        train(*world, pass, pass == 1 && retry == kUnused);
        plain = false;
      }
      for (size_t p = 0; p < kPowerShapes.size(); ++p)
        expect(std::memcmp(spoiled.grad(p).data, whole.grad(p).data, static_cast<size_t>(whole.grad(p).bytes())) == 0,
               "retry " + std::to_string(retry) + ", pass " + std::to_string(pass) + ", parameter " + std::to_string(p));
    }
  }
}
