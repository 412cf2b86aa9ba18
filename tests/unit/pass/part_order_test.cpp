// SPDX-License-Identifier: Apache-2.0
// The order in which a pass calls its parts, for each kind of pass. Two parts write down what they are asked; the other
// ranks are a script.

#include "parts/model_pass.hpp"
#include "pass/pass.hpp"
#include "support/check.hpp"
#include "support/recording_part.hpp"

using pass::Role;

constexpr int64_t kElements = 4;

/// A model of two parameters, of which each is a bucket, and two parts.
struct World {
  World() {
    for (int32_t index = 0; index < 2; ++index) {
      const Tensor grad = flat_tensor(grads[index], DDP_F32, kElements);
      table.add_parameter("w" + std::to_string(index), flat_tensor(values[index], DDP_F32, kElements), &grad);
      PlannedBucket bucket;
      bucket.dtype = DDP_F32;
      bucket.count = 16;
      bucket.pieces.push_back(PlannedPiece{index, 0, kElements, 0});
      plan.push_back(bucket);
    }
    options.progress = DDP_PROGRESS_CALLER;
    made.emplace(pass::Pass::Of{ranks, table, options, plan, 1, {DDP_AVERAGE, 2}, {&a, &b}});
  }
  [[nodiscard]] pass::Pass& pass() { return *made; }
  /// Since it was asked last.
  [[nodiscard]] Calls take() { return std::exchange(calls, {}); }

  ScriptedRanks ranks;
  float values[2][kElements] = {};
  float grads[2][kElements] = {};
  Parameters table;
  ddp_model_options options{};
  Plan plan;
  Calls calls;
  RecordingPart a{"a", calls};
  RecordingPart b{"b", calls};
  std::optional<pass::Pass> made;
};

/// Each call of both parts, a before b.
Calls both(const Calls& names) {
  Calls calls;
  for (const std::string& name : names)
    for (const char* const part : {"a ", "b "}) calls.push_back(part + name);
  return calls;
}

void expect_calls(World& world, const Calls& wanted, const std::string& what) {
  const Calls got = world.take();
  for (size_t at = 0; at < std::max(got.size(), wanted.size()); ++at)
    expect_equal(at < got.size() ? got[at] : "nothing", at < wanted.size() ? wanted[at] : "nothing",
                 what + ", call " + std::to_string(at));
}

