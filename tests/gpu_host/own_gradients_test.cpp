// SPDX-License-Identifier: Apache-2.0
// Gradients of the program in memory of ddp_group_alloc on a GPU: buckets that are in one block are reduced there, to the
// same bits as those that are packed, and where ranks have laid them out differently nothing of the kind happens.

#include "model/gradients.hpp"
#include "model/optimizer_slot.hpp"
#include "optim/adam.hpp"
#include "parts/model_pass.hpp"
#include "support/check.hpp"
#include "support/gpu_world.hpp"
#include "support/rule_options.hpp"

const std::vector<int64_t> kCounts = {70'000, 1000, 3000, 24, 0, 8, 512, 40'960};

enum class Lie {
  kApart,     // each in memory of its own, not the group's
  kForwards,  // in one block of the group's, in the order of the parameters
  kPlanned,   // the same in the order of the plan
  kWithGap    // and one element between two of them
};

struct World {
  int32_t ranks = 2;
  int32_t reproducible = 0;
  std::vector<Lie> lies;  // by rank
  bool shard = false;
};

class Trainer {
 public:
  Trainer(group::Group& group, int rank, const World& world, Lie lie) : group_(group), rank_(rank), stream_(rank) {
    ddp_model_options options{.first_bucket_bytes = 1 << 10, .bucket_bytes = 16 << 10};
    model_ = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    const auto grads = lay_out(lie);
    for (size_t p = 0; p < kCounts.size(); ++p) {
      GpuArray& value = lent_.emplace_back(rank, kCounts[p] * 4);
      value.poke(std::vector<float>(static_cast<size_t>(kCounts[p]), 2.0F));
      const Tensor lent = value.tensor(group, DDP_F32);
      Tensor grad = lent;
      grad.data = grads[p];
      model_->add_parameter("p" + std::to_string(p), lent, &grad);
    }
    AdamOptions rule;
    rule.shard = world.shard;
    optimizer_ = std::make_shared<optim::Adam>(model_, rule, rule);
    if (optimizer_->in_passes() != nullptr) model_->optimizer_slot().attach(optimizer_);
    model_->commit(stream_.get());
  }
  ~Trainer() {
    optimizer_.reset();
    model_.reset();
    stream_.synchronize();
    if (block_ != nullptr) group_.memory().free(block_);
  }

  /// A step; gives the gradients between pass and step.
  std::vector<std::vector<float>> train(int step) {
    std::vector<GpuArray> fresh;
    for (size_t p = 0; p < kCounts.size(); ++p) {
      std::vector<float> numbers(static_cast<size_t>(kCounts[p]));
      for (size_t i = 0; i < numbers.size(); ++i)
        numbers[i] =
            static_cast<float>((static_cast<int>(i) * 7 + static_cast<int>(p) * 13 + step * 29 + rank_ * 5) % 31 - 15);
      fresh.emplace_back(rank_, kCounts[p] * 4).poke(numbers);
    }
    group_.barrier();
    if (rank_ == 0) fake_gpu::clear_log();
    group_.barrier();
    model_->begin_backward(DDP_PASS_REDUCE);
    for (int32_t p = model_->table().parameter_count(); p-- > 0;) {
      write_on(stream_.get(), fresh[static_cast<size_t>(p)], model_->table().parameter(p).grad.data);
      model_->pass().mark_ready(p, stream_.get());
    }
    model_->end_backward(stream_.get());
    moves_ = fake_gpu::calls("move", rank_) + fake_gpu::calls("move_quotient", rank_) - model_->table().parameter_count();
    group_.barrier();
    std::vector<std::vector<float>> grads;
    for (const Parameter& parameter : model_->table().parameters())
      grads.push_back(read_on(stream_, rank_, parameter.grad.data, parameter.grad.count));
    optimizer_->step(stream_.get());
    stream_.synchronize();
    return grads;
  }
  [[nodiscard]] std::vector<std::vector<float>> values() const {
    std::vector<std::vector<float>> all;
    for (const Parameter& parameter : model_->table().parameters())
      all.push_back(read_on(stream_, rank_, parameter.value.data, parameter.value.count));
    return all;
  }
  /// Launches of the last pass that move memory.
  [[nodiscard]] int64_t moves() const { return moves_; }
  [[nodiscard]] int64_t buckets() const { return count_in_plan("bucket "); }
  [[nodiscard]] int64_t count_in_plan(const std::string& text) const {
    const std::string plan = model_->pass().describe_plan();
    int64_t found = 0;
    for (size_t at = plan.find(text); at != std::string::npos; at = plan.find(text, at + 1)) ++found;
    return found;
  }
  [[nodiscard]] model::Model& model() { return *model_; }

