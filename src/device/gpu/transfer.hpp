// SPDX-License-Identifier: Apache-2.0
// Moves parts of tensors from and to host memory, whatever the tensor's device: chunk by chunk, and while one chunk is used
// the next is copied.
//
// A tensor on a GPU goes through two blocks of page-locked memory on a stream of their own; the bytes of a tensor in host
// memory are used without a copy. Blocking: read() shows complete data, and data given to write() is in place after
// finish(). The caller ensures that the work that wrote the tensors is done (Device::synchronize). Cost: 8 MiB of
// page-locked memory for the object's life, none if no tensor is on a GPU. Threads: one at a time. Tested by
// gpu_host/transfer_test.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/gpu/device.hpp"

namespace ddp::gpu {

/// The GPU of the first tensor that is on one; NULL if no tensor is.
[[nodiscard]] const Device* device_of(const std::vector<Tensor>& tensors) noexcept;

/// Bytes of a tensor as a flat tensor, where they are.
[[nodiscard]] Tensor bytes_of(const Tensor& tensor, int64_t offset, int64_t bytes) noexcept;

class Transfer {
 public:
  static constexpr int64_t kBlockBytes = int64_t{4} << 20;

  /// `device` NULL: for tensors in host memory. Throws OUT_OF_MEMORY and the errors of a GPU.
  explicit Transfer(const Device* device);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  /// The stream of the copies, for what must come between them; NULL without a GPU.
  [[nodiscard]] void* stream() const noexcept { return stream_ == nullptr ? nullptr : stream_->get(); }

  /// see(data, bytes) for bytes [offset, offset + bytes) of the tensor, in order, at most kBlockBytes at a time.
  template <class See>
  void read(const Tensor& tensor, int64_t offset, int64_t bytes, See&& see) {
    const bool is_direct = device::of(tensor).is_immediate();
    int64_t asked = 0;
    oldest_ = next_;
    for (int64_t seen = 0; seen < bytes;) {
      for (; !is_direct && asked < bytes && asked - seen < kAhead; asked += part(bytes - asked))
        fetch(tensor.data + offset + asked, part(bytes - asked));
      const int64_t now = part(bytes - seen);
      see(is_direct ? tensor.data + offset + seen : fetched(), now);
      seen += now;
    }
  }

  /// fill(data, bytes) provides bytes [offset, offset + bytes) of the tensor, in order, at most kBlockBytes at a time.
  template <class Fill>
  void write(const Tensor& tensor, int64_t offset, int64_t bytes, Fill&& fill) {
    const bool is_direct = device::of(tensor).is_immediate();
    for (int64_t at = 0; at < bytes; at += kBlockBytes) {
      const int64_t now = part(bytes - at);
      std::byte* const to = tensor.data + offset + at;
      fill(is_direct ? to : room(), now);
      if (!is_direct) store(to, now);
    }
  }

  void read_to(const Tensor& tensor, int64_t offset, int64_t bytes, std::byte* to);
  void write_from(const Tensor& tensor, int64_t offset, int64_t bytes, const std::byte* from);

  /// Waits until everything that was written, and whatever else came on the stream, is done.
  void finish() const;

 private:
  struct Block {
    explicit Block(const Device& device);
    Pinned memory;
    Event done;         // behind the copy that uses it
    bool used = false;  // has that been recorded?
  };
  static constexpr int64_t kAhead = 2 * kBlockBytes;

  [[nodiscard]] static int64_t part(int64_t bytes) noexcept { return std::min(bytes, kBlockBytes); }
  [[nodiscard]] Block& next() noexcept;
  void fetch(const std::byte* from, int64_t bytes);
  [[nodiscard]] const std::byte* fetched();
  [[nodiscard]] std::byte* room();
  void store(std::byte* to, int64_t bytes);

  const Device* device_;
  std::unique_ptr<Stream> stream_;
  std::array<std::unique_ptr<Block>, 2> blocks_;
  size_t next_ = 0;    // block of the next fetch or store
  size_t oldest_ = 0;  // block of the fetch that was not seen yet
};

}  // namespace ddp::gpu
