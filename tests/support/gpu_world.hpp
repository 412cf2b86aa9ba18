// SPDX-License-Identifier: Apache-2.0
// Groups of threads, each rank with a fake GPU of its own (support/fake_gpu), and tensors in its memory. Whatever a test
// does, at its end the fake must have seen no race and no misuse, and nothing may be left.
#pragma once

#include "core/attempt.hpp"
#include "device/gpu/module.hpp"
#include "group/gpu.hpp"
#include "support/fake_gpu/fake_gpu.hpp"
#include "support/group_world.hpp"

namespace ddp::test {

/// Where tensors are. kOfPath: on the GPU of the rank on Path::kGpu, else in host memory. kBoth: every third one is in host
/// memory, the others are on the GPU.
enum class Home { kOfPath, kHost, kGpu, kBoth };

/// The fake in the place of the module, new and empty; checked when it goes.
class FakeGpus : NotCopied {
 public:
  /// `nccl_looks`: as in fake_gpu::Options; NCCL that does not block, as the library asks for.
  explicit FakeGpus(uint64_t seed = 0, int64_t nccl_looks = 3) {
    fake_gpu::Options options;
    options.seed = seed;
    options.nccl_looks = nccl_looks;
    options.nccl_connects = true;
    fake_gpu::reset(options);
    gpu::set_table(&fake_gpu::table());
  }
  ~FakeGpus() { gpu::set_table(nullptr); }

  static void expect_correct(const std::string& what = "the program") {
    std::string all;
    for (const std::string& text : fake_gpu::violations()) all += "\n  " + text;
    expect(all.empty(), what + " misused a GPU:" + all);
  }
  static void expect_nothing_left() {
    const fake_gpu::Live live = fake_gpu::live();
    expect_equal(live.allocations, int64_t{0}, "device memory that is left");
    expect_equal(live.pinned, int64_t{0}, "pinned memory that is left");
    expect_equal(live.streams, int64_t{0}, "streams that are left");
    expect_equal(live.events, int64_t{0}, "events that are left");
    expect_equal(live.communicators, int64_t{0}, "communicators that are left");
    expect_equal(live.registrations, int64_t{0}, "registrations that are left");
  }
  static void expect_clean() {
    expect_correct();
    expect_nothing_left();
  }
};

/// Ranks as threads, rank r on GPU r; adjust(rank, options) makes those of a rank.
inline void run_gpu_groups_with(int size, ddp_group_options options,
                                const std::function<void(int, ddp_group_options&)>& adjust,
                                const std::function<void(group::Group&, int)>& body) {
  static std::atomic<int> next{0};
  const std::string place = "local://gpu-world-" + std::to_string(next++);
  run_ranks(size, [&](int rank) {
    ddp_group_options mine = options;
    mine.rank = rank;
    mine.world_size = size;
    mine.device_index = rank;
    adjust(rank, mine);
    expect(fake_gpu::table().set_device(rank) == 0, "a program has its GPU current");
    const auto group = group::Group::create(place.c_str(), mine);
    body(*group, rank);
  });
}
inline void run_gpu_groups_with(int size, ddp_group_options options, const std::function<void(group::Group&, int)>& body) {
  run_gpu_groups_with(
      size, options, [](int, ddp_group_options&) {}, body);
}
inline void run_gpu_groups(int size, const std::function<void(group::Group&, int)>& body) {
  run_gpu_groups_with(size, world_options(), body);
}

/// The same on new GPUs, of which none was misused and nothing is left at the end.
inline void run_on_gpus(int size, const ddp_group_options& options, const std::function<void(group::Group&, int)>& body) {
  const FakeGpus gpus;
  run_gpu_groups_with(size, options, body);
  FakeGpus::expect_clean();
}
inline void run_on_gpus(int size, const std::function<void(group::Group&, int)>& body) {
  run_on_gpus(size, world_options(), body);
}

/// Once with NCCL's sums, once with the library's.
inline void each_adder(const std::function<void(const ddp_group_options&)>& body) {
  for (const int32_t reproducible : {0, 1}) {
    ddp_group_options options = world_options();
    options.reproducible = reproducible;
    body(options);
  }
}

/// The log of the fake begins anew; all ranks call it.
inline void begin_log(group::Group& group) {
  group.barrier();
  if (group.rank() == 0) fake_gpu::clear_log();
  group.barrier();
}

/// The calls of body() return while this rank's GPU does nothing, and allocate nothing; all ranks call it.
inline void expect_no_wait(group::Group& group, const std::function<void()>& body) {
  begin_log(group);
  fake_gpu::pause_device(group.rank());
  body();
  expect(fake_gpu::pending_on_device(group.rank()) > 0, "nothing has run yet");
  group.barrier();
  expect_equal(fake_gpu::host_waits(), int64_t{0}, "waits of the host");
  expect_equal(fake_gpu::allocations(), int64_t{0}, "allocations");
  group.barrier();
  fake_gpu::resume_device(group.rank());
}

/// Rank 0 does it. Returns when this rank knows.
inline void break_group(group::Group& group) {
  if (group.rank() == 0) group.health().abort(Error(DDP_ERROR_ABORTED, "the test ends it"));
  wait_until([&] { return try_to([&] { group.health().check_usable(); }).has_value(); });
}

/// What the calls of body() have enqueued on the stream.
inline fake_gpu::GraphPtr capture(void* stream, const std::function<void()>& body) {
  expect(fake_gpu::begin_capture(stream, fake_gpu::CaptureMode::kThreadLocal), "the capture begins");
  body();
  std::string why;
  fake_gpu::GraphPtr graph = fake_gpu::end_capture(stream, &why);
  expect(graph != nullptr, "the capture ends well: " + why);
  return graph;
}

/// Memory of the program on the calling thread's current device.
class GpuArray {
 public:
  GpuArray(int32_t device, int64_t bytes) : device_(device), bytes_(bytes) {
    expect(fake_gpu::table().set_device(device) == 0 && fake_gpu::table().alloc(&data_, bytes > 0 ? bytes : 1) == 0,
           "memory on the fake GPU");
  }
  ~GpuArray() {
    if (data_ == nullptr) return;
    static_cast<void>(fake_gpu::table().synchronize());  // a free may return without waiting
    static_cast<void>(fake_gpu::table().free(data_));
  }
  GpuArray(GpuArray&& other) noexcept
      : device_(other.device_), bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  GpuArray& operator=(GpuArray&&) = delete;

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] int64_t bytes() const noexcept { return bytes_; }
  /// Behind the curtain: at once, in no stream's order.
  template <class T>
  void poke(const std::vector<T>& values) const {
    expect(static_cast<int64_t>(values.size() * sizeof(T)) == bytes_ &&
               (bytes_ == 0 || fake_gpu::poke(data_, values.data(), bytes_)),
           "poked");
  }
  template <class T>
  [[nodiscard]] std::vector<T> peek() const {
    std::vector<T> values(static_cast<size_t>(bytes_) / sizeof(T));
    expect(bytes_ == 0 || fake_gpu::peek(values.data(), data_, bytes_), "peeked");
    return values;
  }
  [[nodiscard]] Tensor tensor(group::Group& group, ddp_dtype dtype) const {
    Tensor tensor = flat_tensor(data_, dtype, bytes_ / dtype_size(dtype));
    tensor.device_index = device_;
    group.gpu().bind(tensor, "a tensor of the test");
    return tensor;
  }

