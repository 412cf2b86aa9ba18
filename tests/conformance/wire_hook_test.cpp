// SPDX-License-Identifier: Apache-2.0
// The hooks fp16 and bf16, on every transport.
#include "conformance/wire_world.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, values_are_rounded_by_the_rule_on_every_way, 1, 2, 3, 4) {
  int pass = 0;
  for (const WirePlace place : kPlaces)
    for (const ddp_dtype wire : kWires)
      for (const ddp_reduce reduce : {DDP_AVERAGE, DDP_SUM}) {
        if (place == WirePlace::kMixed && reduce == DDP_SUM) continue;
        ddp_model_options options = wire_options();
        options.reduce = reduce;
        options.progress = pass % 2 == 0 ? DDP_PROGRESS_CALLER : DDP_PROGRESS_THREAD;
        const WireWorld world(group, place, parts::Hook::sent_as(wire), options);
        for (int i = 0; i < 2; ++i, ++pass) {
          world.run(rank, pass);
          expect_wire_results(world, group.size(), pass, wire, reduce);
        }
      }
  group.barrier();
}

int64_t sent_in_a_pass(group::Group& group, int rank, const parts::Hook& hook) {
  const WireWorld world(group, WirePlace::kPrivate, hook, wire_options());
  ddp_model_stats stats{};
  for (int pass = 0; pass < 3; ++pass) world.run(rank, pass);
  world.model->passes().meter().fill(stats);
  expect(stats.total_sent_bytes == 3 * stats.sent_bytes, "every pass sends as much");
  return stats.sent_bytes;
}

/// F32 and F64 shrink to two bytes; the BF16 parameter stays as it is.
ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, half_as_many_bytes_travel, 2, 3, 4) {
  const int64_t plain = sent_in_a_pass(group, rank, parts::Hook{});
  const int64_t half = sent_in_a_pass(group, rank, parts::Hook::sent_as(DDP_BF16));
  expect_equal(sent_in_a_pass(group, rank, parts::Hook::sent_as(DDP_F16)), half, "bytes as F16");
  int64_t whole = 0, two = 0;
  for (const WireParameter& of : kWireParameters) {
    whole += of.count * dtype_size(of.dtype);
    two += of.count * 2;
  }
  const auto ratio = static_cast<double>(half) / static_cast<double>(plain);
  const auto wanted = static_cast<double>(two) / static_cast<double>(whole);
  if (plain == 0 && half == 0) return group.barrier();  // a rank without a rail between hosts
  // Between processes a bucket that is small enough goes whole to every rank, so the smaller one may take more than its
  // share.
  expect(plain > 0 && std::fabs(ratio - wanted) < 0.025, "rank " + std::to_string(rank) + " of " +
                                                             std::to_string(group.size()) + " sent " + std::to_string(half) +
                                                             " bytes instead of " + std::to_string(plain));
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, hooks_that_differ_are_a_mismatch_at_commit, 2) {
  expect_error(DDP_ERROR_MISMATCH,
               [&] {
                 const WireWorld world(group, WirePlace::kOwned, rank == 0 ? parts::Hook{} : parts::Hook::sent_as(DDP_F16),
                                       wire_options());
               },
               {"hook is none on rank 0, but wire = DDP_F16 on rank 1"});
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, what_nobody_uses_is_untouched_and_what_was_accumulated_counts, 3) {
  for (const WirePlace place : kPlaces) {
    ddp_model_options options = wire_options();
    options.unused = DDP_UNUSED_ALLOW;
    const WireWorld world(group, place, parts::Hook::sent_as(DDP_BF16), options);
    for (size_t p = 0; p < kWireParameters.size(); ++p) world.fill(rank, 0, p);
    world.model->begin_backward(DDP_PASS_ACCUMULATE);
    if (rank == 1) world.model->pass().mark_ready(1);
    world.model->end_backward();
    world.model->begin_backward(DDP_PASS_REDUCE);
    world.model->pass().mark_ready(2);
    if (rank == 0) world.model->pass().mark_ready(0);
    world.model->end_backward();
    expect(world.model->pass().results().was_used(0) && world.model->pass().results().was_used(1) &&
               !world.model->pass().results().was_used(4),
           "who was used");
    for (int64_t i = 0; i < kWireParameters[4].count; ++i) {
      const float wanted = wire_gradient(rank, 0, 4, i);
      const auto got = load<float>(world.grad(4), i);
      expect(std::memcmp(&wanted, &got, 4) == 0, "unused everywhere: not even rounded");
    }
    for (const size_t p : {size_t{0}, size_t{1}})
      for (int64_t i = 0; i < kWireParameters[p].count; ++i) {
        const std::vector<float> of_ranks = {wire_gradient(0, 0, p, i), wire_gradient(1, 0, p, i),
                                             wire_gradient(2, 0, p, i)};
        const auto wanted = wire_result<float>(DDP_BF16, DDP_AVERAGE, of_ranks);
        const auto got = load<float>(world.grad(p), i);
        expect(std::isnan(wanted) ? std::isnan(got) : got == wanted, "used somewhere: what all ranks hold");
      }
  }
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, a_forgotten_gradient_is_named_and_the_next_pass_works, 3) {
  const WireWorld world(group, WirePlace::kMixed, parts::Hook::sent_as(DDP_F16), wire_options());
  world.model->begin_backward(DDP_PASS_REDUCE);
  for (int32_t p = 0; p < world.model->table().parameter_count(); ++p)
    if (rank != 2 || p != 1) world.model->pass().mark_ready(p);
  expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->end_backward(); }, {"rank 2", "\"p1\""});
  world.run(rank, 1);
  expect_wire_results(world, 3, 1, DDP_F16, DDP_AVERAGE);
  group.barrier();
}
