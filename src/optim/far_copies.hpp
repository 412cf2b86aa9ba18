// SPDX-License-Identifier: Apache-2.0
// The copies that a rank keeps for ranks on other hosts, and those that it sends there: state arrays, unchanged, of the last
// two steps. Values are not sent, because this rank has them. Threads: as the optimizer. Tested by capi/kept_copy_test.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/ownership.hpp"
#include "exchange/outliving.hpp"
#include "optim/ledger.hpp"
#include "optim/part_arrays.hpp"

namespace ddp::optim {

/// Values of these spans, one span behind the other.
void copy_values(const Parameters& table, const Ownership::Slice& spans, std::vector<std::byte>& to);

class FarCopies {
 public:
  struct Copy {
    int64_t version = -1;  // none
    std::array<std::vector<std::byte>, PartArrays::kUndo> arrays;
    std::vector<std::byte> values;
    std::unique_ptr<PartArrays> slice;  // over the arrays
  };
  /// Memory that is sent.
  struct Lent {
    std::shared_ptr<std::byte> memory;
    int64_t bytes = 0;
  };

  /// Room for the copies that this rank keeps.
  FarCopies(const PartLayout& layout, const Ownership& ownership, std::vector<collective::KeepRound> rounds);

  [[nodiscard]] const std::vector<collective::KeepRound>& rounds() const noexcept { return rounds_; }
  /// What the round sends, from now on.
  void lend(size_t round, PartArrays::Kind kind, Lent lent) { lent_[round][kind] = std::move(lent); }
  /// Collective of all ranks of the transport: their present data is `version`, which is sent to the ranks that keep it.
  void exchange(collective::Outliving& others, int64_t version);

  [[nodiscard]] Versions versions_of(int32_t rank) const noexcept;
  /// Or NULL.
  [[nodiscard]] const Copy* find(int32_t rank, int64_t version) const noexcept;
  void forget() noexcept;
  [[nodiscard]] int64_t bytes() const noexcept;

 private:
  struct Kept {
    int32_t from = -1;
    Ownership::Slice spans;
    std::array<Copy, 2> copies;
  };
  [[nodiscard]] std::unique_ptr<Kept> room_for(const PartLayout& layout, const Ownership& ownership, int32_t from) const;

  const Parameters& table_;
  bool has_masters_;
  std::vector<collective::KeepRound> rounds_;
  std::vector<std::array<Lent, PartArrays::kUndo>> lent_;  // by round
  std::vector<std::unique_ptr<Kept>> kept_;                // the same; NULL: of no rank
};

}  // namespace ddp::optim
