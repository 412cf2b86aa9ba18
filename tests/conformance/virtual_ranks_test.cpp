// Virtual ranks: a training on any number of ranks has the bits of one rank for each part, which a group without virtual
// ranks gives. In every way of making a step, with weights, wire formats and parts in several passes; what is missing in one
// part voids the step everywhere, and buffers are those of the first part.
#include "ddp/virtual_ranks.h"

#include "core/virtual_ranks.hpp"
#include "model/sync_buffers.hpp"
#include "model/uneven.hpp"
#include "optim/ema.hpp"
#include "support/fused_world.hpp"

namespace ddp::test {
namespace {

constexpr int kSteps = 3;
const std::vector<int64_t> kShapes = {7, 5000, 1, 1024, 900};

struct Case {
  const char* name;
  Rule rule = Rule::kAdamW;
  Ways ways{};
  double loss_scale = 1;
  bool weighted = false;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, Rule rule, const std::function<void(Case&)>& change) {
    Case made{name, rule};
    made.ways.shapes = kShapes;
    made.ways.bucket_bytes = 9'000;
    change(made);
    cases.push_back(made);
  };
  add("plain", Rule::kMomentum, [](Case&) {});
  add("memory of the program", Rule::kAdamW, [](Case& c) { c.ways.owned_grads = false; });
  add("a thread reduces", Rule::kAdamW, [](Case& c) { c.ways.progress = DDP_PROGRESS_THREAD; });
  add("shard", Rule::kAdamW, [](Case& c) { c.ways.shard = true; });
  add("in backward", Rule::kAdamW, [](Case& c) { c.ways.in_backward = true; });
  add("shard, in backward, own values", Rule::kAdamW,
      [](Case& c) { c.ways.shard = c.ways.in_backward = c.ways.own_values = true; });
  add("clipping and loss scale", Rule::kAdamW, [](Case& c) {
    c.ways.max_norm = 3;
    c.ways.shard = true;
    c.loss_scale = 8;
  });
  add("F16 on the wire", Rule::kAdamW, [](Case& c) { c.ways.hook = pass::Hook::sent_as(DDP_F16); });
  add("BF16 on the wire, shard, in backward", Rule::kAdamW, [](Case& c) {
    c.ways.hook = pass::Hook::sent_as(DDP_BF16);
    c.ways.shard = c.ways.in_backward = true;
  });
  add("BF16 with master weights", Rule::kAdamW, [](Case& c) {
    c.ways.dtype = DDP_BF16;
    c.ways.master_weights = true;
  });
  add("BF16, shard, in backward", Rule::kAdamW, [](Case& c) {
    c.ways.dtype = DDP_BF16;
    c.ways.master_weights = c.ways.shard = c.ways.in_backward = true;
  });
  add("weights", Rule::kAdamW, [](Case& c) {
    c.ways.divisor = DDP_DIVISOR_WEIGHTS;
    c.weighted = true;
  });
  add("weights, BF16, F16 on the wire", Rule::kAdamW, [](Case& c) {
    c.ways.divisor = DDP_DIVISOR_WEIGHTS;
    c.ways.hook = pass::Hook::sent_as(DDP_F16);
    c.weighted = true;
  });
  return cases;
}

double weight_of(int part, int step) { return (part * 5 + step) % 4 == 3 ? 0 : 1.0 + (part * 7 + step) % 5 / 3.0; }

ddp_group_options with_parts(ddp_group_options options, int parts) {
  options.virtual_ranks = parts;
  return options;
}

VirtualRanks ranks_of(const group::Group& group) { return VirtualRanks::of(group.options(), group.rank(), group.size()); }

ddp_pass mode_of(const VirtualRanks& ranks, int part) {
  return part + 1 < ranks.first + ranks.count ? DDP_PASS_PART : DDP_PASS_REDUCE;
}

/// One part of a step. The third parameter is not used in odd parts; every third part comes in two passes.
void make_part(FusedWorld& world, const Case& how, const VirtualRanks& ranks, int part, int step) {
  if (how.weighted) set_weight(*world.model, weight_of(part, step));
  world.fill(part, step);
  if (part % 3 == 2) {
    world.reduce({}, {}, DDP_PASS_ACCUMULATE);
    for (size_t p = 0; p < kShapes.size(); ++p) {  // a micro-batch that adds twice as much again
      std::byte* const grad = world.model->table().parameter(static_cast<int32_t>(p)).grad.data;
      for (int64_t i = 0; i < kShapes[p]; ++i) world.set(grad, i, 3 * FusedWorld::gradient(part, step, p, i));
    }
  }
  world.reduce(part % 2 == 1 ? std::set<int32_t>{2} : std::set<int32_t>{}, {}, mode_of(ranks, part));
}

std::string train(group::Group& group, const Case& how) {
  FusedWorld world(group, how.rule, how.ways);
  if (how.loss_scale != 1) {
    ddp_loss_scale_options scale{};
    scale.initial = how.loss_scale;
    world.optimizer->set_loss_scale(scale);
  }
  optim::Ema ema(world.model, {0.5});
  const VirtualRanks ranks = ranks_of(group);
  for (int step = 0; step < kSteps; ++step) {
    for (int part = ranks.first; part < ranks.first + ranks.count; ++part) make_part(world, how, ranks, part, step);
    world.optimizer->step();
    ema.update();
  }
  std::string all = world.bytes();
  ema.swap(0);
  all += world.bytes();
  ema.swap(0);
  expect_same_everywhere(group, all, how.name);
  return all;
}

/// By case, of a group in which every rank has one part and no option is set: ranks are threads.
std::vector<std::string> reference(int parts) {
  std::vector<std::string> wanted(all_cases().size());
  run_groups(parts, [&](group::Group& group, int rank) {
    size_t at = 0;
    for (const Case& how : all_cases()) {
      std::string bytes = train(group, how);
      if (rank == 0) wanted[at] = std::move(bytes);
      ++at;
    }
  });
  return wanted;
}

void expect_the_bits(Path path, int parts, const std::vector<int>& sizes) {
  const std::vector<std::string> wanted = reference(parts);
  for (const int size : sizes)
    run_at(path, size, [&](const std::string& place, const ddp_group_options& options, int) {
      const auto group = group::Group::create(place.c_str(), with_parts(options, parts));
      size_t at = 0;
      for (const Case& how : all_cases())
        expect(train(*group, how) == wanted[at++],
               std::string(how.name) + ": " + std::to_string(size) + " ranks, " + std::to_string(parts) + " parts");
      group->barrier();
    });
}

void eight_parts_have_the_same_bits(Path path) {
  expect_the_bits(path, 8, path == Path::kLocal ? std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8} : std::vector<int>{3, 5});
}

