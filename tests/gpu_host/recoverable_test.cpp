// SPDX-License-Identifier: Apache-2.0
// Ranks with models on GPUs continue when one has died: with the values of a training in which it had left in good order, at
// the addresses of before; and new ones join. Ranks are threads, and one dies by giving up its group. What cannot be
// recovered there is refused.

#include "checkpoint/keep.hpp"
#include "gpu_host/recoverable_trainee.hpp"
#include "group/recovery.hpp"
#include "model/sync_buffers.hpp"
#include "support/check.hpp"
#include "support/group_procs.hpp"

constexpr int kSize = 3;

constexpr RecoverableWay kWays[] = {{"gradients of the program"},
                                    {"gradients of the library", Grads::kLibrary},
                                    {"values of the library", Grads::kLibrary, true},
                                    {"in backward", Grads::kLibrary, false, true},
                                    {"in backward, of the program", Grads::kProgram, false, true},
                                    {"Adam, in backward", Grads::kLibrary, true, true, true},
                                    {"clipped by the norm", Grads::kLibrary, false, false, true, 0.5}};

ddp_group_options recoverable() {
  ddp_group_options options = world_options();
  options.recoverable = 1;
  options.timeout_ms = 20'000;
  options.heartbeat_ms = 50;
  options.dead_after_ms = 2'000;
  return options;
}

std::shared_ptr<group::Group> meet(const Folder& folder, int rank, int size, ddp_group_options options, int gpu) {
  options.device_index = gpu;
  expect(fake_gpu::table().set_device(gpu) == 0, "a program has its GPU current");
  return join_process_group(folder, rank, size, options);
}

double number_at(const std::string& floats, size_t i) {
  return get_element(DDP_F32, reinterpret_cast<const std::byte*>(floats.data()), i);
}

/// What two survivors end with.
void expect_ends(const std::string& one, const std::string& other, const std::string& wanted, const RecoverableWay& way,
                 const std::string& what) {
  expect(one == other, what + ": the ranks have the same bits");
  expect_equal(one.size(), wanted.size(), what + ": bytes");
  for (size_t i = 0; i < wanted.size() / 4; ++i)
    if (!(std::abs(number_at(one, i) - number_at(wanted, i)) <= (way.adam ? 1e-6 : 0)))
      expect_equal(number_at(one, i), number_at(wanted, i), what + ": element " + std::to_string(i));
  FakeGpus::expect_correct(what);
  FakeGpus::expect_nothing_left();
}

enum class Death { kBetweenPasses, kInThePass, kBehindThePass, kBehindTheStep };

std::string name_of(const RecoverableWay& way, Death death) {
  constexpr const char* kNames[] = {"between passes", "in the pass", "behind the pass", "behind the step"};
  return std::string(way.name) + ", " + kNames[static_cast<size_t>(death)];
}

/// All ranks are in the third pass, whose collectives cannot end: most gradients of the last rank never come, or its device
/// does nothing.
void open_pass(RecoverableTrainee& t, int rank, Death death, std::atomic<int>& in_pass) {
  t.fill(rank, 2);
  t.model->begin_backward(DDP_PASS_REDUCE);
  if (rank == kSize - 1 && death == Death::kBehindThePass) fake_gpu::pause_device(rank);
  const auto all = static_cast<int32_t>(t.size());
  const int32_t marks = death == Death::kBehindThePass ? all : rank == kSize - 1 ? 1 : all - 1;
  for (int32_t p = all; p-- > all - marks;) t.mark_one(p);
  ++in_pass;
  wait_until([&] { return in_pass.load() == kSize; });
}

/// The third step is counted while the device has not begun it.
void step_without_device(RecoverableTrainee& t, int rank, std::atomic<int>& in_pass) {
  t.pass(rank, 2);
  t.synchronize();
  fake_gpu::pause(t.stream());
  t.step();
  ++in_pass;
  wait_until([&] { return in_pass.load() == kSize; });
}

void expect_broken_pass(RecoverableTrainee& t, Death death) {
  expect_error(DDP_ERROR_ABORTED,
               [&] {
                 if (death == Death::kInThePass) t.mark_one(0);
                 t.model->end_backward(t.stream());
               },
               {"dies"});
}

