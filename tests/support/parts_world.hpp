// SPDX-License-Identifier: Apache-2.0
// Trainings whose global batch has parts, in every way of making a step, for a comparison of bits between numbers of ranks.
#pragma once

#include "model/uneven.hpp"
#include "optim/ema.hpp"
#include "support/training.hpp"

namespace ddp::test::virtual_ranks {

inline const std::vector<int64_t> kShapes = {7, 5000, 1, 1024, 900};

struct Case {
  const char* name;
  Rule rule = Rule::kAdamW;
  Ways ways{};
  double loss_scale = 1;
  bool scale_adapts = false;  // grows after two steps; a part of the second step is not finite
  bool weighted = false;
};

inline std::vector<Case> all_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, const std::function<void(Case&, Ways&)>& change, Rule rule = Rule::kAdamW) {
    Case& made = cases.emplace_back(Case{name, rule});
    made.ways.shapes = kShapes;
    made.ways.bucket_bytes = 9'000;
    change(made, made.ways);
  };
  const auto adapt = [](Case& c) { c.loss_scale = 64, c.scale_adapts = true; };
  const auto clip = [](Ways& w) { w.max_norm = 3, w.shard = true; };
  const auto use_masters = [](Ways& w) { w.dtype = DDP_BF16, w.master_weights = true; };
  const auto send_as = [](Ways& w, ddp_dtype wire) { w.hook = ddp::parts::Hook::sent_as(wire); };
  const auto weigh = [](Case& c) { c.ways.divisor = DDP_DIVISOR_WEIGHTS, c.weighted = true; };
  add(
      "plain", [](Case&, Ways&) {}, Rule::kMomentum);
  add("memory of the program", [](Case&, Ways& w) { w.owned_grads = false; });
  add("a thread reduces", [](Case&, Ways& w) { w.progress = DDP_PROGRESS_THREAD; });
  add("shard", [](Case&, Ways& w) { w.shard = true; });
  add("in backward", [](Case&, Ways& w) { w.in_backward = true; });
  add("shard, in backward, own values", [](Case&, Ways& w) { w.shard = w.in_backward = w.own_values = true; });
  add("clipping and loss scale", [&](Case& c, Ways& w) { clip(w), c.loss_scale = 8; });
  add("dynamic loss scale", [&](Case& c, Ways&) { adapt(c); });
  add("dynamic loss scale, shard, clipping", [&](Case& c, Ways& w) { clip(w), adapt(c); });
  add("F16 on the wire", [&](Case&, Ways& w) { send_as(w, DDP_F16); });
  add("BF16 on the wire, shard, in backward", [&](Case&, Ways& w) { send_as(w, DDP_BF16), w.shard = w.in_backward = true; });
  add("BF16 with master weights", [&](Case&, Ways& w) { use_masters(w); });
  add("BF16, shard, in backward", [&](Case&, Ways& w) { use_masters(w), w.shard = w.in_backward = true; });
  add("weights", [&](Case& c, Ways&) { weigh(c); });
  add("weights, BF16, F16 on the wire", [&](Case& c, Ways& w) { weigh(c), send_as(w, DDP_F16); });
  return cases;
}

inline double weight_of(int part, int step) { return (part * 5 + step) % 4 == 3 ? 0 : 1.0 + (part * 7 + step) % 5 / 3.0; }

inline ddp_group_options with_parts(ddp_group_options options, int parts) {
  options.virtual_ranks = parts;
  return options;
}

inline VirtualRanks ranks_of(const group::Group& group) {
  return VirtualRanks::of(group.options(), group.rank(), group.size());
}

inline ddp_pass mode_of(const VirtualRanks& ranks, int part) {
  return part + 1 < ranks.first + ranks.count ? DDP_PASS_PART : DDP_PASS_REDUCE;
}

/// One part of a step. The third parameter is not used in odd parts; every third part comes in two passes.
inline void make_part(Training& world, const Case& how, const VirtualRanks& ranks, int part, int step) {
  if (how.weighted) set_weight(*world.model, weight_of(part, step));
  world.fill(part, step);
  if (part % 3 == 2) {
    world.reduce({}, {}, DDP_PASS_ACCUMULATE);
    for (size_t p = 0; p < kShapes.size(); ++p) {  // a micro-batch that adds twice as much again
      std::byte* const grad = world.model->table().parameter(static_cast<int32_t>(p)).grad.data;
      for (int64_t i = 0; i < kShapes[p]; ++i) world.set(grad, i, 3 * Training::gradient(part, step, p, i));
    }
  }
  if (how.scale_adapts && part == 5 && step == 1)
    world.set(world.model->table().parameter(3).grad.data, 70, std::numeric_limits<double>::infinity());
  world.reduce(part % 2 == 1 ? std::set<int32_t>{2} : std::set<int32_t>{}, {}, mode_of(ranks, part));
}

/// The model, its optimizer and an average.
struct PartTraining {
  const Case& how;
  Training world;
  optim::Ema ema;
  const VirtualRanks ranks;

  PartTraining(group::Group& group, const Case& way)
      : how(way), world(group, way.rule, way.ways), ema(world.model, {0.5}), ranks(ranks_of(group)) {
    if (how.loss_scale == 1) return;
    ddp_loss_scale_options scale{.initial = how.loss_scale};
    if (how.scale_adapts) scale = {0, how.loss_scale, 2, 0.5, 1, 1024, 2};
    world.optimizer->set_loss_scale(scale);
  }
  void run(int from, int to) {
    for (int step = from; step < to; ++step) {
      for (int part = ranks.first; part < ranks.first + ranks.count; ++part) make_part(world, how, ranks, part, step);
      world.optimizer->step();
      ema.update();
    }
  }
  /// Of parameters, averages and loss scale.
  [[nodiscard]] std::string bytes() {
    std::string all = world.bytes();
    ema.swap(0);
    all += world.bytes();
    ema.swap(0);
    return all + std::to_string(world.optimizer->loss_scale()) + std::to_string(world.optimizer->skipped_count());
  }
};

}  // namespace ddp::test::virtual_ranks
