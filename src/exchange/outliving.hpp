// SPDX-License-Identifier: Apache-2.0
// An ability of some transports besides exchanges, so that a rank's data outlives it: the other ranks of its host have its
// memory mapped, and ranks of other hosts can keep a copy. A transport that can is one of these too.
// Threads: as Transport.
// Tested by capi/keep_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor.hpp"
#include "exchange/keeping.hpp"

namespace ddp::collective {

class Outliving {
 public:
  Outliving() = default;
  Outliving(const Outliving&) = delete;
  Outliving& operator=(const Outliving&) = delete;
  virtual ~Outliving() = default;

  /// The place of memory of the own arena, as the other ranks of this host address it; kNoPlace: they do not reach it.
  [[nodiscard]] virtual int64_t place_of(const void*, int64_t) const noexcept { return kNoPlace; }
  static constexpr int64_t kNoPlace = -1;
  /// Memory of another rank by that name. It stays, as it is then, when that rank has died and when this transport has
  /// ended. NULL: not in reach.
  [[nodiscard]] virtual std::shared_ptr<std::byte> reach(int32_t, int64_t) const noexcept { return nullptr; }

  /// The order in which ranks of other hosts are sent the data that they keep; empty if no rank can keep data. The same
  /// number of rounds on all ranks.
  [[nodiscard]] virtual std::vector<KeepRound> keep_rounds() const { return {}; }
  /// One of these rounds: `sent` and `received` belong to that round; both may be empty. Blocking
  /// collective of all ranks.
  virtual void keep(const KeepRound&, const Tensor&, const Tensor&) {}
};

}  // namespace ddp::collective