 private:
  int32_t device_;
  int64_t bytes_;
  void* data_ = nullptr;
};

/// A stream of the program.
class GpuStream : NotCopied {
 public:
  explicit GpuStream(int32_t device) {
    expect(fake_gpu::table().set_device(device) == 0 && fake_gpu::table().stream_create(&stream_, 0) == 0, "a stream");
  }
  ~GpuStream() { static_cast<void>(fake_gpu::table().stream_destroy(stream_)); }
  [[nodiscard]] void* get() const noexcept { return stream_; }
  void synchronize() const { expect(fake_gpu::table().stream_synchronize(stream_) == 0, "waited for a stream"); }

 private:
  void* stream_ = nullptr;
};

/// A kernel of the program: `to` becomes `from`, in the order of the stream.
inline void write_on(void* stream, const GpuArray& from, void* to) {
  const ddp_gpu_span span{from.data(), to, from.bytes() / 4};
  expect(
      fake_gpu::table().move(&span, 1, DDP_F32, DDP_F32, 1, std::numeric_limits<double>::infinity(), nullptr, stream) == 0,
      "a kernel");
}

/// A kernel of the program that uses a result: a copy of `count` floats, in the order of the stream.
inline std::vector<float> read_on(const GpuStream& stream, int32_t device, const void* from, int64_t count) {
  GpuArray copy(device, count * 4);
  const ddp_gpu_span span{const_cast<void*>(from), copy.data(), count};
  expect(fake_gpu::table().move(&span, 1, DDP_F32, DDP_F32, 1, std::numeric_limits<double>::infinity(), nullptr,
                                stream.get()) == 0,
         "a kernel");
  stream.synchronize();
  return copy.peek<float>();
}

}  // namespace ddp::test
