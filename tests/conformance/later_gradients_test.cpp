// SPDX-License-Identifier: Apache-2.0
// Parameters whose gradient comes later: the bits of gradients that are there from the start, in every way to make a step;
// and nothing is read or written where there is no memory (support/training.hpp gives gradients pages that end the
// program when they are touched outside of their pass).
#include "conformance/step_bits.hpp"
#include "support/check.hpp"
#include "support/parts_world.hpp"

constexpr int kSteps = 4;
constexpr const char* kNone = "has none yet";

Ways later_ways() {
  Ways ways;
  ways.later_grads = true;
  ways.unused = DDP_UNUSED_ERROR;
  return ways;
}

ddp_bit_rows({.name = "bits are those of gradients that stay",
              .paths = kEveryHostPath,
              .change = [](Ways& ways) { ways = later_ways(); },
              .reference = [](Ways& ways) { ways.later_grads = false; },
              .mask = kShard | kInBackward | kOwnValues,
              .training = {.slow = -1}});

/// On rank 1 gradient p3 does not come. There the mark names it, and the end on all ranks.
ddp_case_on(kEveryHostPath, a_mark_without_it_names_the_parameter) {
  for (const ddp_unused unused : {DDP_UNUSED_ERROR, DDP_UNUSED_ALLOW})
    run_on(path, 3, [unused](group::Group& group, int rank) {
      Ways ways = later_ways();
      ways.unused = unused;
      Training world(group, Rule::kSgd, ways), smooth(group, Rule::kSgd, ways);
      for (int step = 0; step < kSteps; ++step) {
        world.model->begin_backward(DDP_PASS_REDUCE);
        for (size_t p = kFusedShapes.size(); p-- > 0;) {
          const auto index = static_cast<int32_t>(p);
          if (rank != 1 || p != 3) {
            world.give_grad(p);
            world.model->pass().mark_ready(index);
            continue;
          }
          for (const auto& mark :
               std::vector<std::function<void()>>{[&] { world.model->pass().mark_ready(index); },
                                                  [&] { world.model->pass().mark_range_ready(index, 0, 5); }}) {
            expect_error(DDP_ERROR_INVALID_STATE, mark, {"\"p3\"", kNone});
          }
          if (unused == DDP_UNUSED_ALLOW)
            expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->pass().mark_unused(index); }, {kNone});
        }
        expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->end_backward(); },
                     {"rank 1 did not mark \"p3 (which has no gradient yet: ddp_model_set_grad)\""});
        world.take_grads_back();
        world.train(rank, step);
        world.take_grads_back();
        smooth.train(rank, step);
        expect(world.bytes() == smooth.bytes(), "the bits of a run without it");
      }
    });
}

/// The others send and receive meanwhile, and this rank has no gradient at all.
ddp_case_on(kEveryHostPath, an_abandoned_pass_needs_none) {
  for (int way = 0; way < 4; ++way)
    run_on(path, 3, [way](group::Group& group, int rank) {
      Ways ways = later_ways();
      set_way(ways, way);
      Training world(group, Rule::kMomentum, ways), smooth(group, Rule::kMomentum, ways);
      expect_no_trace(world, smooth, [&](int step) {
        if (rank == 1) {
          world.model->begin_backward(DDP_PASS_REDUCE);
          abandon_backward(*world.model, "no memory");
        } else {
          expect_error(DDP_ERROR_INVALID_STATE, [&] { world.pass(rank, step); }, {"no memory"});
        }
        world.take_grads_back();
      });
    });
}

/// Rank 1 has half of the data.
ddp_ranks_case_on(kEveryHostPath, run_on, a_rank_that_has_joined_needs_none, 3) {
  Ways ways = later_ways();
  ways.uneven_inputs = 1;
  Training world(group, Rule::kSgd, ways);
  for (int step = 0; step < (rank == 1 ? kSteps / 2 : kSteps); ++step) {
    world.train(rank, step);
    world.take_grads_back();
  }
  join(*world.model);
  expect_same_everywhere(group, world.bytes(), "the parameters");
}

ddp_ranks_case_on(kEveryHostPath, run_on, accumulated_gradients_stay_where_they_were_given, 2) {
  Ways ways = later_ways(), plain = later_ways();
  plain.later_grads = false;
  Training world(group, Rule::kSgd, ways), other(group, Rule::kSgd, plain);
  for (Training* const each : {&world, &other}) {
    each->fill(rank, 0);
    each->reduce({}, {}, DDP_PASS_ACCUMULATE);
    each->reduce();
    each->optimizer->step();
  }
  expect(world.bytes() == other.bytes(), "the bits");
}

/// libddp takes the gradients of a part and sets them to zero; each part brings its own memory.
ddp_case_on(kEveryHostPath, parts_of_a_batch_bring_theirs) {
  run_at(path, 2, [](const std::string& place, const ddp_group_options& options, int) {
    const auto group = group::Group::create(place.c_str(), virtual_ranks::with_parts(options, 6));
    const VirtualRanks ranks = virtual_ranks::ranks_of(*group);
    Ways plain = later_ways();
    plain.later_grads = false;
    Training world(*group, Rule::kSgd, later_ways()), other(*group, Rule::kSgd, plain);
    for (int step = 0; step < kSteps; ++step) {
      for (int part = ranks.first; part < ranks.first + ranks.count; ++part) {
        world.fill(part, step);
        world.reduce({}, {}, virtual_ranks::mode_of(ranks, part));
        if (part + 1 < ranks.first + ranks.count) world.take_grads_back();
        other.fill(part, step);
        other.reduce({}, {}, virtual_ranks::mode_of(ranks, part));
      }
      world.optimizer->step();
      world.take_grads_back();
      other.optimizer->step();
      expect(world.bytes() == other.bytes(), "the bits");
    }
    group->barrier();
  });
}

/// Refused at once, so that no rank waits for long.
ddp_ranks_case_on(kEveryHostPath, run_on, a_skipped_pass_needs_a_place_for_the_result, 2) {
  Training world(group, Rule::kSgd, later_ways());
  if (rank == 1) {
    expect_error(DDP_ERROR_INVALID_STATE, [&] { skip_backward(*world.model); }, {"\"p0\""});
    for (size_t p = 0; p < kFusedShapes.size(); ++p) world.give_grad(p);
    skip_backward(*world.model);
  } else {
    world.pass(0, 0);
  }
  world.optimizer->step();
  expect_same_everywhere(group, world.bytes(), "the parameters");
}
