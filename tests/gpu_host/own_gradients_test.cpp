// SPDX-License-Identifier: Apache-2.0
// Gradients of the program in memory of ddp_group_alloc on a GPU: buckets that are in one block are reduced there, to the
// same bits as those that are packed, and where ranks have laid them out differently nothing of the kind happens.

#include "support/check.hpp"
#include "support/training.hpp"

const std::vector<int64_t> kCounts = {70'000, 1000, 3000, 24, 0, 8, 512, 40'960};

enum class Lie {
  kApart,     // each in memory of its own, not the group's
  kForwards,  // in one block of the group's, in the order of the parameters
  kPlanned,   // the same in the order of the plan
  kWithGap    // and one element between two of them
};

std::vector<int64_t> places(Lie lie) {
  std::vector<int64_t> at(lie == Lie::kApart ? 0 : kCounts.size());
  int64_t next = 0;
  for (size_t k = 0; k < at.size(); ++k) {
    const size_t p = lie == Lie::kPlanned ? kCounts.size() - 1 - k : k;
    at[p] = next;
    next += kCounts[p] + (lie == Lie::kWithGap && p == 2 ? 1 : 0);
  }
  return at;
}

struct World {
  int32_t ranks = 2;
  int32_t reproducible = 0;
  std::vector<Lie> lies;  // by rank
  bool shard = false;
};

struct Trainer : Training {
  int64_t moves = 0;  // launches of the last pass that move memory

  Trainer(group::Group& of, const World& world, Lie lie) : Training(of, Rule::kAdamW, ways_of(world, lie)) {}
  static Ways ways_of(const World& world, Lie lie) {
    Ways ways;
    ways.shapes = kCounts;
    ways.first_bucket_bytes = 1 << 10;
    ways.bucket_bytes = 16 << 10;
    ways.owned_grads = false;
    ways.grads_at = places(lie);
    ways.enqueued = true;
    ways.unused = DDP_UNUSED_ERROR;
    ways.shard = world.shard;
    return ways;
  }
  /// A step; gives the gradients between pass and step.
  std::string train(int step) {
    fill(group.rank(), step);
    begin_log(group);
    reduce();
    moves = fake_gpu::calls("move", device()) + fake_gpu::calls("move_quotient", device()) - static_cast<int64_t>(size());
    group.barrier();
    std::string grads;
    for (size_t k = 0; k < size(); ++k) grads += text_of(grad(k));
    Training::step();
    synchronize();
    return grads;
  }
  [[nodiscard]] int64_t buckets() const { return count_in_plan("bucket "); }
  [[nodiscard]] int64_t count_in_plan(const std::string& text) const {
    const std::string plan = model->pass().describe_plan();
    int64_t found = 0;
    for (size_t at = plan.find(text); at != std::string::npos; at = plan.find(text, at + 1)) ++found;
    return found;
  }
};

/// body(a model with packed gradients, one with the world's options) on each rank, after three steps with the same values.
void compare(const World& world, const std::string& what, const std::function<void(Trainer&, Trainer&)>& body) {
  ddp_group_options options = world_options();
  options.backend = DDP_BACKEND_NCCL;
  options.reproducible = world.reproducible;
  run_on_gpus(world.ranks, options, [&](group::Group& group, int rank) {
    Trainer packed(group, world, Lie::kApart);
    Trainer tested(group, world, world.lies[static_cast<size_t>(rank) % world.lies.size()]);
    expect_equal(packed.count_in_plan("in place"), int64_t{0}, "buckets in place of memory that is not the group's");
    for (int step = 0; step < 3; ++step) {
      const std::string expected = packed.train(step), found = tested.train(step);
      expect(world.shard || found == expected, what + ": gradients of step " + std::to_string(step));
    }
    expect(tested.bytes() == packed.bytes(), what + ": values");
    body(packed, tested);
    group.barrier();
  });
}

ddp_case(what_lies_in_one_block_is_reduced_there) {
  for (const int32_t ranks : {2, 3})
    for (const Lie lie : {Lie::kForwards, Lie::kPlanned})
      compare({.ranks = ranks, .lies = {lie}}, "in one block", [](Trainer& packed, Trainer& tested) {
        expect_equal(tested.count_in_plan("in place"), tested.buckets(), "buckets in place");
        expect_equal(packed.moves, 2 * packed.buckets(), "launches that pack and unpack");
        expect_equal(tested.moves, tested.buckets(), "launches that divide, and no others");
      });
}

ddp_case(a_gap_is_the_programs) {
  compare({.lies = {Lie::kWithGap}}, "with a gap", [](Trainer&, Trainer& tested) {
    const int64_t buckets = tested.buckets(), in_place = tested.count_in_plan("in place");
    expect(in_place > 0 && in_place < buckets, "the bucket with the gap is packed, those without are not");
  });
}

ddp_case(ranks_that_differ_pack) {
  compare({.ranks = 3, .lies = {Lie::kForwards, Lie::kPlanned, Lie::kForwards}}, "other orders",
          [](Trainer&, Trainer& tested) {
            // Alone in its bucket a gradient has the same place in any order.
            expect(tested.count_in_plan("in place") > 0, "some are alone");
            expect(tested.count_in_plan("copied") > 0, "some have company");
          });
  compare({.lies = {Lie::kApart, Lie::kForwards}}, "one rank has other memory",
          [](Trainer&, Trainer& tested) { expect(tested.count_in_plan("copied") > 0, "packed"); });
}

ddp_case(slices_are_taken_where_there_is_no_padding) {
  for (const int32_t reproducible : {0, 1}) {
    compare({.reproducible = reproducible, .lies = {Lie::kForwards}, .shard = true}, "sharded",
            [](Trainer& packed, Trainer& tested) {
              expect(tested.moves < packed.moves, "whole pieces of split parameters are not packed");
            });
    compare({.reproducible = reproducible, .lies = {Lie::kForwards, Lie::kApart}, .shard = true}, "sharded, on one rank",
            [](Trainer&, Trainer&) {});
  }
  compare({.reproducible = 1, .lies = {Lie::kForwards}}, "reproducible", [](Trainer&, Trainer& tested) {
    const int64_t buckets = tested.buckets(), in_place = tested.count_in_plan("in place");
    expect(in_place > 0 && in_place < buckets, "what needs padding is packed, the rest is not");
  });
}

ddp_case(what_is_reduced_in_place_cannot_move) {
  compare({.lies = {Lie::kForwards}}, "set_grad", [](Trainer& packed, Trainer& tested) {
    const Tensor elsewhere = packed.model->table().parameter(1).grad, here = tested.model->table().parameter(1).grad;
    expect_error(DDP_ERROR_INVALID_STATE, [&] { tested.model->gradients().set(1, &elsewhere); }, {"cannot move"});
    expect(tested.model->table().parameter(1).grad.data == here.data, "it has not moved");
    tested.model->gradients().set(1, &here);
    packed.model->gradients().set(1, &elsewhere);
  });
}