void twelve_parts_have_the_same_bits(Path path) {
  expect_the_bits(path, 12, path == Path::kLocal ? std::vector<int>{1, 2, 3, 6, 12} : std::vector<int>{6});
}

void expect_refusal(ddp_status status, const char* text, const std::function<void()>& body) {
  expect_contains(expect_error(status, body), text);
}

Case plain_case() { return all_cases().front(); }

/// Runs one step of every rank's parts; `problem(part)` is called before the part and gives what is missing in it.
using Problem = std::function<std::set<int32_t>(int part)>;
void make_step(FusedWorld& world, const VirtualRanks& ranks, int step, const Problem& problem) {
  for (int part = ranks.first; part < ranks.first + ranks.count; ++part) {
    world.fill(part, step);
    world.reduce({}, problem(part), mode_of(ranks, part));
  }
}

std::set<int32_t> no_problem(int) { return {}; }

/// The first parts of rank 1 of 3 are number 4 of 8, and those of rank 0 are 0 to 3.
void a_part_with_a_gap_voids_the_step_on_all_ranks(Path path) {
  run_at(path, 3, [](const std::string& place, const ddp_group_options& options, int) {
    const auto group = group::Group::create(place.c_str(), with_parts(options, 8));
    const VirtualRanks ranks = ranks_of(*group);
    for (const bool in_backward : {false, true}) {
      Case how = plain_case();
      how.ways.unused = DDP_UNUSED_ERROR;
      how.ways.in_backward = in_backward;
      FusedWorld world(*group, how.rule, how.ways), smooth(*group, how.rule, how.ways);
      for (int step = 0; step < kSteps; ++step) {
        const auto gap = [&](int part) { return part == 1 && step > 0 ? std::set<int32_t>{3} : std::set<int32_t>{}; };
        if (step > 0)
          expect_refusal(DDP_ERROR_INVALID_STATE, "rank 0 (virtual rank 1) did not mark \"p3\"",
                         [&] { make_step(world, ranks, step, gap); });
        make_step(world, ranks, step, no_problem);
        world.optimizer->step();
        make_step(smooth, ranks, step, no_problem);
        smooth.optimizer->step();
      }
      expect(world.bytes() == smooth.bytes(), "the bits of a run without it");
    }
    group->barrier();
  });
}