Calls operator+(Calls first, const Calls& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

const Calls kBegin = both({"require", "begin", "choose 0", "choose 1", "opened"});
const Calls kBuckets = both({"fill 0", "started 0", "fill 1", "started 1"});

ddp_case(a_commit_asks_each_part_for_each_bucket) {
  World world;
  expect_calls(world, both({"describe 0", "prepare 0", "describe 1", "prepare 1"}), "while the model is committed");
}

ddp_case(a_pass_that_reduces) {
  World world;
  static_cast<void>(world.take());
  world.a.answers.sliced = true;
  int64_t ended = 0;
  world.a.on_conclude = [&] { ended = world.pass().results().final_passes(); };
  world.pass().begin(DDP_PASS_REDUCE);
  expect_calls(world, kBegin, "begin");
  expect_equal(world.ranks.open, 1, "open passes");
  std::thread marking([&] { world.pass().mark_ready(1); });
  marking.join();
  expect_calls(world, {}, "a mark of the second bucket");
  std::thread completing([&] { world.pass().mark_ready(0); });
  const std::thread::id marker = completing.get_id();
  completing.join();
  expect_calls(world, kBuckets, "the mark that completes both");
  expect(world.a.started_on == marker, "a bucket starts on the thread that marks");
  world.pass().end();
  expect_calls(world, both({"is_void", "left 0", "left 1", "order", "conclude", "report", "closed good"}), "the end");
  expect_equal(ended, int64_t{1}, "passes that had ended well in conclude");
  expect(world.pass().results().is_sliced(0) && world.pass().results().is_sliced(1), "what a part leaves holds");
  expect_equal(world.ranks.open, 0, "open passes after the end");
}

ddp_case(a_part_that_traces) {
  World world;
  static_cast<void>(world.take());
  world.b.answers.traces = true;
  world.pass().begin(DDP_PASS_REDUCE);
  static_cast<void>(world.take());
  world.pass().mark_ready(1);
  world.pass().mark_ready(0);
  expect_calls(world,
               Calls{"b marked 1", "b marked 0", "a fill 0", "b fill 0", "b starting 0"} + both({"started 0", "fill 1"}) +
                   Calls{"b starting 1"} + both({"started 1"}),
               "marks");
  world.pass().end();
  static_cast<void>(world.take());
  world.b.answers.traces = false;
  world.pass().begin(DDP_PASS_ACCUMULATE);
  static_cast<void>(world.take());
  world.pass().mark_ready(0);
  expect_calls(world, {}, "a mark of a pass that is not traced");
}

ddp_case(passes_that_do_not_reduce) {
  World world;
  for (const ddp_pass mode : {DDP_PASS_LOCAL, DDP_PASS_ACCUMULATE, DDP_PASS_PART}) {
    static_cast<void>(world.take());
    world.pass().begin(mode);
    world.pass().mark_ready(0);
    world.pass().mark_ready(1);
    world.pass().end();
    expect_calls(world,
                 both({"require", "begin", "opened"}) +
                     both(mode == DDP_PASS_PART ? Calls{"end_part, 0 missing", "closed good"} : Calls{"closed good"}),
                 "mode " + std::to_string(mode));
  }
  world.pass().begin(DDP_PASS_PART);
  static_cast<void>(world.take());
  world.pass().mark_ready(0);
  world.pass().end();
  expect_calls(world, both({"end_part, 1 missing", "closed good"}), "a part in which a gradient is missing");
  world.pass().begin(DDP_PASS_LOCAL);
  static_cast<void>(world.take());
  static_cast<void>(expect_error(DDP_ERROR_INVALID_STATE, [&] { world.pass().end(); }));
  expect_calls(world, both({"closed void"}), "a LOCAL pass in which gradients are missing");
}

ddp_case(a_void_pass) {
  World world;
  world.pass().begin(DDP_PASS_REDUCE);
  world.pass().mark_ready(0);
  static_cast<void>(world.take());
  static_cast<void>(expect_error(DDP_ERROR_INVALID_STATE, [&] { world.pass().end(); }));
  const Calls ends = both({"is_void", "order", "conclude void", "report", "add_missing", "closed void"});
  expect_calls(world, both({"fill 1 incomplete", "started 1"}) + ends, "a gradient is missing");

  world.pass().begin(DDP_PASS_REDUCE);
  static_cast<void>(world.take());
  expect(world.pass().abandon("no batch"), "the pass was abandoned");
  expect_calls(world, both({"fill 0 incomplete", "started 0", "fill 1 incomplete", "started 1"}) + ends, "abandoned");

  world.pass().begin(DDP_PASS_REDUCE, Role::kSkipping);
  static_cast<void>(world.take());
  expect_error(DDP_ERROR_INVALID_STATE, [&] { world.pass().end(); }, {"no rank contributed"});
  expect_calls(world,
               both({"fill 0 nobody", "started 0", "fill 1 nobody", "started 1", "is_void", "order", "conclude void",
                     "report", "closed void"}),
               "nobody contributes");
}

ddp_case(a_part_that_votes_void_reports_first) {
  World world;
  world.a.answers.votes_void = true;
  world.a.answers.reports = true;
  world.pass().begin(DDP_PASS_REDUCE);
  static_cast<void>(world.take());
  expect_error(DDP_ERROR_CALLBACK, [&] { world.pass().end(); }, {"reported by a"});
  expect_calls(
      world,
      both({"fill 0 incomplete", "started 0", "fill 1 incomplete", "started 1", "is_void", "order", "conclude void"}) +
          Calls{"a report"} + both({"closed void"}),
      "the first report is the only one");
  expect(world.pass().results().gradients() == pass::Results::Gradients::kVoid, "the gradients are void");
}

ddp_case(a_step_that_fails_and_one_that_tears) {
  World world;
  world.b.answers.reports = true;
  world.b.answers.whole = false;
  world.pass().begin(DDP_PASS_REDUCE);
  world.pass().mark_ready(0);
  world.pass().mark_ready(1);
  static_cast<void>(world.take());
  expect_error(DDP_ERROR_CALLBACK, [&] { world.pass().end(); }, {"reported by b"});
  expect_calls(world, both({"is_void", "left 0", "left 1", "order", "conclude", "report", "closed step failed"}),
               "the step failed");
  expect(world.pass().results().is_torn(), "what conclude says is kept");
  expect(world.pass().results().gradients() == pass::Results::Gradients::kFinal, "the gradients are good");
}

ddp_case(a_pass_that_breaks) {
  World world;
  world.ranks.failure = Error(DDP_ERROR_PEER_FAILED, "rank 1 is lost");
  world.pass().begin(DDP_PASS_REDUCE);
  world.pass().mark_ready(0);
  world.pass().mark_ready(1);
  static_cast<void>(world.take());
  expect_error(DDP_ERROR_PEER_FAILED, [&] { world.pass().end(); }, {"rank 1 is lost"});
  expect_calls(world, both({"broken", "closed broken"}), "the group broke");
  expect_equal(world.ranks.open, 0, "open passes");
}

ddp_case(a_rank_that_only_answers) {
  World world;
  static_cast<void>(world.take());
  world.ranks.other_trains = true;
  for (const bool steps : {true, false}) {
    world.b.answers.others_step = steps;
    world.pass().begin(DDP_PASS_REDUCE, Role::kJoined);
    expect_calls(world, kBegin, "begin");
    world.pass().end();
    expect_calls(world,
                 both({"fill 0 nobody", "started 0", "fill 1 nobody", "started 1", "is_void", "left 0", "left 1", "order",
                       "conclude", "answer", "report", steps ? "closed good" : "closed step failed"}),
                 "answered");
  }
}

ddp_case(a_begin_that_fails_opens_nothing) {
  World world;
  static_cast<void>(world.take());
  world.b.answers.refuses = true;
  static_cast<void>(expect_error(DDP_ERROR_INVALID_STATE, [&] { world.pass().begin(DDP_PASS_REDUCE); }));
  expect_calls(world, both({"require"}), "a part refuses the pass");
  world.b.answers = PartAnswers{};
  world.b.answers.fails_begin = true;
  static_cast<void>(expect_error(DDP_ERROR_OUT_OF_MEMORY, [&] { world.pass().begin(DDP_PASS_REDUCE); }));
  expect_calls(world, both({"require", "begin"}), "a part lacks memory");
  expect(!world.pass().is_open(), "no pass is open");
  expect_equal(world.ranks.open, 0, "open passes in the group");
}

ddp_case(what_comes_between_passes) {
  World world;
  static_cast<void>(world.take());
  world.pass().await_values();
  expect_calls(world, both({"await_values"}), "values are read");
  world.pass().changed(pass::Change::kLoad);
  expect_calls(world, both({"changed"}), "values are loaded");
  expect(world.pass().set_address(0, reinterpret_cast<std::byte*>(world.values)), "a gradient moves");
  expect_calls(world, both({"set_address"}), "a gradient moves");
  world.pass().begin(DDP_PASS_REDUCE);
  world.pass().mark_ready(0);
  static_cast<void>(world.take());
  world.pass().leave_open();
  expect_calls(world, both({"left_open"}), "the model is destroyed in a pass");
}
