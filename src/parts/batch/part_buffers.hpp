// SPDX-License-Identifier: Apache-2.0
// Buffers of a model (running statistics) where the global batch has parts: every part starts from those of the step's
// begin, and in the end those of the rank's first part are kept. So rank 0 has what virtual rank 0 made of them, at any
// number of ranks. A step that is void, or that a recovery takes back, leaves none behind, also on a rank with one part.
// Threads: as Pass. Allocates when it is made.
// Tested by conformance/virtual_ranks_test.cpp.
#pragma once

#include <cstring>
#include <vector>

#include "core/parameters.hpp"

namespace ddp::parts {

class PartBuffers {
 public:
  explicit PartBuffers(const Parameters& table) : table_(table) {
    size_t bytes = 0;
    for (const Buffer& buffer : table.buffers()) bytes += static_cast<size_t>(buffer.value.bytes());
    last_.resize(bytes);
    before_.resize(bytes);
    first_.resize(bytes);
    begin_step();
  }

  /// The buffers are those with which a step begins.
  void begin_step() noexcept {
    save(before_);
    last_ = before_;
    has_first_ = false;
  }
  /// `is_first`: of the step.
  void end_part(bool is_first) noexcept {
    if (is_first) save(first_);
    has_first_ = true;
    restore(before_);
  }
  /// The last part has ended.
  void end_step(bool is_void) noexcept {
    if (is_void) {
      restore(before_);
      return begin_step();
    }
    if (has_first_) restore(first_);
    last_.swap(before_);
    save(before_);
    has_first_ = false;
  }
  /// The group has broken, and ranks continue from the last step that all have made. `awaits_step`: the last pass ended
  /// well, and the parameters do not have its step.
  void go_back(bool awaits_step) const noexcept { restore(awaits_step ? last_ : before_); }

 private:
  void save(std::vector<std::byte>& to) const noexcept {
    each([&, at = to.data()](std::byte* data, size_t bytes) mutable {
      std::memcpy(at, data, bytes);
      at += bytes;
    });
  }
  void restore(const std::vector<std::byte>& from) const noexcept {
    each([&, at = from.data()](std::byte* data, size_t bytes) mutable {
      std::memcpy(data, at, bytes);
      at += bytes;
    });
  }
  template <class Fn>
  void each(Fn fn) const noexcept {
    for (const Buffer& buffer : table_.buffers())
      if (buffer.value.bytes() > 0) fn(buffer.value.data, static_cast<size_t>(buffer.value.bytes()));
  }

  const Parameters& table_;
  std::vector<std::byte> last_;    // before the last step
  std::vector<std::byte> before_;  // before this one
  std::vector<std::byte> first_;   // after the first part
  bool has_first_ = false;
};

}  // namespace ddp::parts
