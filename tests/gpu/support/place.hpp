// SPDX-License-Identifier: Apache-2.0
// Memory and streams on the CPU or on a GPU behind one face, so that a test can do the same on both and compare the bits.
#pragma once

#include <ddp/experimental.h>

#include "gpu/support/module.hpp"

namespace ddp::test::card {

/// The CPU (-1) or a GPU.
struct Place {
  int32_t device = -1;
  [[nodiscard]] bool on_gpu() const { return device >= 0; }
  void make_current() const {
    if (on_gpu()) GPU_CALL(set_device(device));
  }
};
inline constexpr Place kCpu{-1};
inline constexpr Place kGpu{0};

/// A stream that does not wait for the default stream; NULL on the CPU.
class Stream {
 public:
  explicit Stream(Place place, bool high_priority = false) : place_(place) {
    place.make_current();
    if (place.on_gpu()) GPU_CALL(stream_create(&stream_, high_priority ? 1 : 0));
  }
  Stream(Stream&& other) noexcept : place_(other.place_), stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;
  ~Stream() {
    if (stream_ == nullptr) return;
    place_.make_current();
    (void)table().stream_destroy(stream_);
  }
  [[nodiscard]] void* get() const { return stream_; }
  /// Blocks until the stream is empty.
  void wait() const {
    if (place_.on_gpu()) GPU_CALL(stream_synchronize(stream_));
  }
  /// What comes later in this stream comes after what is in the other one now.
  void follow(const Stream& other) const {
    if (!place_.on_gpu()) return;
    void* event = nullptr;
    GPU_CALL(event_create(&event, 0));
    GPU_CALL(event_record(event, other.get()));
    GPU_CALL(stream_wait(stream_, event));
    GPU_CALL(event_destroy(event));
  }

 private:
  Place place_;
  void* stream_ = nullptr;
};

/// Bytes in a place.
class Memory {
 public:
  Memory(Place place, int64_t bytes) : place_(place), bytes_(bytes) {
    place.make_current();
    if (!place.on_gpu()) {
      data_ = std::calloc(1, static_cast<size_t>(bytes));
      return;
    }
    GPU_CALL(alloc(&data_, bytes));
    write(std::string(static_cast<size_t>(bytes), '\0'));
  }
  Memory(Memory&& other) noexcept : place_(other.place_), bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  Memory& operator=(Memory&&) = delete;
  ~Memory() {
    if (!place_.on_gpu()) {
      std::free(data_);
    } else if (data_ != nullptr) {
      (void)table().set_device(place_.device);
      (void)table().synchronize();  // a free may return without waiting
      (void)table().free(data_);
    }
  }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

  /// At once: the host waits.
  void write(const std::string& from) const { move(data_, from.data()); }
  [[nodiscard]] std::string read() const {
    std::string to(static_cast<size_t>(bytes_), '\0');
    move(to.data(), data_);
    return to;
  }
  /// In the order of the stream, from an array in the same place, as a kernel would.
  void copy_from(const Memory& other, void* stream) const {
    place_.make_current();
    if (place_.on_gpu())
      GPU_CALL(copy(data_, other.data(), bytes_, stream));
    else
      std::memcpy(data_, other.data(), static_cast<size_t>(bytes_));
  }

 private:
  void move(void* to, const void* from) const {
    if (!place_.on_gpu()) {
      std::memcpy(to, from, static_cast<size_t>(bytes_));
      return;
    }
    const Stream stream(place_);
    GPU_CALL(copy(to, from, bytes_, stream.get()));
    stream.wait();
  }

  Place place_;
  int64_t bytes_;
  void* data_ = nullptr;
};

/// The bytes of any memory of a place, at once.
inline std::string read_memory(Place place, const void* data, int64_t bytes) {
  std::string to(static_cast<size_t>(bytes), '\0');
  place.make_current();
  if (!place.on_gpu()) {
    std::memcpy(to.data(), data, to.size());
    return to;
  }
  const Stream stream(place);
  GPU_CALL(copy(to.data(), data, bytes, stream.get()));
  stream.wait();
  return to;
}

/// Work of some milliseconds in a stream: copies back and forth inside two arrays of its own. What is enqueued behind it
/// comes late.
class SlowWork {
 public:
  explicit SlowWork(Place place, int64_t bytes = is_fake() ? int64_t{1} << 20 : int64_t{256} << 20)
      : a_(place, bytes), b_(place, bytes) {}
  void enqueue(void* stream, int times = 16) const {
    for (int k = 0; k < times; ++k) (k % 2 == 0 ? a_ : b_).copy_from(k % 2 == 0 ? b_ : a_, stream);
  }

 private:
  Memory a_, b_;
};

inline std::string encoded_one(float number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

/// A dense tensor of one dimension.
inline ddp_tensor flat(void* data, ddp_dtype dtype, int64_t count, Place place) {
  return {data, dtype, place.on_gpu() ? DDP_CUDA : DDP_CPU, place.on_gpu() ? place.device : 0, 1, {count}};
}

}  // namespace ddp::test::card