/// Two steps of three ranks, the last of which dies, perhaps in the third; two steps of those that are left.
void lose_one(const RecoverableWay& way, Death death) {
  const FakeGpus gpus;
  const Folder folder;
  const std::string what = name_of(way, death);
  const int made = death == Death::kBehindTheStep ? 3 : 2;
  std::array<std::string, kSize> ends;
  std::atomic<int> in_pass{0}, know{0};
  run_ranks(kSize, [&](int rank) {
    const auto group = meet(folder, rank, kSize, recoverable(), rank);
    RecoverableTrainee t(*group, way);
    for (int step = 0; step < 2; ++step) t.train(rank, step);
    t.synchronize();
    group->barrier();
    if (death == Death::kInThePass || death == Death::kBehindThePass) open_pass(t, rank, death, in_pass);
    if (death == Death::kBehindTheStep) step_without_device(t, rank, in_pass);
    if (rank == kSize - 1) {
      group->health().abort(Error(DDP_ERROR_ABORTED, "the last rank dies"));
      wait_until([&] { return know.load() == kSize - 1; });
      fake_gpu::resume_device(rank);
      fake_gpu::resume(t.stream());
      return;
    }
    const std::vector<const void*> places = t.addresses();
    if (death == Death::kInThePass || death == Death::kBehindThePass) expect_broken_pass(t, death);
    if (death == Death::kBehindTheStep) {
      expect(group::Recovery::await_broken(*group), what + ": the group breaks");
      fake_gpu::resume(t.stream());
    }
    ++know;
    const group::Recovery::Outcome outcome = group::Recovery::run(*group, group::RecoveryRule());
    expect_equal(group->size(), kSize - 1, what + ": ranks");
    expect_equal(outcome.step, static_cast<int64_t>(made), what + ": the step");
    expect(t.addresses() == places, what + ": the addresses");
    for (int step = made; step < made + 2; ++step) t.train(rank, step);
    ends[static_cast<size_t>(rank)] = t.bytes();
    t.model->replicas().check(t.stream());
    group->barrier();
  });
  expect_ends(ends[0], ends[1], oracle(way, {{kSize, made}, {kSize - 1, 2}}), way, what);
}

ddp_case(two_of_three_go_on) {
  for (const RecoverableWay& way : kWays) lose_one(way, Death::kBetweenPasses);
}
ddp_case(a_pass_that_was_open_is_repeated) {
  for (const RecoverableWay& way : kWays) lose_one(way, Death::kInThePass);
}
ddp_case(a_pass_whose_device_never_came_is_repeated) {
  for (const RecoverableWay& way : kWays) lose_one(way, Death::kBehindThePass);
}
ddp_case(a_step_that_was_counted_is_made) {
  for (const RecoverableWay& way : kWays)
    if (!way.in_backward) lose_one(way, Death::kBehindTheStep);
}

/// The last rank dies with its part of the optimizer's state, one step behind what was kept: the others go back to that.
void what_was_kept_comes_back(const RecoverableWay& way) {
  const FakeGpus gpus;
  const Folder folder;
  const std::string what = way.name;
  std::array<std::string, kSize> ends;
  std::atomic<int> know{0};
  run_ranks(kSize, [&](int rank) {
    const auto group = meet(folder, rank, kSize, recoverable(), rank);
    RecoverableTrainee t(*group, way);
    for (int step = 0; step < 2; ++step) t.train(rank, step);
    checkpoint::keep("ddp_state_keep", {t.model.get()}, {1, 2}, "own", t.stream(), std::nullopt);
    t.train(rank, 2);
    t.synchronize();
    group->barrier();
    if (rank == kSize - 1) {
      group->health().abort(Error(DDP_ERROR_ABORTED, "the last rank dies"));
      return wait_until([&] { return know.load() == kSize - 1; });
    }
    expect(group::Recovery::await_broken(*group), what + ": the group breaks");
    ++know;
    const group::Recovery::Outcome outcome = group::Recovery::run(*group, group::RecoveryRule());
    expect_equal(outcome.step, int64_t{2}, what + ": the step");
    expect_equal(outcome.kept.went_back, int64_t{1}, what + ": steps to repeat");
    expect(group::Recovery::survival(*group)->keeper().bytes() == "own", what + ": the program's bytes");
    for (int step = 2; step < 4; ++step) t.train(rank, step);
    ends[static_cast<size_t>(rank)] = t.bytes();
    t.model->replicas().check(t.stream());
    group->barrier();
  });
  RecoverableWay whole = way;
  whole.shard = false;
  expect_ends(ends[0], ends[1], oracle(whole, {{kSize, 2}, {kSize - 1, 2}}), way, what);
}

ddp_case(what_was_kept_of_slices_comes_back) {
  for (const RecoverableWay& way : {RecoverableWay{"sharded", Grads::kLibrary, false, false, false, 0, true},
                                    RecoverableWay{"sharded, Adam", Grads::kProgram, true, false, true, 0, true},
                                    RecoverableWay{"sharded, in backward", Grads::kLibrary, false, true, false, 0, true}})
    what_was_kept_comes_back(way);
}

