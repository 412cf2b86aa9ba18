// SPDX-License-Identifier: Apache-2.0
// What some transports can do besides exchanges, so that what a rank has outlives it: the other ranks of its host have its
// memory mapped, and ranks of other hosts can keep a copy. A transport that can is one of these too.
// Threads: as Transport.
// Tested by capi/kept_copy_test.cpp.
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

  /// Where memory of the own arena lies, as the other ranks of this host understand it; kNoPlace: they do not reach it.
  [[nodiscard]] virtual int64_t place_of(const void*, int64_t) const noexcept { return kNoPlace; }
  static constexpr int64_t kNoPlace = -1;
  /// Memory of another rank by that name. It stays, as it is then, when that rank has died and when this transport has
  /// ended. NULL: not in reach.
  [[nodiscard]] virtual std::shared_ptr<std::byte> reach(int32_t, int64_t) const noexcept { return nullptr; }

  /// In which order ranks of other hosts are sent what is to be kept there; none where nobody can keep anything. As many
  /// rounds on all ranks.
  [[nodiscard]] virtual std::vector<KeepRound> keep_rounds() const { return {}; }
  /// One of these rounds: `sent` is what that round says, and so is `received`; both are empty where it says none. Blocking
  /// collective of all ranks.
  virtual void keep(const KeepRound&, const Tensor&, const Tensor&) {}
};

}  // namespace ddp::collective
