// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory that messages share: a block is used again when its copy is done, and not before.
#include "device/gpu/staging.hpp"

#include "support/check.hpp"
#include "support/gpu_world.hpp"

using namespace ddp;

constexpr int64_t kBytes = 1000;

void no_check() {}

/// The device of a group that is not there.
struct Alone {
  Alone() = default;
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  FakeGpus gpus;
  std::shared_ptr<const gpu::Device> device = std::make_shared<gpu::Device>(fake_gpu::table(), 0, "rank 0");
  std::shared_ptr<gpu::Staging> staging = std::make_shared<gpu::Staging>(device);
  GpuStream stream{0};
  GpuArray array{0, kBytes};

  ~Alone() { fake_gpu::resume(stream.get()); }  // before its memory waits for the device
  [[nodiscard]] gpu::Staging::Lease take(int64_t bytes = kBytes) const { return staging->take(bytes, no_check); }
};

/// A block that a paused stream has still to copy, given back.
std::byte* leave_busy(const Alone& alone) {
  gpu::Staging::Lease lease = alone.take();
  lease.store(static_cast<std::byte*>(alone.array.data()), kBytes, alone.stream.get());
  return lease.data();
}

ddp_case(a_block_is_used_again_once_its_copy_is_done) {
  {
    Alone alone;
    fake_gpu::pause(alone.stream.get());
    std::byte* const busy = leave_busy(alone);
    std::byte* const other = alone.take().data();
    expect(other != busy, "the copy still reads the first block");
    expect(alone.take().data() == other, "the second is idle");
    fake_gpu::resume(alone.stream.get());
    alone.stream.synchronize();
    const gpu::Staging::Lease one = alone.take(), two = alone.take();
    expect(one.data() == busy || two.data() == busy, "both are idle");
    expect_equal(fake_gpu::live().pinned, int64_t{2}, "no third was made");
    expect(alone.take(kBytes * 1000).data() != busy, "another size has blocks of its own");
  }
  FakeGpus::expect_clean();
}

ddp_case(a_host_that_is_far_ahead_of_its_stream_waits) {
  {
    Alone alone;
    fake_gpu::pause(alone.stream.get());
    for (int32_t at = 0; at < gpu::Staging::kMostBusy; ++at) leave_busy(alone);
    std::atomic<int> looks{0};
    expect_error(DDP_ERROR_ABORTED,
                 [&] {
                   static_cast<void>(alone.staging->take(kBytes, [&] {
                     if (++looks == 10) throw Error(DDP_ERROR_ABORTED, "the group broke");
                   }));
                 },
                 {"the group broke"});
    std::thread resumes([&] {
      wait_until([&] { return looks > 20; });
      fake_gpu::resume(alone.stream.get());
    });
    static_cast<void>(alone.staging->take(kBytes, [&] { ++looks; }));
    resumes.join();
    expect_equal(fake_gpu::live().pinned, int64_t{gpu::Staging::kMostBusy}, "no further block was made");
  }
  FakeGpus::expect_clean();
}

ddp_case(a_block_outlives_its_group) {
  {
    Alone alone;
    fake_gpu::pause(alone.stream.get());
    {
      gpu::Staging::Lease lease = alone.take();
      lease.fetch(static_cast<const std::byte*>(alone.array.data()), kBytes, alone.stream.get());
      alone.staging.reset();
      alone.device.reset();
      expect(!lease.is_done(), "the stream is paused");
      fake_gpu::resume(alone.stream.get());
      lease.await(no_check);
    }
    expect_equal(fake_gpu::live().pinned, int64_t{0}, "freed by the last one that used it");
  }
  FakeGpus::expect_clean();
}

ddp_case(memory_that_is_refused_is_named_and_can_be_had_later) {
  Alone alone;
  fake_gpu::inject({"host_alloc", 1, 1, DDP_GPU_OUT_OF_MEMORY});
  expect_error(DDP_ERROR_OUT_OF_MEMORY, [&] { static_cast<void>(alone.take(100'000)); },
               {"131072 bytes of page-locked memory"});
  static_cast<void>(alone.take(100'000));
}

/// Its end is unknown, so no other copy may have the block.
ddp_case(a_block_whose_copy_has_no_event_is_not_used_again) {
  {
    Alone alone;
    std::byte* const first = alone.take().data();
    {
      gpu::Staging::Lease lease = alone.take();
      expect(lease.data() == first, "the same");
      fake_gpu::inject({"event_record", 2, 1, DDP_GPU_OTHER});
      expect_error(DDP_ERROR_INTERNAL,
                   [&] { lease.store(static_cast<std::byte*>(alone.array.data()), kBytes, alone.stream.get()); });
    }
    alone.stream.synchronize();
    expect(alone.take().data() != first, "another");
  }
  FakeGpus::expect_clean();
}