/// Two ranks, then a third that gets everything from them, then the first of them dies.
void grow_and_shrink(const RecoverableWay& way) {
  const FakeGpus gpus;
  const Folder folder;
  std::array<std::string, kSize> ends;
  std::atomic<bool> stands{false};
  int before = 0;  // steps that two ranks made
  run_ranks(kSize, [&](int number) {
    ddp_group_options options = recoverable();
    const bool is_new = number == kSize - 1;
    if (is_new) wait_until([&] { return stands.load(); });
    options.join = is_new ? 1 : 0;
    const auto group = meet(folder, is_new ? -1 : number, is_new ? -1 : 2, options, number);
    RecoverableTrainee t(*group, way);
    for (int step = 0; !is_new && step < 2; ++step) t.train(group->rank(), step);
    if (number == 0) stands = true;
    if (!is_new) {
      int step = 2;
      expect_error(DDP_ERROR_ABORTED,
                   [&] {
                     for (;;) t.train(group->rank(), step++);
                   },
                   {"new rank"});
      static_cast<void>(group::Recovery::run(*group, group::RecoveryRule()));
    }
    expect_equal(group->size(), kSize, "all are there");
    const auto made = static_cast<int>(t.optimizer->step_count());
    if (is_new) before = made;
    for (int step = made; step < made + 2; ++step) t.train(group->rank(), step);
    t.synchronize();
    group->barrier();
    if (number == 0) return group->health().abort(Error(DDP_ERROR_ABORTED, "rank 0 dies"));
    expect(group::Recovery::await_broken(*group), "the group breaks");
    static_cast<void>(group::Recovery::run(*group, group::RecoveryRule()));
    for (int step = made + 2; step < made + 4; ++step) t.train(group->rank(), step);
    ends[static_cast<size_t>(number)] = t.bytes();
    group->barrier();
  });
  expect_ends(ends[1], ends[2], oracle(way, {{2, before}, {kSize, 2}, {2, 2}}), way, way.name);
}

ddp_case(a_new_rank_joins_and_the_first_one_dies) {
  for (const RecoverableWay& way : kWays) grow_and_shrink(way);
}

/// Buffers that were being sent to a rank when another died are those of before.
ddp_case(buffers_on_their_way_are_taken_back) {
  const FakeGpus gpus;
  const Folder folder;
  std::atomic<int> know{0};
  run_ranks(kSize, [&](int rank) {
    const auto group = meet(folder, rank, kSize, recoverable(), rank);
    const GpuArray running(rank, 8);
    Ways ways = kWays[0].ways(Home::kGpu);
    ways.is_committed = false;
    Training t(*group, Rule::kMomentum, ways);
    t.model->add_buffer("running", running.tensor(*group, DDP_F32));
    t.model->replicas().keep_equal(t.optimizer);
    t.commit();
    t.train(rank, 0);
    t.synchronize();
    running.poke<float>(rank == 0 ? std::vector<float>{1, 0} : std::vector<float>{7, 8});
    group->barrier();
    if (rank == kSize - 1) {
      fake_gpu::pause_device(rank);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      group->health().abort(Error(DDP_ERROR_ABORTED, "the last rank dies"));
      wait_until([&] { return know.load() == kSize - 1; });
      fake_gpu::resume_device(rank);
      return;
    }
    static_cast<void>(try_to([&] { model::sync_buffers(*t.model, 0, t.stream()); }));
    expect(group::Recovery::await_broken(*group), "the group breaks");
    if (rank == 1) expect(running.peek<float>() == std::vector<float>({7, 8}), "the buffer of before");
    ++know;
    const group::Recovery::Outcome outcome = group::Recovery::run(*group, group::RecoveryRule());
    expect_equal(outcome.source, 0, "who sends");
    t.synchronize();
    expect(running.peek<float>() == std::vector<float>({1, 0}), "the buffer of rank 0");
    group->barrier();
  });
  FakeGpus::expect_clean();
}

/// A capture holds no wait of the host.
ddp_case(a_captured_pass_is_refused) {
  const FakeGpus gpus;
  const Folder folder;
  run_ranks(2, [&](int rank) {
    const auto group = meet(folder, rank, 2, recoverable(), rank);
    RecoverableTrainee t(*group, kWays[0]);
    t.train(rank, 0);
    t.synchronize();
    group->barrier();
    expect(fake_gpu::begin_capture(t.stream(), fake_gpu::CaptureMode::kThreadLocal), "the capture begins");
    expect_error(DDP_ERROR_INVALID_STATE, [&] { t.reduce(); }, {"recoverable = 1"});
    std::string why;
    static_cast<void>(fake_gpu::end_capture(t.stream(), &why));
    group->barrier();
    t.train(rank, 1);
    t.synchronize();
    group->barrier();
  });
}

ddp_case(what_cannot_be_recovered_is_refused) {
  const FakeGpus gpus;
  ddp_group_options lent = recoverable();
  lent.nccl_comm = &lent;
  const Folder folder;
  expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { static_cast<void>(meet(folder, 0, 1, lent, 0)); }, {"nccl_comm"});
}
