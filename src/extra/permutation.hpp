// SPDX-License-Identifier: Apache-2.0
// A random order of 0 ... n-1 that is never stored: where position p goes is computed from p alone.
//
// Each number below rows*columns (the smallest nearly square grid with n cells or more) is a pair (row, column). Rounds
// shift, in turn, the row by a keyed hash of the column and the column by a keyed hash of the row: a Feistel network over
// residues (Black and Rogaway: "Ciphers with arbitrary finite domains", CT-RSA 2002). Shifts alone make even permutations
// only where both sides are odd, so a last keyed bit swaps cells 0 and 1 or leaves them. A result outside 0 ... n-1 is sent
// through again ("cycle walking"), which keeps the map a bijection; at most a share of 1/columns of the grid is outside,
// so this is rare.
// 24 rounds are what small n needs: over 1000 n! epochs every one of the n! orders came up equally often, n = 2 to 8 (with
// 12 rounds a chi-square test fails from n = 5 on).
// Round keys are Philox4x32-10 numbers of (seed, epoch), the hash is mix64. All of it is frozen: a saved run finds its order
// again.
// Cost: about 150 ns for any n; no memory beyond the keys. Any thread.
// Tested by unit/extra/permutation_test.cpp (bijection, golden values, uniformity).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ddp::extra {

class Permutation {
 public:
  /// An order of `count` things, 1 to 2^63 - 1 of them.
  Permutation(uint64_t count, uint64_t seed, uint64_t epoch) noexcept;

  /// The value at `position`, which must be below the count.
  [[nodiscard]] uint64_t operator()(uint64_t position) const noexcept;

 private:
  static constexpr int kRounds = 24;

  [[nodiscard]] uint64_t encipher(uint64_t cell) const noexcept;

  uint64_t count_;
  uint64_t rows_;
  uint64_t columns_;
  uint64_t swap_;  // 1: cells 0 and 1 change places at the end
  std::array<uint64_t, kRounds> keys_{};
};

}  // namespace ddp::extra
