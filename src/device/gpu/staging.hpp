// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory through which the bytes of tensors on a GPU go to other ranks, and come from them, where the
// exchange itself is between hosts. The blocks of a group are used again and again.
//
// A copy runs in the order of the program's stream, and a block has an event behind its last copy. A block that was given
// back is not used for something else before that copy is done, so a request may be given up at any time.
// Promises: take() waits only if kMostBusy blocks of the size have been given back whose copies are not done; then the host
// is that far ahead of a stream. Memory is not freed before the end of the group, because freeing waits for the device.
// Sizes are powers of two, and as many blocks of a size are kept as were in use at one time.
// Threads: any; a lease has one user at a time. Tested by gpu_host/staging_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "device/gpu/device.hpp"

namespace ddp::gpu {

/// A thread that waits for the device calls this repeatedly. An exception from it ends the wait.
using WaitCheck = std::function<void()>;

class Staging : public std::enable_shared_from_this<Staging> {
  struct Block;

 public:
  static constexpr int64_t kLeastBytes = int64_t{64} << 10;
  static constexpr int32_t kMostBusy = 4;

  explicit Staging(std::shared_ptr<const Device> device);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// A block in use. It outlives the group, if need be.
  class Lease {
   public:
    Lease(std::shared_ptr<Staging> owner, std::unique_ptr<Block> block);
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&&) = delete;
    ~Lease();

    [[nodiscard]] std::byte* data() const noexcept;
    /// Throws INVALID_ARGUMENT if it is no stream of this device.
    void check_stream(void* stream);
    /// Copies device memory to the block, or the block to device memory, in the order of the stream. Does not wait.
    void fetch(const std::byte* from, int64_t bytes, void* stream);
    void store(std::byte* to, int64_t bytes, void* stream);
    /// Is the last copy done? On a thread of the library it does not disturb captures of the program's threads.
    [[nodiscard]] bool is_done() const;
    /// Until it is.
    void await(const WaitCheck& check) const;

   private:
    void copy(void* to, const void* from, int64_t bytes, void* stream);

    std::shared_ptr<Staging> owner_;
    std::unique_ptr<Block> block_;
  };

  /// Its content is anything. Throws OUT_OF_MEMORY.
  [[nodiscard]] Lease take(int64_t bytes, const WaitCheck& check);

 private:
  [[nodiscard]] std::unique_ptr<Block> find(int64_t bytes, int32_t* busy);
  void give_back(std::unique_ptr<Block> block) noexcept;

  const std::shared_ptr<const Device> device_;
  std::mutex mutex_;  // guards what follows
  size_t made_ = 0;
  std::vector<std::unique_ptr<Block>> free_;  // with room for all that were made
};

}  // namespace ddp::gpu
