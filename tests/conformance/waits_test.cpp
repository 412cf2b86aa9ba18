// SPDX-License-Identifier: Apache-2.0
// A rank that is late is named by all others with about the time that it slept, in calls and in passes, on every transport,
// also where its host's other ranks stand between; without one no rank is; and time that computation hides is not counted.
#include "exchange/waits.hpp"

#include "conformance/pass_world.hpp"
#include "group/channels.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"

constexpr int kRanks = 5;  // of several hosts the last one has one rank, so that one rank of each other crosses
constexpr int kSteps = 3;
constexpr int64_t kSleepNs = 60'000'000;
constexpr int kAttempts = 4;  // on a busy machine any rank may be late

void rest() { std::this_thread::sleep_for(std::chrono::nanoseconds(kSleepNs)); }

std::vector<int64_t> waits_of(group::Group& group) {
  std::vector<int64_t> waited;
  for (int32_t rank = 0; rank < group.size(); ++rank) waited.push_back(group.channels().waits().waited_ns(rank));
  return waited;
}

std::string text_of(const std::vector<int64_t>& waited) {
  std::string text = "waited in ms:";
  for (const int64_t ns : waited) text += " " + std::to_string(static_cast<double>(ns) * 1e-6);
  return text;
}

/// What this rank waits for each other one while all make the steps; `late` sleeps before each of its own.
template <class Step>
std::vector<int64_t> waits_in(group::Group& group, int late, Step&& step) {
  step();
  group.barrier();
  const std::vector<int64_t> before = waits_of(group);
  for (int each = 0; each < kSteps; ++each) {
    if (group.rank() == late) rest();
    step();
  }
  std::vector<int64_t> waited = waits_of(group);
  for (size_t rank = 0; rank < waited.size(); ++rank) waited[rank] -= before[rank];
  return waited;
}

/// What is wrong with them; empty: nothing.
std::string wrong(const std::vector<int64_t>& waited, int rank, int late) {
  const int64_t all = std::accumulate(waited.begin(), waited.end(), int64_t{0});
  const int64_t for_late = waited[static_cast<size_t>(late)];
  const std::string text = ", " + text_of(waited);
  if (waited[static_cast<size_t>(rank)] != 0) return "for itself" + text;
  if (rank == late) return all < kSteps * kSleepNs / 2 ? "" : "the late one waits" + text;
  if (for_late < kSteps * kSleepNs * 3 / 4) return "less than it slept" + text;
  return for_late > 2 * (all - for_late) ? "" : "it is not the one" + text;
}

/// `attempt()` returns the error of this rank. Right on all ranks once is right.
template <class Attempt>
void expect_once(group::Group& group, const std::string& what, Attempt&& attempt) {
  std::string said;
  for (int n = 0; n < kAttempts; ++n) {
    said.clear();
    int32_t rank = 0;
    for (const std::string& each : group.gather("attempt", attempt())) {
      if (!each.empty()) said += " rank " + std::to_string(rank) + ": " + each + ";";
      ++rank;
    }
    if (said.empty()) return;
  }
  expect(false, what + said);
}

template <class Step>
void expect_late_ones(Path path, const std::string& what, const Step& make_step) {
  run_on(path, kRanks, [&](group::Group& group, int rank) {
    for (const int late : path == Path::kHosts ? std::vector<int>{3, 2} : std::vector<int>{3})
      make_step(group, [&](auto&& step) {
        expect_once(group, what + ", late " + std::to_string(late) + ":",
                    [&] { return wrong(waits_in(group, late, step), rank, late); });
      });
  });
}

ddp_case_on(kEveryHostPath, a_late_rank_is_named_in_calls) {
  expect_late_ones(path, "barrier", [](group::Group& group, auto&& with) { with([&] { group.barrier(); }); });
  for (const int64_t count : {10, 20'000, 300'000})
    expect_late_ones(path, "sum of " + std::to_string(count), [count](group::Group& group, auto&& with) {
      std::vector<float> values(static_cast<size_t>(count));
      with([&] { group.all_reduce(flat_tensor(values.data(), DDP_F32, count), DDP_SUM); });
    });
}

ddp_case_on(kEveryHostPath, a_late_rank_is_named_in_passes) {
  for (const ddp_progress progress : {DDP_PROGRESS_CALLER, DDP_PROGRESS_THREAD})
    expect_late_ones(path, "pass", [progress](group::Group& group, auto&& with) {
      ddp_model_options options = model_options();
      options.progress = progress;
      PassWorld world(group, Memory::kPrivate, options);
      with([&] { world.reduce(); });
    });
}

ddp_ranks_case_on(kEveryHostPath, run_on, without_a_late_rank_nobody_is_named, kRanks) {
  expect_once(group, "all are in time:", [&] {
    const std::vector<int64_t> waited = waits_in(group, -1, [&] {
      rest();
      group.barrier();
    });
    return std::accumulate(waited.begin(), waited.end(), int64_t{0}) < kSteps * kSleepNs / 2 ? "" : text_of(waited);
  });
}

// The late rank's gradient comes while the others still compute.
ddp_ranks_case_on(kEveryHostPath, run_on, hidden_waiting_is_not_counted, kRanks) {
  ddp_model_options options = model_options();
  options.progress = DDP_PROGRESS_THREAD;
  PassWorld world(group, Memory::kPrivate, options);
  expect_once(group, "computation hides it:", [&] {
    const std::vector<int64_t> waited = waits_in(group, -1, [&] {
      world.model->begin_backward(DDP_PASS_REDUCE);
      if (rank == 3) rest();
      for (size_t p = kShapes.size(); p-- > 0;) world.model->pass().mark_ready(static_cast<int32_t>(p));
      if (rank != 3) rest();
      world.model->end_backward();
    });
    return waited[3] < kSteps * kSleepNs / 2 ? "" : text_of(waited);
  });
}
