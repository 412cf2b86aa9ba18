// SPDX-License-Identifier: Apache-2.0
// Sends the parts of an optimizer's state from the ranks that have them to all ranks, with the values that belong to them:
// chunk by chunk, so that no rank ever holds the whole. Each rank takes all values, and of the arrays what it owns now.
// Threads: as the group's collectives.
// Tested by capi/kept_copy_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/hash.hpp"
#include "core/ownership.hpp"
#include "group/group.hpp"
#include "optim/part_arrays.hpp"

namespace ddp::optim {

/// Where a part is read.
struct PartSource {
  const OptimizerState* store = nullptr;
  const OptimizerState* masters = nullptr;
  Undo* shared = nullptr;             // of another rank, in reach: saved data that replaces parts of the arrays and values
  const std::byte* values = nullptr;  // in the order of the spans; NULL: the parameters'
};

class PartSender {
 public:
  /// Where a rank puts what it owns.
  struct Target {
    const OptimizerState& store;
    const OptimizerState& masters;
  };
  /// `ownership`: of now. `version`: the step that is read.
  PartSender(const PartLayout& layout, group::Group& group, const Ownership& ownership, const Target& target,
             int64_t version);

  /// One part. `from`: on the rank `giver` alone. Collective.
  void send(const Ownership::Slice& part, const PartSource& from, int32_t giver);
  /// Of all that has arrived.
  [[nodiscard]] uint64_t hash() const noexcept { return hasher_.value(); }

 private:
  /// Neighbours in one array: one of the rule, the master copy, or the values.
  struct Segment {
    int32_t index = 0;
    size_t array = 0;
    int64_t first = 0;
    int64_t count = 0;
    ddp_dtype dtype = DDP_F32;
    int64_t at = 0;  // bytes of the chunk
  };

  [[nodiscard]] std::vector<Segment> segments_of(const Ownership::Slice& part) const;
  [[nodiscard]] std::byte* values(const Segment& segment) const noexcept;
  [[nodiscard]] bool is_values(const Segment& segment) const noexcept;
  [[nodiscard]] int64_t place_among(const Ownership::Slice& part, const Segment& segment) const noexcept;
  void read(const Ownership::Slice& part, const PartSource& from, const Undo* undo, const Segment& segment) noexcept;
  void fill(const Ownership::Slice& part, const PartSource& from);
  void take(const Segment& segment);
  void send_chunk(const Ownership::Slice& part, const PartSource& from, int32_t giver, int64_t bytes);

  const PartLayout layout_;
  group::Group& group_;
  const Ownership& ownership_;
  const Target target_;
  const int64_t version_;
  std::vector<std::byte> chunk_;
  std::vector<Segment> in_chunk_;
  Hasher hasher_;
};

}  // namespace ddp::optim
