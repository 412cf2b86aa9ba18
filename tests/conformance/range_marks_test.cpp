// SPDX-License-Identifier: Apache-2.0
// Gradients that are marked range by range: the bits of whole marks, in any order and from any thread; and the calls that
// are refused or missing.
#include <complex>

#include "conformance/step_bits.hpp"
#include "support/check.hpp"

struct Range {
  int32_t index;
  int64_t first, count;
};

/// All elements of all parameters in ranges of random lengths and order; some parameters as a whole (count 0).
std::vector<Range> random_marks(unsigned seed) {
  std::minstd_rand random(seed + 1);
  random.discard(3);
  std::vector<Range> marks;
  for (size_t p = 0; p < kFusedShapes.size(); ++p) {
    if (random() % 3 == 0) {
      marks.push_back({static_cast<int32_t>(p), 0, 0});
      continue;
    }
    for (int64_t at = 0; at < kFusedShapes[p];) {
      const int64_t count = std::min<int64_t>(kFusedShapes[p] - at, 1 + static_cast<int64_t>(random() % 700));
      marks.push_back({static_cast<int32_t>(p), at, count});
      at += count;
    }
  }
  std::shuffle(marks.begin(), marks.end(), random);
  return marks;
}

void mark(model::Model& model, const Range& each) {
  each.count == 0 ? model.pass().mark_ready(each.index) : model.pass().mark_range_ready(each.index, each.first, each.count);
}

/// By some threads.
void mark_ranges(Training& world, int step, size_t threads) {
  const std::vector<Range> marks = random_marks(static_cast<unsigned>(world.group.rank() * 10 + step));
  std::vector<std::thread> others;
  const auto mark_some = [&](size_t from) {
    for (size_t i = from; i < marks.size(); i += threads) mark(*world.model, marks[i]);
  };
  for (size_t t = 1; t < threads; ++t) others.emplace_back(mark_some, t);
  mark_some(0);
  for (std::thread& each : others) each.join();
}

ddp_bit_rows({.name = "ranges in any order give the bits of whole marks",
              .change = [](Ways& ways) { ways.unused = DDP_UNUSED_ERROR; },
              .training = {.slow = -1, .mark = [](Training& world, int step) { mark_ranges(world, step, 1); }}},
             {.name = "ranges come from several threads",
              .sizes = {2},
              .rules = {Rule::kMomentum},
              .change = [](Ways& ways) { ways.progress = DDP_PROGRESS_THREAD, ways.unused = DDP_UNUSED_ERROR; },
              .reference = [](Ways& ways) { ways.progress = DDP_PROGRESS_CALLER; },
              .mask = 0,
              .training = {.slow = -1, .mark = [](Training& world, int step) { mark_ranges(world, step, 3); }}});

ddp_ranks_case_on(kThreePaths, run_on, what_is_wrong_is_refused_and_marks_nothing, 2) {
  Ways ways;
  ways.unused = DDP_UNUSED_ERROR;
  Training world(group, Rule::kSgd, ways), other(group, Rule::kSgd, ways);
  model::Model& model = *world.model;
  expect_error(DDP_ERROR_INVALID_STATE, [&] { model.pass().mark_range_ready(0, 0, 1); }, {"no backward pass is open"});
  world.fill(rank, 0);
  model.begin_backward(DDP_PASS_REDUCE);
  const int64_t wrong[][2] = {{-1, 1}, {0, 0},         {0, -1},        {0, 8},        {7, 1},
                              {8, 1},  {1, INT64_MAX}, {INT64_MAX, 1}, {INT64_MIN, 1}};
  for (const auto& [first, count] : wrong)
    expect_contains(
        expect_error(DDP_ERROR_INVALID_ARGUMENT, [&, f = first, c = count] { model.pass().mark_range_ready(0, f, c); }),
        "\"p0\" has 7 elements");
  model.pass().mark_range_ready(0, 2, 3);
  for (const auto& [first, count] : {std::pair{2, 3}, {4, 1}, {0, 3}, {4, 3}, {0, 7}})
    expect_contains(
        expect_error(DDP_ERROR_INVALID_STATE, [&, f = first, c = count] { model.pass().mark_range_ready(0, f, c); }),
        "marked already");
  expect_error(DDP_ERROR_INVALID_STATE, [&] { model.pass().mark_ready(0); }, {"marked twice"});
  model.pass().mark_ready(1);
  expect_error(DDP_ERROR_INVALID_STATE, [&] { model.pass().mark_range_ready(1, 0, 1); }, {"as a whole"});
  model.pass().mark_range_ready(0, 0, 2);
  model.pass().mark_range_ready(0, 5, 2);
  expect_error(DDP_ERROR_INVALID_STATE, [&] { model.pass().mark_range_ready(0, 0, 1); }, {"all of its ranges"});
  for (int32_t p = 2; p < model.table().parameter_count(); ++p) model.pass().mark_ready(p);
  model.end_backward();
  world.optimizer->step();
  other.train(rank, 0);
  expect(world.bytes() == other.bytes(), "the pass is as good as any");
}

