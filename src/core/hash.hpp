// SPDX-License-Identifier: Apache-2.0
// 64-bit content hash (XXH3, from the xxHash library), one-shot and streaming. Any thread.
// Tested by unit/core/hash_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ddp {

[[nodiscard]] uint64_t content_hash(const void* data, size_t bytes) noexcept;

/// The hash of several pieces, in order.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void add(const void* data, size_t bytes) noexcept;
  [[nodiscard]] uint64_t value() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ddp