 private:
  std::vector<std::byte*> lay_out(Lie lie) {
    std::vector<std::byte*> places;
    if (lie == Lie::kApart) {
      for (const int64_t count : kCounts)
        places.push_back(static_cast<std::byte*>(lent_.emplace_back(rank_, count * 4).data()));
      return places;
    }
    const int64_t all = std::accumulate(kCounts.begin(), kCounts.end(), int64_t{0});
    block_ = static_cast<std::byte*>(group_.memory().alloc((all + 1) * 4));
    places.resize(kCounts.size());
    std::byte* next = block_;
    for (size_t k = 0; k < kCounts.size(); ++k) {
      const size_t p = lie == Lie::kPlanned ? kCounts.size() - 1 - k : k;
      places[p] = next;
      next += kCounts[p] * 4 + (lie == Lie::kWithGap && p == 2 ? 4 : 0);
    }
    return places;
  }

  group::Group& group_;
  const int rank_;
  GpuStream stream_;
  std::vector<GpuArray> lent_;
  std::byte* block_ = nullptr;
  std::shared_ptr<model::Model> model_;
  std::shared_ptr<optim::Optimizer> optimizer_;
  int64_t moves_ = 0;
};

/// body(a model with packed gradients, one with the world's options) on each rank, after three steps with the same values.
void compare(const World& world, const std::string& what, const std::function<void(Trainer&, Trainer&)>& body) {
  const FakeGpus gpus;
  ddp_group_options options = world_options();
  options.backend = DDP_BACKEND_NCCL;
  options.reproducible = world.reproducible;
  run_gpu_groups_with(world.ranks, options, [&](group::Group& group, int rank) {
    Trainer packed(group, rank, world, Lie::kApart);
    Trainer tested(group, rank, world, world.lies[static_cast<size_t>(rank) % world.lies.size()]);
    expect_equal(packed.count_in_plan("in place"), int64_t{0}, "buckets in place of memory that is not the group's");
    for (int step = 0; step < 3; ++step) {
      const auto expected = packed.train(step), found = tested.train(step);
      expect(world.shard || found == expected, what + ": gradients of step " + std::to_string(step));
    }
    expect(tested.values() == packed.values(), what + ": values");
    body(packed, tested);
    group.barrier();
  });
  FakeGpus::expect_correct(what);
  FakeGpus::expect_nothing_left();
}

ddp_case(what_lies_in_one_block_is_reduced_there) {
  for (const int32_t ranks : {2, 3})
    for (const Lie lie : {Lie::kForwards, Lie::kPlanned})
      compare({.ranks = ranks, .lies = {lie}}, "in one block", [](Trainer& packed, Trainer& tested) {
        expect_equal(tested.count_in_plan("in place"), tested.buckets(), "buckets in place");
        expect_equal(packed.moves(), 2 * packed.buckets(), "launches that pack and unpack");
        expect_equal(tested.moves(), tested.buckets(), "launches that divide, and no others");
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
              expect(tested.moves() < packed.moves(), "whole pieces of split parameters are not packed");
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
    const Tensor elsewhere = packed.model().table().parameter(1).grad, here = tested.model().table().parameter(1).grad;
    expect_error(DDP_ERROR_INVALID_STATE, [&] { tested.model().gradients().set(1, &elsewhere); }, {"cannot move"});
    expect(tested.model().table().parameter(1).grad.data == here.data, "it has not moved");
    tested.model().gradients().set(1, &here);
    packed.model().gradients().set(1, &elsewhere);
  });
}
