// SPDX-License-Identifier: Apache-2.0
// A short training in which one rank ends, stays or fails in the k-th of its calls of NCCL, for every k: the others come to
// an end soon, know who it was, and have the parameters of one step, not of two.

#include "gpu_host/swept_training.hpp"
#include "support/check.hpp"

/// Names of NCCL's calls on a device, in order.
std::vector<std::string> nccl_calls(int device) {
  std::vector<std::string> names;
  const std::string mark = "[" + std::to_string(device) + "] nccl.";
  for (const std::string& line : fake_gpu::log())
    if (line.rfind(mark, 0) == 0 && line.find("comm_async_error") == std::string::npos)
      names.push_back(line.substr(mark.size(), line.find(' ', mark.size()) - mark.size()));
  return names;
}

/// One training without a fault; which calls its ranks make.
std::array<std::vector<std::string>, kRanks> run_well(SweptWorld& world) {
  const FakeGpus gpus;
  world.lend();
  fake_gpu::clear_log();
  world.run();
  for (const SweptStory& story : world.stories) expect_equal(story.text, std::string(), "nothing fails");
  FakeGpus::expect_clean();
  return {nccl_calls(0), nccl_calls(1)};
}

std::string beginnings(const Values& values) {
  std::string text;
  for (const std::vector<float>& each : values) text += " " + std::to_string(each.front());
  return text;
}

/// Of one step: the one before the last that returned (whose kernels may have been stopped), that one, or the next.
bool is_of_one_step(const SweptWorld& good, const SweptStory& story) {
  bool is_whole = story.values == good.start;
  for (int step = std::max(1, story.steps - 1); step <= std::min(kSteps, story.steps + 1); ++step)
    is_whole = is_whole || story.values == good.after[static_cast<size_t>(step) - 1];
  return is_whole;
}
void expect_whole(const SweptWorld& good, const SweptStory& story, const std::string& what) {
  expect(is_of_one_step(good, story), what + ": parameters of one step, after " + std::to_string(story.steps) +
                                          "; they begin" + beginnings(story.values));
}

/// Sharded, each rank has written its own slice before the others' are there; within a pass each bucket has an update of its
/// own, and a rank keeps a slice alone. Every element is of one of the steps that are named.
void expect_of_steps(const SweptWorld& good, const SweptStory& story, int first, int last, const std::string& what) {
  for (size_t p = 0; p < kShapes.size(); ++p)
    for (size_t i = 0; i < story.values[p].size(); ++i) {
      bool is_known = first == 0 && story.values[p][i] == good.start[p][i];
      for (int step = std::max(1, first); step <= last; ++step)
        is_known = is_known || story.values[p][i] == good.after[static_cast<size_t>(step) - 1][p][i];
      expect(is_known, what + ": element " + std::to_string(i) + " of parameter " + std::to_string(p) + ", after " +
                           std::to_string(story.steps) + " steps, is " + std::to_string(story.values[p][i]) +
                           (story.is_whole ? "" : "; the model says that they are to be loaded"));
    }
}

void expect_values(const SweptWorld& good, const SweptStory& story, const std::string& what) {
  if (!story.is_committed) return;             // rank 0's values were being copied into the parameters
  if (good.way.shard && good.way.own) return;  // what is gathered in place is undefined when that breaks off
  if (good.way.shard) return expect_of_steps(good, story, 0, kSteps, what);
  if (!good.way.in_backward || is_of_one_step(good, story)) return expect_whole(good, story, what);
  // The pass failed, and the model reports it; or the device was still busy with the last pass that had returned.
  if (story.is_whole) return expect_of_steps(good, story, std::max(0, story.steps - 1), story.steps, what);
  expect_of_steps(good, story, 0, kSteps, what);
}

constexpr std::array<SweptWay, 7> kWays = {{{},
                                            {.shard = true},
                                            {.shard = true, .in_backward = true},
                                            {.reproducible = true},
                                            {.shard = true, .own = true},
                                            {.in_backward = true, .own = true},
                                            {.lent = true}}};

