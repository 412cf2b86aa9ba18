// SPDX-License-Identifier: Apache-2.0
// Which collectives NCCL has carried out so far. Since 2.22 it connects an algorithm when that is used first, which the
// hosts of all ranks do together: the first one waits. A mark must not wait, so the collectives of later passes are used
// once before, when all ranks are there (Operation::use_once). Which algorithm NCCL takes depends on kind, type and size,
// and between two sizes of which one is at most twice the other it takes one of theirs. They are the same on all ranks.
// Threads: one at a time. Tested by unit/exchange/first_uses_test.cpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "core/dtype.hpp"

namespace ddp::nccl {

/// A collective on a block, in place.
struct BlockCollective {
  enum class Kind { kAllReduce, kReduceScatter, kAllGather };
  Kind kind = Kind::kAllReduce;
  int64_t count = 0;  // elements: of the block; of a rank's slice, where it has slices
  ddp_dtype dtype = DDP_F32;
  [[nodiscard]] int64_t bytes() const noexcept { return count * dtype_size(dtype); }
};

class FirstUses {
 public:
  /// May NCCL have to connect for it?
  [[nodiscard]] bool is_first(const BlockCollective& collective) const {
    const auto found = used_.find(class_of(collective));
    return collective.count > 0 &&
           (found == used_.end() || collective.bytes() < found->second.first || collective.bytes() > found->second.second);
  }
  void add(const BlockCollective& collective) {
    const auto [at, is_new] = used_.try_emplace(class_of(collective), collective.bytes(), collective.bytes());
    if (!is_new)
      at->second = {std::min(at->second.first, collective.bytes()), std::max(at->second.second, collective.bytes())};
  }

 private:
  using Class = std::tuple<BlockCollective::Kind, ddp_dtype, int>;
  [[nodiscard]] static Class class_of(const BlockCollective& collective) noexcept {
    return {collective.kind, collective.dtype, std::bit_width(static_cast<uint64_t>(collective.bytes()))};
  }

  std::map<Class, std::pair<int64_t, int64_t>> used_;  // the fewest and most bytes
};

}  // namespace ddp::nccl
