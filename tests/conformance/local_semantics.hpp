// SPDX-License-Identifier: Apache-2.0
// What local SGD promises, as tests that run on any kind of ranks. The oracle trains all ranks one after the other in a
// naive loop.
#pragma once

#include <cstring>

#include "conformance/wire_semantics.hpp"
#include "model/average.hpp"
#include "model/replicas.hpp"
#include "parts/model_pass.hpp"

namespace ddp::test {

inline const std::vector<int64_t> kLocalShapes = {3, 20'000, 1, 512, 7};
inline constexpr float kLocalRate = 0.125F;

inline float local_gradient(int rank, int step, size_t parameter, int64_t i, float value) {
  return value * 0.25F +
         static_cast<float>((rank * 31 + step * 7 + static_cast<int>(parameter) + static_cast<int>(i)) % 13) - 6.0F;
}

/// All ranks' parameters after `steps` steps, averaged after every `period` of them.
inline std::vector<std::vector<std::vector<float>>> train_naively(int size, int steps, int period) {
  std::vector<std::vector<std::vector<float>>> ranks(static_cast<size_t>(size));
  for (auto& parameters : ranks)
    for (const int64_t count : kLocalShapes) parameters.emplace_back(static_cast<size_t>(count), 1.0F);
  for (int step = 0; step < steps; ++step) {
    for (int rank = 0; rank < size; ++rank)
      for (size_t p = 0; p < kLocalShapes.size(); ++p)
        for (int64_t i = 0; i < kLocalShapes[p]; ++i) {
          float& value = ranks[static_cast<size_t>(rank)][p][static_cast<size_t>(i)];
          value = value - kLocalRate * local_gradient(rank, step, p, i, value);
        }
    if ((step + 1) % period != 0) continue;
    for (size_t p = 0; p < kLocalShapes.size(); ++p)
      for (size_t i = 0; i < static_cast<size_t>(kLocalShapes[p]); ++i) {
        std::vector<float> of_ranks;
        for (const auto& parameters : ranks) of_ranks.push_back(parameters[p][i]);
        const float sum = oracle_sum(of_ranks);
        for (auto& parameters : ranks) parameters[p][i] = sum / static_cast<float>(size);
      }
  }
  return ranks;
}

inline void steps_between_averages_are_each_ranks_own(const RunGroups& run_groups) {
  for (const int size : {1, 2, 3, 4})
    run_groups(size, [&](group::Group& group, int rank) {
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
        const auto wanted = train_naively(size, step + 1, 3)[static_cast<size_t>(rank)];
        for (size_t p = 0; p < values.size(); ++p)
          expect(std::memcmp(values[p].data(), wanted[p].data(), values[p].size() * sizeof(float)) == 0,
                 "parameter " + std::to_string(p) + " after step " + std::to_string(step) + " on " + std::to_string(size) +
                     " ranks");
      }
      if (size > 1) expect_contains(expect_error(DDP_ERROR_MISMATCH, [&] { model.replicas().check(); }), "parameter \"p0\"");
      ddp_model_stats stats{};
      model.passes().meter().fill(stats);
      expect_equal(stats.passes, int64_t{0}, "passes that reduced");
      group.barrier();
    });
}

inline void what_was_marked_on_this_rank_counts(const RunGroups& run_groups) {
  run_groups(2, [&](group::Group& group, int rank) {
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
        const std::string text = expect_error(DDP_ERROR_INVALID_STATE, [&] { model.end_backward(); });
        expect_contains(text, rank == 0 ? "this rank did not mark \"b\"" : "this rank did not mark \"a\"");
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
  });
}

inline constexpr Semantics kLocalSemantics[] = {
    {"steps_between_averages_are_each_ranks_own", &steps_between_averages_are_each_ranks_own},
    {"what_was_marked_on_this_rank_counts", &what_was_marked_on_this_rank_counts},
};

}  // namespace ddp::test
