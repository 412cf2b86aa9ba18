// SPDX-License-Identifier: Apache-2.0
// A tensor of a rank on its fake GPU with a stream of its own, for tests of messages.
#pragma once

#include "gpu_host/small_model.hpp"

namespace ddp::test {

inline std::vector<float> numbers(int about, int64_t count = kCount) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t at = 0; at < values.size(); ++at) values[at] = static_cast<float>(about) + static_cast<float>(at % 97);
  return values;
}

/// At first -1 everywhere. Kernels of the program write and read it on the stream.
struct OnGpu {
  int rank;
  GpuArray array, fresh;
  GpuStream stream;

  explicit OnGpu(int of, int64_t count = kCount) : rank(of), array(of, count * 4), fresh(of, count * 4), stream(of) {
    array.poke(std::vector<float>(static_cast<size_t>(count), -1));
  }
  [[nodiscard]] Tensor tensor(group::Group& group) const { return array.tensor(group, DDP_F32); }
  void write(const std::vector<float>& values) {
    fresh.poke(values);
    write_on(stream.get(), fresh, array.data());
  }
  [[nodiscard]] std::vector<float> read() const { return read_on(stream, rank, array.data(), array.bytes() / 4); }
};

/// A stream is paused until resume(), or the end of a test that fails, whose arrays wait for the device.
class Paused {
 public:
  explicit Paused(const OnGpu& of) : stream_(of.stream.get()) { fake_gpu::pause(stream_); }
  ~Paused() { resume(); }
  Paused(const Paused&) = delete;
  Paused& operator=(const Paused&) = delete;
  void resume() const { fake_gpu::resume(stream_); }

 private:
  void* stream_;
};

inline Tensor of_host(std::vector<float>& values) {
  return flat_tensor(values.data(), DDP_F32, static_cast<int64_t>(values.size()));
}

}  // namespace ddp::test