int64_t number_of(const char* name, int64_t usual) {
  const char* const text = std::getenv(name);
  return text == nullptr ? usual : std::max(1, std::atoi(text));
}
/// DDP_TEST_EVERY=1: every call; else every ninth, so that all kinds of calls come.
int64_t stride() { return number_of("DDP_TEST_EVERY", 9); }
/// DDP_TEST_SHARDS=6 and DDP_TEST_SHARD=1 to 6: a part of them.
bool is_mine(int64_t at) {
  const int64_t shards = number_of("DDP_TEST_SHARDS", 1);
  return at % shards == number_of("DDP_TEST_SHARD", 1) - 1;
}

using Sweep = std::function<void(SweptWorld&, const SweptWorld&, int64_t nth, const std::string& what)>;
void sweep(int64_t offset, const Sweep& body) {
  int64_t at = 0;
  std::vector<std::string> wrong;
  for (size_t w = 0; w < kWays.size(); ++w)
    for (int bad = 0; bad < kRanks; ++bad) {
      SweptWorld good;
      good.way = kWays[w];
      std::vector<std::string> calls;
      good.usual_ms = ms_of([&] { calls = run_well(good)[static_cast<size_t>(bad)]; });
      const auto first = 1 + (offset + static_cast<int64_t>(w) + bad) % stride();
      for (int64_t nth = first; nth <= static_cast<int64_t>(calls.size()); nth += stride()) {
        if (!is_mine(at++)) continue;
        const std::string what = kWays[w].text() + ": call " + std::to_string(nth) + " of rank " + std::to_string(bad) +
                                 ", " + calls[static_cast<size_t>(nth) - 1];
        // DDP_TEST_ONLY="lent: call 12 of rank 1": calls whose description has that.
        if (const char* only = std::getenv("DDP_TEST_ONLY"); only != nullptr && what.find(only) == std::string::npos)
          continue;
        if (std::getenv("DDP_TEST_EVERY") != nullptr) print_message("%s\n", what.c_str());
        SweptWorld world;
        world.way = kWays[w];
        world.bad = bad;
        world.after = good.after;
        const int64_t ms = ms_of([&] {
          const std::optional<Error> problem = try_to([&] { body(world, good, nth, what); });
          if (problem) wrong.push_back(problem->text());
        });
        if (std::getenv("DDP_TEST_EVERY") != nullptr)
          print_message("  %d ms, survivors knew after %d\n", static_cast<int>(ms),
                        static_cast<int>(world.stories[static_cast<size_t>(1 - bad)].ms));
      }
    }
  for (const std::string& each : wrong) print_error("%s\n", each.c_str());
  expect(wrong.empty(), std::to_string(wrong.size()) + " calls");
}

/// The other ranks wait for their own GPUs then, where NCCL connects, makes windows or rank 0's values come, and do not know
/// the rank that is late.
bool meets_in_nccl(const std::string& what) {
  return what.find("comm_init") != std::string::npos || what.find("window_register") != std::string::npos ||
         what.find("broadcast") != std::string::npos || what.find("call 2 of rank 1, all_reduce") != std::string::npos ||
         what.find("call 3 of rank 0, all_reduce") != std::string::npos ||
         what.find("reproducible: call 7 of rank 0") != std::string::npos ||  // the end of the group that connects pairs
         what.find("reproducible: call 6 of rank 1") != std::string::npos ||
         what.find("lent: call 4 of") != std::string::npos;
}