void a_part_that_is_abandoned_does_too(Path path) {
  run_at(path, 3, [](const std::string& place, const ddp_group_options& options, int) {
    const auto group = group::Group::create(place.c_str(), with_parts(options, 8));
    const VirtualRanks ranks = ranks_of(*group);
    FusedWorld world(*group, Rule::kSgd, plain_case().ways);
    const auto step = [&] {
      for (int part = ranks.first; part < ranks.first + ranks.count; ++part) {
        world.fill(part, 0);
        if (part == 2) {
          world.model->begin_backward(mode_of(ranks, part));
          abandon_backward(*world.model, "no memory left", nullptr);
        } else {
          world.reduce({}, {}, mode_of(ranks, part));
        }
      }
    };
    expect_refusal(DDP_ERROR_INVALID_STATE, "virtual rank 2) abandoned the pass: no memory left", step);
    make_step(world, ranks, 0, no_problem);
    world.optimizer->step();
    group->barrier();
  });
}

/// A part without data is passed over wherever it is: the mean divides by all parts.
void parts_may_be_skipped(Path path) {
  const auto run = [](group::Group& group) {
    Ways ways = plain_case().ways;
    FusedWorld world(group, Rule::kSgd, ways);
    const VirtualRanks ranks = ranks_of(group);
    for (int step = 0; step < kSteps; ++step) {
      for (int part = ranks.first; part < ranks.first + ranks.count; ++part) {
        if ((part + step) % 3 == 0) {
          skip_backward(*world.model, nullptr);
          continue;
        }
        world.fill(part, step);
        world.reduce({}, {}, mode_of(ranks, part));
      }
      ddp_pass_report report{};
      fill_report(*world.model, report);
      int64_t absent = 0, here = 0;
      for (int part = 0; part < 8; ++part)
        (part + step) % 3 == 0 ? static_cast<void>(absent |= 1 << part) : static_cast<void>(++here);
      expect(report.absent == absent && report.contributors == here, "the report names parts");
      world.optimizer->step();
    }
    return world.bytes();
  };
  std::string wanted;
  run_groups(8, [&](group::Group& group, int rank) {
    std::string bytes = run(group);
    if (rank == 0) wanted = std::move(bytes);
  });
  for (const int size : {1, 3, 5})
    run_at(path, size, [&](const std::string& place, const ddp_group_options& options, int) {
      const auto group = group::Group::create(place.c_str(), with_parts(options, 8));
      expect(run(*group) == wanted, std::to_string(size) + " ranks");
      group->barrier();
    });
}

/// Running statistics: each part adds its number to what it found. 2 of 3 ranks have several parts of 8; of 2 ranks each has
/// one.
void every_part_begins_with_the_buffers_of_the_step(Path path) {
  for (const int size : {1, 2, 3})
    run_at(path, size, [&](const std::string& place, const ddp_group_options& options, int) {
      const auto group = group::Group::create(place.c_str(), with_parts(options, size == 2 ? 2 : 8));
      const VirtualRanks ranks = ranks_of(*group);
      float value = 1, grad = 0, running = 100;
      ddp_model_options made{};
      made.first_bucket_bytes = 1'000;
      made.reduce = DDP_AVERAGE;
      model::Model model(group, made);
      const Tensor gradient = flat_tensor(&grad, DDP_F32, 1);
      model.add_parameter("w", flat_tensor(&value, DDP_F32, 1), &gradient);
      model.add_buffer("running", flat_tensor(&running, DDP_F32, 1));
      model.commit();
      const auto step = [&](bool skip_mark) {
        for (int part = ranks.first; part < ranks.first + ranks.count; ++part) {
          running += static_cast<float>(part + 1);  // forward
          model.begin_backward(mode_of(ranks, part));
          if (!skip_mark || part != 0) model.pass().mark_ready(0);
          model.end_backward();
        }
      };
      step(false);
      expect(running == 101.0F + static_cast<float>(ranks.first), "of the first part of this rank");
      sync_buffers(model, 0, nullptr);
      expect(running == 101, "of part 0");
      expect_refusal(DDP_ERROR_INVALID_STATE, "did not mark \"w\"", [&] { step(true); });
      expect(running == 101, "a void step leaves none behind");
      sync_buffers(model, 0, nullptr);
      step(false);
      sync_buffers(model, 0, nullptr);
      expect(running == 102, "of part 0 again");
      if (ranks.count > 1) {
        model.begin_backward(DDP_PASS_PART);
        model.pass().mark_ready(0);
        model.end_backward();
        expect_refusal(DDP_ERROR_INVALID_STATE, "the step has begun", [&] { sync_buffers(model, 0, nullptr); });
      }
      group->barrier();
    });
}

