// SPDX-License-Identifier: Apache-2.0
// Threads that do not return from NCCL: the group ends without them, and they own all that they touch when they return.

#include "gpu_host/small_model.hpp"
#include "support/check.hpp"
#include "support/own_threads.hpp"

void train_a_little(group::Group& group, int rank) {
  SmallGpuModel world(group, rank);
  world.first_pass();
}

/// The watch is inside NCCL when the group goes. It comes back with trouble that it would tell the group.
ddp_case(the_watch_may_come_back_after_its_group_is_gone) {
  const FakeGpus gpus;
  std::atomic<bool> left{false};
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    train_a_little(group, rank);
    if (rank == 0) {
      fake_gpu::set_async_error(0, DDP_NCCL_REMOTE);
      const int64_t before = fake_gpu::calls("nccl.comm_async_error", 0);
      wait_until([&] { return fake_gpu::calls("nccl.comm_async_error", 0) > before; });
      fake_gpu::delay_nccl(fake_gpu::NcclCall::kAsyncError, 0, 4000);
      const int64_t held = fake_gpu::calls("nccl.comm_async_error", 0);
      wait_until([&] { return fake_gpu::calls("nccl.comm_async_error", 0) > held; });
      expect(ms_of([&] { group.close(); }) < 3000, "left in time");
      left = true;
    }
    wait_until([&] { return left.load(); });  // once a rank has left, no thread looks for errors of NCCL
  });
  expect_contains(library_threads(), "ddp-nccl-watch");
  expect_no_library_threads("the watch", 10'000);
  FakeGpus::expect_clean();
}

/// The end of a broken communicator takes longer than the longest wait.
ddp_case(nccl_may_end_after_its_group_is_gone) {
  const FakeGpus gpus;
  fake_gpu::delay_nccl(fake_gpu::NcclCall::kAbort, -1, 4000);
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    train_a_little(group, rank);
    if (rank == 0) group.health().abort(Error(DDP_ERROR_ABORTED, "rank 0 had enough"));
    wait_until([&] { return group.health().has_fault(); });
    expect(ms_of([&] { group.close(); }) < 3000, "left in time");
  });
  expect_contains(library_threads(), "ddp-nccl-end");
  expect_no_library_threads("the end of NCCL", 10'000);
  FakeGpus::expect_clean();
}

/// It never ends: its objects are kept for ever, and the next group works.
ddp_case(nccl_may_never_end) {
  const FakeGpus gpus;
  fake_gpu::delay_nccl(fake_gpu::NcclCall::kAbort, 0, -1);
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    train_a_little(group, rank);
    if (rank == 1) group.health().abort(Error(DDP_ERROR_ABORTED, "rank 1 had enough"));
    wait_until([&] { return group.health().has_fault(); });
    expect(ms_of([&] { group.close(); }) < 3000, "left in time");
  });
  run_gpu_groups(2, [&](group::Group& group, int rank) { train_a_little(group, rank); });
  FakeGpus::expect_correct();
  expect_equal(fake_gpu::live().communicators, int64_t{1}, "the one that never ended");
  fake_gpu::reset();
  expect_no_library_threads("the end of NCCL");
}