/// `status`: of ranks that have a group. Others get no message, and fail when the time is up.
void expect_survivors_well(const SweptWorld& world, const SweptWorld& good, ddp_status status, const std::string& what) {
  expect_no_library_threads(what);
  for (int rank = 0; rank < kRanks; ++rank) {
    const SweptStory& story = world.stories[static_cast<size_t>(rank)];
    if (rank == world.bad) continue;
    expect_values(good, story, what);
    if (story.status == DDP_OK) {
      expect_equal(story.steps, kSteps, what + ": all is done");
      continue;
    }
    if (!story.has_group) status = DDP_ERROR_TIMED_OUT;
    expect_equal(std::string(status_name(story.status)), std::string(status_name(status)), what + ": " + story.text);
    const bool connects = meets_in_nccl(what) || story.text.find("its first collective") != std::string::npos;
    if (status != DDP_ERROR_TIMED_OUT || !connects) expect_contains(story.text, "rank " + std::to_string(world.bad));
    expect(story.ms < 3000, what + ": known after " + std::to_string(story.ms) + " ms");
    // What the first collective of a lent communicator may still use stays: its owner ends it when the group is not made.
    if (!story.has_group && meets_in_nccl(what)) continue;
    expect_equal(fake_gpu::live(rank).total(), int64_t{0}, what + ": left on the device of rank " + std::to_string(rank));
  }
}

bool releases(const std::string& what) {
  for (const char* const name : {"mem_free", "comm_abort", "comm_finalize", "comm_destroy", "team_destroy"})
    if (what.find(name) != std::string::npos) return true;
  return false;
}

ddp_case(a_rank_may_end_in_any_call_of_nccl) {
  sweep(0, [](SweptWorld& world, const SweptWorld& good, int64_t nth, const std::string& what) {
    const FakeGpus gpus;
    world.lend();
    world.is_held = true;
    if (world.way.lent) world.options.rendezvous_timeout_ms = 1000;
    fake_gpu::let_die({world.bad, nth, [&world] { world.tell_of_end(); }});
    world.run();
    FakeGpus::expect_correct(what);
    expect(world.since_ns != 0 || releases(what) || !world.stories[static_cast<size_t>(world.bad)].has_group,
           what + ": it comes to that");
    expect_survivors_well(world, good, DDP_ERROR_PEER_FAILED, what);
  });
}

/// No rank reports it: the others fail when the time is up.
ddp_case(a_rank_may_stay_in_any_call_of_nccl) {
  sweep(1, [](SweptWorld& world, const SweptWorld& good, int64_t nth, const std::string& what) {
    if (nth % (2 * stride()) >= stride()) return;  // it takes its time
    const FakeGpus gpus;
    world.lend();
    world.is_held = true;
    world.options.timeout_ms = world.options.rendezvous_timeout_ms = 400;
    fake_gpu::let_die({world.bad, nth, [&world] { world.since_ns = os::now_ns(); }});
    world.run();
    FakeGpus::expect_correct(what);
    if (world.since_ns == 0) return;  // a slow machine: the time was up before that
    expect_survivors_well(world, good, DDP_ERROR_TIMED_OUT, what);
  });
}

ddp_case(any_call_of_nccl_may_fail) {
  for (const int32_t kind : {DDP_NCCL_REMOTE, DDP_NCCL_FAILED})
    sweep(kind, [kind](SweptWorld& world, const SweptWorld& good, int64_t nth, const std::string& what) {
      const FakeGpus gpus;
      world.lend();
      fake_gpu::inject({"nccl.*", nth, 1, kind, world.bad});
      const int64_t ms = ms_of([&] { world.run(); });
      expect(ms < 5000 + 10 * good.usual_ms, what + ": takes " + std::to_string(ms) + " ms");
      // Of a group with a call that failed the fake carries out the rest, which NCCL would not.
      if (!world.way.reproducible) FakeGpus::expect_correct(what);
      for (const SweptStory& story : world.stories) {
        expect_values(good, story, what);
        expect(story.status == DDP_OK ? story.steps == kSteps : !story.text.empty(), what + ": a status");
      }
      const SweptStory& other = world.stories[static_cast<size_t>(1 - world.bad)];
      const std::string number = std::to_string(world.bad);
      if (other.status != DDP_OK && !meets_in_nccl(what))
        expect(other.text.find("rank " + number) != std::string::npos, what + ": " + other.text);
      expect_no_library_threads(what);
      const bool stays = world.way.lent && meets_in_nccl(what);  // as above
      if (!releases(what) && !stays) expect_equal(fake_gpu::live().total(), int64_t{0}, what + ": what is left");
    });
}