/// Also where gradients may be unused: a part of one is an error, and parameters are as before.
ddp_case_on(kThreePaths, what_is_missing_is_named) {
  for (const ddp_unused unused : {DDP_UNUSED_ERROR, DDP_UNUSED_ALLOW})
    for (const ddp_pass mode : {DDP_PASS_REDUCE, DDP_PASS_LOCAL})
      run_on(path, 3, [unused, mode](group::Group& group, int rank) {
        Ways ways;
        ways.unused = unused;
        ways.in_backward = true;
        Training world(group, Rule::kMomentum, ways), other(group, Rule::kMomentum, ways);
        model::Model& model = *world.model;
        const std::string before = world.bytes();
        world.fill(rank, 0);
        model.begin_backward(mode);
        for (int32_t p = model.table().parameter_count(); p-- > 0;) {
          if (p != 1) {
            model.pass().mark_ready(p);
            continue;
          }
          model.pass().mark_range_ready(p, 0, 100);
          model.pass().mark_range_ready(p, 200, 4000);
          if (rank != 1) {
            model.pass().mark_range_ready(p, 4200, 800);
            model.pass().mark_range_ready(p, 100, 100);
          }
        }
        if (mode == DDP_PASS_REDUCE || rank == 1) {
          const std::string text = expect_error(DDP_ERROR_INVALID_STATE, [&] { model.end_backward(); },
                                                {"\"p1 (elements 100 to 199 and 1 more range)\""});
          if (mode == DDP_PASS_REDUCE) expect_contains(text, "rank 1 did not mark");
        } else {
          model.end_backward();
        }
        expect(world.bytes() == before, "parameters as before the pass");
        if (mode == DDP_PASS_LOCAL) return;
        world.pass(rank, 1);  // as a whole: the ranges of the failed pass are forgotten
        world.optimizer->step();
        other.train(rank, 1);
        expect(world.bytes() == other.bytes(), "the next pass");
      });
}

/// What one pass accumulates range by range counts as used in the next.
ddp_ranks_case_on(kThreePaths, run_on, ranges_accumulate, 2) {
  Training world(group, Rule::kSgd, Ways{}), other(group, Rule::kSgd, Ways{});
  for (Training* each : {&world, &other}) {
    each->fill(rank, 0);
    each->model->begin_backward(DDP_PASS_ACCUMULATE);
    for (int32_t p = 0; p < each->model->table().parameter_count(); ++p) {
      const int64_t count = each->model->table().parameter(p).grad.count, half = (count + 1) / 2;
      if (each == &other) {
        each->model->pass().mark_ready(p);
        continue;
      }
      each->model->pass().mark_range_ready(p, 0, half);
      if (half < count) each->model->pass().mark_range_ready(p, half, count - half);
    }
    each->model->end_backward();
    each->model->begin_backward(DDP_PASS_REDUCE);
    each->model->end_backward();
    each->optimizer->step();
  }
  expect(world.bytes() == other.bytes() && world.model->pass().results().was_used(3), "the bits");
}

ddp_ranks_case_on(kThreePaths, run_on, complex_gradients_are_counted_in_complex_numbers, 2) {
  ddp_model_options options{.first_bucket_bytes = 1000, .bucket_bytes = 1000};
  model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
  std::vector<std::complex<float>> value(4), grad(4, {static_cast<float>(rank), 2});
  const Tensor values = flat_tensor(value.data(), DDP_C64, 4), grads = flat_tensor(grad.data(), DDP_C64, 4);
  model.add_parameter("z", values, &grads);
  model.commit();
  model.begin_backward(DDP_PASS_REDUCE);
  model.pass().mark_range_ready(0, 3, 1);
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { model.pass().mark_range_ready(0, 4, 1); }, {"has 4 elements"});
  model.pass().mark_range_ready(0, 0, 3);
  model.end_backward();
  for (const auto& each : grad) expect(each == std::complex<float>(0.5F, 2), "the mean");
}
