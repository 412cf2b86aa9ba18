// SPDX-License-Identifier: Apache-2.0
// Virtual ranks: a gradient that is missing in one part voids the step on all ranks, and buffers are those of the first
// part; the passes that must come, and the calls that are refused. That a training has the same bits is in
// same_bits_test.cpp.
#include "ddp/virtual_ranks.h"

#include "model/sync_buffers.hpp"
#include "support/check.hpp"
#include "support/parts_world.hpp"

using namespace virtual_ranks;

constexpr int kSteps = 3;

void expect_refusal(ddp_status status, const char* text, const std::function<void()>& body) {
  expect_error(status, body, {text});
}

Case plain_case() { return all_cases().front(); }

/// Runs one step of every rank's parts; `problem(part)` is called before the part and gives what is missing in it.
using Problem = std::function<std::set<int32_t>(int part)>;
void make_step(Training& world, const VirtualRanks& ranks, int step, const Problem& problem) {
  for (int part = ranks.first; part < ranks.first + ranks.count; ++part) {
    world.fill(part, step);
    world.reduce({}, problem(part), mode_of(ranks, part));
  }
}

std::set<int32_t> no_problem(int) { return {}; }

/// The first parts of rank 1 of 3 are number 4 of 8, and those of rank 0 are 0 to 3.
ddp_case_on(kThreePaths, a_part_with_a_gap_voids_the_step_on_all_ranks) {
  run_at(path, 3, [](const std::string& place, const ddp_group_options& options, int) {
    const auto group = group::Group::create(place.c_str(), with_parts(options, 8));
    const VirtualRanks ranks = ranks_of(*group);
    for (const bool in_backward : {false, true}) {
      Case how = plain_case();
      how.ways.unused = DDP_UNUSED_ERROR;
      how.ways.in_backward = in_backward;
      Training world(*group, how.rule, how.ways), smooth(*group, how.rule, how.ways);
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

ddp_case_on(kThreePaths, a_part_that_is_abandoned_does_too) {
  run_at(path, 3, [](const std::string& place, const ddp_group_options& options, int) {
    const auto group = group::Group::create(place.c_str(), with_parts(options, 8));
    const VirtualRanks ranks = ranks_of(*group);
    Training world(*group, Rule::kSgd, plain_case().ways);
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
void parts_may_be_skipped_of(Path path, int parts, std::initializer_list<int> sizes) {
  const auto run = [parts](group::Group& group) {
    Ways ways = plain_case().ways;
    Training world(group, Rule::kSgd, ways);
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
      const auto& last = last_attendance(*world.model, "ddp_model_get_absent");
      last.fill_report(report);
      std::vector<int32_t> absent;
      for (int part = 0; part < parts; ++part)
        if ((part + step) % 3 == 0) absent.push_back(part);
      const auto count = static_cast<int32_t>(absent.size());
      expect(last.absent() == absent && report.absent_count == count && report.contributors == parts - count,
             "the report names parts");
      world.optimizer->step();
    }
    return world.bytes();
  };
  std::string wanted;
  run_groups(parts, [&](group::Group& group, int rank) {
    std::string bytes = run(group);
    if (rank == 0) wanted = std::move(bytes);
  });
  for (const int size : sizes)
    run_at(path, size, [&](const std::string& place, const ddp_group_options& options, int) {
      const auto group = group::Group::create(place.c_str(), with_parts(options, parts));
      expect(run(*group) == wanted, std::to_string(size) + " ranks");
      group->barrier();
    });
}
ddp_case_on(kThreePaths, parts_may_be_skipped) { parts_may_be_skipped_of(path, 8, {1, 3, 5}); }

/// More than the flags of a bucket's header have room for; the oracle is a group of as many ranks.
ddp_case_on(kThreePaths, some_of_seventy_parts_may_be_skipped) { parts_may_be_skipped_of(path, 70, {3}); }

/// Running statistics: each part adds its number to the value before. 2 of 3 ranks have several parts of 8; of 2 ranks each
/// has one.
ddp_case_on(kThreePaths, every_part_begins_with_the_buffers_of_the_step) {
  for (const int size : {1, 2, 3})
    run_at(path, size, [&](const std::string& place, const ddp_group_options& options, int) {
      const auto group = group::Group::create(place.c_str(), with_parts(options, size == 2 ? 2 : 8));
      const VirtualRanks ranks = ranks_of(*group);
      float value = 1, grad = 0, running = 100;
      ddp_model_options made{.first_bucket_bytes = 1'000, .reduce = DDP_AVERAGE};
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

ddp_case_on(kThreePaths, passes_come_in_order) {
  run_at(path, 3, [](const std::string& place, const ddp_group_options& options, int rank) {
    const auto group = group::Group::create(place.c_str(), with_parts(options, 4));
    Training world(*group, Rule::kSgd, plain_case().ways);
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

ddp_case_on(kThreePaths, what_depends_on_the_ranks_is_refused) {
  run_at(path, 2, [](const std::string& place, const ddp_group_options& options, int) {
    expect_refusal(DDP_ERROR_INVALID_ARGUMENT, "of which each needs one",
                   [&] { static_cast<void>(group::Group::create((place + "#few").c_str(), with_parts(options, 1))); });
    const auto group = group::Group::create(place.c_str(), with_parts(options, 4));
    Ways ways = plain_case().ways;
    ways.uneven_inputs = 1;
    expect_refusal(DDP_ERROR_NOT_SUPPORTED, "uneven_inputs", [&] { const Training refused(*group, Rule::kSgd, ways); });
    ways = plain_case().ways;
    ways.hook =
        ddp::parts::Hook{ddp::parts::Hook::Kind::kCallback, "own", cpu::ReduceRule::kAsItIs, [](ddp::parts::HookBucket&) {}};
    expect_refusal(DDP_ERROR_NOT_SUPPORTED, "the hook \"own\"", [&] { const Training refused(*group, Rule::kSgd, ways); });
    group->barrier();
  });
}

std::atomic<int64_t> live_bytes{0};
void* counted_allocate(size_t bytes) noexcept {
  live_bytes += static_cast<int64_t>(bytes);
  return std::calloc(bytes, 1);
}
void counted_release(void* memory, size_t bytes) noexcept {
  live_bytes -= static_cast<int64_t>(bytes);
  std::free(memory);
}
constexpr os::MemoryTable kCounted{&counted_allocate, &counted_release};

/// Of large arrays, for a model that is committed and has made a step.
int64_t bytes_of_a_model(const Ways& ways, int parts) {
  int64_t bytes = 0;
  run_at(Path::kLocal, 1, [&](const std::string& place, const ddp_group_options& options, int) {
    const auto group = group::Group::create(place.c_str(), with_parts(options, parts));
    const int64_t before = live_bytes;
    Training world(*group, Rule::kAdamW, ways);
    make_step(world, ranks_of(*group), 0, no_problem);
    world.optimizer->step();
    bytes = live_bytes - before;
  });
  return bytes;
}

/// From the guide: for p parts ceil(log2 p) arrays as large as the gradients; where these have 16 bits in
/// F32, and one more.
ddp_case(partial_sums_take_what_the_guide_says) {
  os::set_memory_table(&kCounted);
  int64_t elements = 0;
  for (const int64_t count : virtual_ranks::kShapes) elements += count;
  for (const bool is_small : {false, true})
    for (const bool shard : {false, true}) {
      Ways ways = plain_case().ways;
      ways.shard = shard;
      if (is_small) ways.dtype = DDP_BF16;
      const int64_t without = bytes_of_a_model(ways, 1);
      for (const auto& [parts, arrays] :
           {std::pair(2, 1), std::pair(3, 2), std::pair(4, 2), std::pair(5, 3), std::pair(8, 3)}) {
        const int64_t more = bytes_of_a_model(ways, parts) - without;
        const int64_t all = arrays + (is_small ? 1 : 0), borders = 1024;  // of buckets and arrays
        expect(more >= all * elements * 4 && more <= all * (elements * 4 + borders),
               std::to_string(parts) + " parts take " + std::to_string(more) + " bytes more");
      }
    }
  os::set_memory_table(nullptr);
}
