// SPDX-License-Identifier: Apache-2.0
// What some transports can do besides exchanges, so that what a rank has outlives it: the other ranks of its host have its
// memory mapped, and ranks of other hosts can keep a copy. A transport that can is one of these too.
// Threads: as Transport.
// Tested by capi/kept_copy_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/tensor.hpp"

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

  /// Who keeps what is this rank's, on another host where there is one, and whose it keeps; none where nobody can, or where
  /// another rank of the host reaches its memory and no rank of another host is left for it.
  struct Keeper {
    int32_t to = -1;
    int32_t from = -1;
  };
  [[nodiscard]] virtual Keeper keeper() const noexcept { return {}; }
  /// Has any rank one? The same on all ranks.
  [[nodiscard]] virtual bool has_keepers() const noexcept { return keeper().to >= 0; }
  /// `sent` goes to this rank's keeper, and `received` comes from the rank whose keeper it is; both are empty on a rank that
  /// has none. Blocking collective of all ranks.
  virtual void keep(const Tensor&, const Tensor&) {}
};

}  // namespace ddp::collective
