// SPDX-License-Identifier: Apache-2.0
// Local SGD, on every transport.
#include "conformance/local_world.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, steps_between_averages_are_each_ranks_own, 1, 2, 3, 4) {
  model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), wire_options());
  std::vector<std::vector<float>> values;
  for (const int64_t count : kLocalShapes) values.emplace_back(static_cast<size_t>(count), 1.0F);
  for (size_t p = 0; p < values.size(); ++p)
    model.add_parameter("p" + std::to_string(p), flat_tensor(values[p].data(), DDP_F32, kLocalShapes[p]), nullptr);
  model.commit();
  for (int step = 0; step < 7; ++step) {
    model.begin_backward(DDP_PASS_LOCAL);
    for (size_t p = values.size(); p-- > 0;) {
      auto* grad = reinterpret_cast<float*>(model.table().parameter(static_cast<int32_t>(p)).grad.data);
      for (int64_t i = 0; i < kLocalShapes[p]; ++i)
        grad[i] = local_gradient(rank, step, p, i, values[p][static_cast<size_t>(i)]);
      model.pass().mark_ready(static_cast<int32_t>(p));
    }
    model.end_backward();
    for (size_t p = 0; p < values.size(); ++p) {
      const auto* grad = reinterpret_cast<const float*>(model.table().parameter(static_cast<int32_t>(p)).grad.data);
      for (size_t i = 0; i < values[p].size(); ++i) values[p][i] = values[p][i] - kLocalRate * grad[i];
    }
    if ((step + 1) % 3 == 0) {
      average_parameters(model);
      model.replicas().check();
    }
    const auto wanted = train_naively(group.size(), step + 1, 3)[static_cast<size_t>(rank)];
    for (size_t p = 0; p < values.size(); ++p)
      expect(std::memcmp(values[p].data(), wanted[p].data(), values[p].size() * sizeof(float)) == 0,
             "parameter " + std::to_string(p) + " after step " + std::to_string(step) + " on " +
                 std::to_string(group.size()) + " ranks");
  }
  if (group.size() > 1) expect_error(DDP_ERROR_MISMATCH, [&] { model.replicas().check(); }, {"parameter \"p0\""});
  ddp_model_stats stats{};
  model.passes().meter().fill(stats);
  expect_equal(stats.passes, int64_t{0}, "passes that reduced");
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, what_was_marked_on_this_rank_counts, 2) {
  for (const ddp_unused unused : {DDP_UNUSED_ERROR, DDP_UNUSED_ALLOW}) {
    ddp_model_options options = wire_options();
    options.unused = unused;
    model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    float a[4] = {}, b[4] = {};
    model.add_parameter("a", flat_tensor(a, DDP_F32, 4), nullptr);
    model.add_parameter("b", flat_tensor(b, DDP_F32, 4), nullptr);
    model.commit();
    model.begin_backward(DDP_PASS_LOCAL);
    model.pass().mark_ready(rank);  // another on each rank
    if (unused == DDP_UNUSED_ERROR) {
      expect_error(DDP_ERROR_INVALID_STATE, [&] { model.end_backward(); },
                   {rank == 0 ? "this rank did not mark \"b\"" : "this rank did not mark \"a\""});
    } else {
      model.end_backward();
      expect(model.pass().results().was_used(rank) && !model.pass().results().was_used(1 - rank),
             "used is what this rank used");
    }
    model.begin_backward(DDP_PASS_ACCUMULATE);  // then accumulated, then local: both count
    model.pass().mark_ready(1 - rank);
    model.end_backward();
    model.begin_backward(DDP_PASS_LOCAL);
    model.pass().mark_ready(rank);
    if (unused == DDP_UNUSED_ERROR) model.pass().mark_ready(1 - rank);
    model.end_backward();
    expect(model.pass().results().was_used(0) && model.pass().results().was_used(1), "accumulated before");
    model.begin_backward(DDP_PASS_REDUCE);  // modes may change from pass to pass
    for (const int32_t p : {1, 0}) {
      auto* grad = reinterpret_cast<float*>(model.table().parameter(p).grad.data);
      for (int i = 0; i < 4; ++i) grad[i] = static_cast<float>(2 * rank + i);
      model.pass().mark_ready(p);
    }
    model.end_backward();
    expect(reinterpret_cast<const float*>(model.table().parameter(0).grad.data)[3] == 4.0F, "the mean of 3 and 5");
  }
  group.barrier();
}