void passes_come_in_order(Path path) {
  run_at(path, 3, [](const std::string& place, const ddp_group_options& options, int rank) {
    const auto group = group::Group::create(place.c_str(), with_parts(options, 4));
    FusedWorld world(*group, Rule::kSgd, plain_case().ways);
    const VirtualRanks ranks = ranks_of(*group);
    expect(ranks.total == 4 && ranks.count == (rank == 2 ? 2 : 1) && ranks.first == rank, "who has which");
    if (ranks.count > 1)
      expect_refusal(DDP_ERROR_INVALID_STATE, "has the virtual ranks 2 to 3, and 2 is next",
                     [&] { world.model->begin_backward(DDP_PASS_REDUCE); });
    else
      expect_refusal(DDP_ERROR_INVALID_STATE, "is the last of this rank's",
                     [&] { world.model->begin_backward(DDP_PASS_PART); });
    expect_refusal(DDP_ERROR_NOT_SUPPORTED, "DDP_PASS_LOCAL", [&] { world.model->begin_backward(DDP_PASS_LOCAL); });
    make_step(world, ranks, 0, no_problem);
    world.optimizer->step();
    if (ranks.count > 1) {
      world.reduce({}, {}, DDP_PASS_PART);
      expect_refusal(DDP_ERROR_INVALID_STATE, "not reduced", [&] { world.optimizer->step(); });
    }
    group->barrier();
  });
}

void what_depends_on_the_ranks_is_refused(Path path) {
  run_at(path, 2, [](const std::string& place, const ddp_group_options& options, int) {
    expect_refusal(DDP_ERROR_INVALID_ARGUMENT, "of which each needs one",
                   [&] { static_cast<void>(group::Group::create((place + "#few").c_str(), with_parts(options, 1))); });
    const auto group = group::Group::create(place.c_str(), with_parts(options, 4));
    Ways ways = plain_case().ways;
    ways.uneven_inputs = 1;
    expect_refusal(DDP_ERROR_NOT_SUPPORTED, "uneven_inputs", [&] { const FusedWorld refused(*group, Rule::kSgd, ways); });
    ways = plain_case().ways;
    ways.hook = pass::Hook{pass::Hook::Kind::kCallback, "own", cpu::ReduceRule::kAsItIs, [](pass::HookBucket&) {}};
    expect_refusal(DDP_ERROR_NOT_SUPPORTED, "the hook \"own\"", [&] { const FusedWorld refused(*group, Rule::kSgd, ways); });
    group->barrier();
  });
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {
      ddp_paths_test(eight_parts_have_the_same_bits),
      ddp_paths_test(twelve_parts_have_the_same_bits),
      {"eight parts have the same bits on several hosts", guarded<&on_path<&eight_parts_have_the_same_bits, Path::kHosts>>,
       nullptr, nullptr, nullptr},
      ddp_paths_test(a_part_with_a_gap_voids_the_step_on_all_ranks),
      ddp_paths_test(a_part_that_is_abandoned_does_too),
      ddp_paths_test(parts_may_be_skipped),
      ddp_paths_test(every_part_begins_with_the_buffers_of_the_step),
      ddp_paths_test(passes_come_in_order),
      ddp_paths_test(what_depends_on_the_ranks_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
