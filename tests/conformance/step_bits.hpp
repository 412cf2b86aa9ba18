// SPDX-License-Identifier: Apache-2.0
// Trainings that have the same bits: rows of options, each compared in every way of making steps with an ordinary training;
// checkpoints that are one file, on any rank and in any way; failed passes that leave nothing behind.
#pragma once

#include "checkpoint/state.hpp"
#include "model/late_values.hpp"
#include "model/uneven.hpp"
#include "optim/ema.hpp"
#include "support/training.hpp"

namespace ddp::test {

inline const Paths kThreeAndGpus = {Path::kLocal, Path::kShm, Path::kGloo, Path::kGpu};
enum WayBits { kShard = 1, kInBackward = 2, kOwnedGrads = 4, kOwnValues = 8 };

inline void set_way(StepWays& ways, int way) {
  ways.shard = (way & kShard) != 0;
  ways.in_backward = (way & kInBackward) != 0;
}

inline Ways way_of(int way) {
  Ways ways;
  set_way(ways, way);
  return ways;
}

using Change = std::function<void(Ways&)>;
using Look = std::function<void(const Training&)>;

/// The training, and the results that are compared.
struct BitTraining {
  int32_t slow = 4, frozen = -1;      // parameters with options of their own; -1: none
  std::set<int32_t> unused = {1, 7};  // in step 2, on all ranks
  double loss_scale = 1;
  bool has_states = false;                          // the bits of state, norm and counts are compared too
  bool has_average = false;                         // and those of an average
  bool skips = false;                               // rank 0 skips the pass of step 2
  std::function<void(Training&, int step)> mark{};  // how all but the ordinary training mark; none: one by one
  bool reads = false;  // values are read between steps, each when it has come; in step 1 only the next pass waits
  Look look = [](const Training&) {};
};

/// Every way in `mask` is compared with the reference on every path, number of ranks and rule.
struct BitRow {
  const char* name;
  Paths paths = kThreePaths;
  std::vector<int> sizes = {3};
  std::vector<Rule> rules = {Rule::kAdamW};
  Change change = [](Ways&) {};     // of all trainings
  Change reference = [](Ways&) {};  // and of the ordinary one
  int mask = kShard | kInBackward;
  BitTraining training{};
  bool skips_ordinary = false;  // on hosts the way without a bit is the reference
};

inline std::string values_as_they_come(Training& world) {
  std::string all;
  for (size_t p = 0; p < world.size(); ++p) {
    model::wait_value(*world.model, static_cast<int32_t>(p));
    expect(model::value_is_ready(*world.model, static_cast<int32_t>(p)), "it has come");
    all += world.text_of(world.value(p));
  }
  return all;
}

/// With SKIP, step 1 has a gradient that is not finite.
inline std::string train_for_bits(group::Group& group, Rule rule, const Ways& ways, const BitTraining& how) {
  constexpr int kSteps = 4;
  Training world(group, rule, ways);
  how.look(world);
  if (how.slow >= 0) world.optimizer->set_parameter_options(how.slow, 0.2, 0.5);
  if (how.frozen >= 0) world.optimizer->set_parameter_options(how.frozen, 0, 0);
  if (how.loss_scale != 1) world.set_loss_scale(how.loss_scale);
  std::optional<optim::Ema> average;
  if (how.has_average) average.emplace(world.model, std::vector<double>{0.75});
  const bool skips = ways.nonfinite == DDP_NONFINITE_SKIP;
  std::string all;
  for (int step = 0; step < kSteps; ++step) {
    world.optimizer->set_rate(0.05 / (1 + step));
    world.fill(group.rank(), step);
    if (skips && step == 1 && group.rank() == 0) world.set_grad(3, 0, std::numeric_limits<double>::infinity());
    if (how.skips && step == 2 && group.rank() == 0) {
      skip_backward(*world.model, world.stream());
    } else {
      world.model->begin_backward(DDP_PASS_REDUCE);
      if (how.mark)
        how.mark(world, step);
      else
        world.mark(step == 2 && ways.unused == DDP_UNUSED_ALLOW ? how.unused : std::set<int32_t>{});
      world.model->end_backward(world.stream());
    }
    world.step();
    if (average) average->update(world.stream());
    if (how.reads && step % 2 == 0) all += values_as_they_come(world);
    if (how.reads && step == 3) all += std::to_string(world.model->replicas().hash());
    if (!ways.later_grads) continue;
    world.take_grads_back();
    world.model->gradients().zero();  // there is no gradient, so nothing is written
  }
  model::wait_values(*world.model);
  expect_equal(world.optimizer->step_count(), int64_t{skips ? kSteps - 1 : kSteps}, "steps");
  expect_equal(world.optimizer->skipped_count(), int64_t{skips ? 1 : 0}, "skipped");
  if (ways.whole_tensors) {
    expect(world.own.whole, "slices are whole parameters");
    const int64_t largest = *std::max_element(ways.shapes.begin(), ways.shapes.end());
    if (!ways.shard) expect_equal(world.own.largest.load(), largest, "the largest slice");
  }
  all += world.bytes();
  if (average) {
    average->swap(0);
    all += world.bytes();
    average->swap(0);
  }
  expect_same_everywhere(group, all, "the model");
  if (!how.has_states) return all;
  all += world.state() + std::to_string(world.optimizer->grad_norm());
  for (const auto& [key, value] : world.optimizer->state_fields()) all += key + "=" + value + " ";
  return all;
}

inline void expect_bits(Path path, const BitRow& row) {
  for (const int size : row.sizes)
    run_on(path, size, [&](group::Group& group, int) {
      for (const Rule rule : row.rules) {
        Ways base;
        row.change(base);
        Ways ordinary = base;
        if (row.mask != 0) set_way(ordinary, 0);
        row.reference(ordinary);
        BitTraining plain = row.training;
        plain.mark = nullptr;
        const std::string wanted = train_for_bits(group, rule, ordinary, plain);
        for (int way = row.skips_ordinary && path != Path::kGpu ? 1 : 0; way <= row.mask; ++way) {
          if ((way & row.mask) != way) continue;
          Ways ways = base;
          if (row.mask != 0) set_way(ways, way);
          if ((row.mask & kOwnedGrads) != 0) ways.owned_grads = (way & kOwnedGrads) != 0;
          if ((row.mask & kOwnValues) != 0) ways.own_values = (way & kOwnValues) != 0;
          expect(train_for_bits(group, rule, ways, row.training) == wanted,
                 std::string(row.name) + ": the bits of rule " + std::to_string(static_cast<int>(rule)) + ", way " +
                     std::to_string(way) + ", size " + std::to_string(size));
        }
      }
    });
}

/// A case for each row and path.
inline bool list_bit_rows(const char* file, const std::vector<BitRow>& rows) {
  for (const BitRow& row : rows) list_on_paths(file, row.paths, row.name, [row](Path path) { expect_bits(path, row); });
  return true;
}

inline std::string saved_bytes(const checkpoint::Parts& parts) {
  std::string file;
  const auto push = [&](const void* data, int64_t bytes) {
    return file.append(static_cast<const char*>(data), static_cast<size_t>(bytes)), 0;
  };
  checkpoint::save_stream("save", parts, {1, 2}, push, std::nullopt);
  return file;
}
inline void load_bytes(const checkpoint::Parts& parts, const std::string& file, checkpoint::LoadMode mode = {}) {
  size_t at = 0;
  const auto pull = [&](void* data, int64_t capacity) {
    const size_t bytes = std::min(static_cast<size_t>(capacity), file.size() - at);
    std::memcpy(data, file.data() + at, bytes);
    at += bytes;
    return static_cast<int64_t>(bytes);
  };
  static_cast<void>(checkpoint::load_stream("load", parts, pull, std::nullopt, mode));
}

/// A training of AdamW on some ranks.
struct FileWay {
  int size;
  Ways ways;
};

/// A save in each of these ways gives the same file, and each of `loaded` goes on from it with the bits of the training
/// that was not interrupted. Gradients are those of rank 0, so that the mean is the same on any number of ranks. Returns the
/// file.
inline std::string expect_one_file(Path path, const std::vector<FileWay>& saved, const std::vector<FileWay>& loaded) {
  const Folder folder;
  const std::string result = folder.path() + "/result", file = folder.path() + "/model";
  const auto go_on = [&](Training& world, int rank) {
    for (int step = 3; step < 5; ++step) world.train(0, step);
    expect_same_everywhere(world.group, world.bytes(), "the model");
    if (rank == 0) std::ofstream(result, std::ios::binary) << world.bytes();
  };
  std::string wanted_file, wanted;
  for (const FileWay& way : saved) {
    run_on(path, way.size, [&](group::Group& group, int rank) {
      Training world(group, Rule::kAdamW, way.ways);
      for (int step = 0; step < 3; ++step) world.train(0, step);
      checkpoint::save_file("save", {*world.model, world.optimizer.get()}, {3, 7}, file, std::nullopt);
      go_on(world, rank);
    });
    if (&way == &saved.front()) wanted_file = read_file(file), wanted = read_file(result);
    expect(wanted_file.size() > 100'000 && read_file(file) == wanted_file, "the same file, whoever wrote it");
    expect(!wanted.empty() && read_file(result) == wanted, "the same bits without a file");
  }
  for (const FileWay& way : loaded) {
    run_on(path, way.size, [&](group::Group& group, int rank) {
      Training world(group, Rule::kAdamW, way.ways);
      const checkpoint::Counters counters =
          checkpoint::load_file("load", {*world.model, world.optimizer.get()}, file, std::nullopt);
      expect(counters.epoch == 3 && counters.step == 7, "counters");
      expect_equal(world.optimizer->step_count(), int64_t{3}, "steps");
      go_on(world, rank);
    });
    expect(read_file(result) == wanted, "the same bits after loading");
  }
  return wanted_file;
}

/// Rank 1 does not mark the first parameter, which is in the last bucket, when the others may have been updated.
inline void expect_void_pass(Training& world, int step) {
  const int rank = world.group.rank();
  world.fill(rank, step + 10);
  expect_error(DDP_ERROR_INVALID_STATE, [&] { world.reduce({}, rank == 1 ? std::set<int32_t>{0} : std::set<int32_t>{}); },
               {"rank 1 did not mark \"p0\""});
}

/// Both make the same steps. Before each odd one `fail(step)` makes a pass of `world` fail, which changes nothing.
template <class Fail>
void expect_no_trace(Training& world, Training& other, const Fail& fail) {
  const int rank = world.group.rank();
  for (int step = 0; step < 5; ++step) {
    if (step % 2 == 1) {
      const std::string before = world.bytes();
      fail(step);
      expect(world.bytes() == before, "the parameters are as before the pass");
    }
    for (Training* const each : {&world, &other}) {
      each->train(rank, step);
      model::wait_values(*each->model);
    }
    expect(world.bytes() == other.bytes(), "and so is the optimizer's state, step " + std::to_string(step));
  }
}

/// On each rank, with processes alone, because threads do not die alone: `body` kills rank 1, and the error that it gives on
/// the other ranks names it.
inline void expect_death_of_rank_1(Path path, int size,
                                   const std::function<std::string(group::Group&, int rank, const Folder&)>& body) {
  if (!row_of(path).has_processes) return;
  const Folder folder;
  ddp_group_options options = world_options();
  options.backend = row_of(path).asked;
  Procs procs(size, [&](int rank, Reporter&) {
    if (path == Path::kHosts) setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
    const auto group = join_process_group(folder, rank, size, options);
    const std::string text = body(*group, rank, folder);
    expect_contains(text, "rank 1");
  });
  std::vector<int> left(static_cast<size_t>(size));
  std::iota(left.begin(), left.end(), 0);
  left.erase(left.begin() + 1);
  expect_success_of(procs, left);
}

}  // namespace ddp::test

/// The rows of a file.
#define ddp_bit_rows(...) [[maybe_unused]] const bool bit_rows_are_listed = ddp::test::list_bit_rows(__FILE__, {__VA_ARGS__})
