// SPDX-License-Identifier: Apache-2.0
// NCCL of the fake GPU registers what captured collectives work on, for which the hosts of all ranks meet.

#include "unit/fake_gpu/fixture.hpp"

using namespace ddp::test::fake_gpu;

/// NCCL registers what it works on there.
fake_gpu_case(the_hosts_meet_in_a_captured_collective) {
  reset(Options{.nccl_looks = 4});
  const Id id = make_id();
  std::atomic<int> looks{0};
  on_ranks(2, [&](int32_t rank) {
    void* comm = nullptr;
    check_equal(n.error_kind(n.comm_init(&comm, 2, &id, rank, "", 0)), DDP_NCCL_IN_PROGRESS);
    check_equal(over(comm), 0);
    float* const data = make_array<float>({1});
    void* const stream = make_stream();
    check(begin_capture(stream, CaptureMode::kRelaxed));
    while (rank == 1 && looks < 20) std::this_thread::yield();
    check_equal(n.error_kind(n.all_reduce(data, data, 1, DDP_F32, DDP_GPU_SUM, comm, stream)), DDP_NCCL_IN_PROGRESS);
    for (int32_t result = 0; rank == 0 && looks < 20; ++looks) {
      check_equal(n.comm_async_error(comm, &result), 0);
      check_equal(n.error_kind(result), DDP_NCCL_IN_PROGRESS);
    }
    check_equal(over(comm), 0);
    check(end_capture(stream) != nullptr);
    check_equal(n.comm_abort(comm), 0);
  });
  check_equal(live().communicators, 0);
}

fake_gpu_case(an_abort_does_not_end_the_meeting) {
  reset(Options{.nccl_looks = 4});
  const Id id = make_id();
  std::atomic<bool> aborted{false};
  on_ranks(2, [&](int32_t rank) {
    void* comm = nullptr;
    check_equal(n.error_kind(n.comm_init(&comm, 2, &id, rank, "", 0)), DDP_NCCL_IN_PROGRESS);
    check_equal(over(comm), 0);
    float* const data = make_array<float>({1});
    void* const stream = make_stream();
    check(begin_capture(stream, CaptureMode::kRelaxed));
    if (rank == 1) {
      while (calls("nccl.comm_abort", 0) == 0) std::this_thread::yield();
      for (int k = 0; k < 50; ++k) std::this_thread::yield();
      check(!aborted.load());
    }
    check_equal(n.error_kind(n.all_reduce(data, data, 1, DDP_F32, DDP_GPU_SUM, comm, stream)), DDP_NCCL_IN_PROGRESS);
    check_equal(n.comm_abort(comm), 0);
    aborted = true;
    static_cast<void>(end_capture(stream));
  });
  check_equal(live().communicators, 0);
}
