// SPDX-License-Identifier: Apache-2.0
// Which samples are whose: an epoch's order, padded or cut so that every rank gets the same number, dealt out in turn.
//
// The semantics are those of PyTorch's DistributedSampler: the order is a permutation or the identity; with `drop_last` its
// tail is dropped, otherwise it starts over until the ranks are even (several times if there are fewer samples than ranks);
// rank r takes positions r, r + size, r + 2 size ... With `seen` they begin at that position of the same order, so that the
// epoch continues on another number of ranks. The orders themselves are our own (extra/permutation.hpp) and depend on seed
// and epoch as a pair, not on their sum. Pure functions of the fields, which serve every size that int64_t can hold. Cost:
// constant time per index, no allocation. Any thread. Tested by unit/extra/sampler_test.cpp and capi/sampler_test.c.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ddp/sampler.h"

namespace ddp::extra {

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

/// Throws INVALID_ARGUMENT that names the wrong field; `function` is the caller's name.
void check_sampler(const ddp_sampler& sampler, const char* function);

/// Indices per rank and epoch, of a checked sampler.
[[nodiscard]] int64_t sampler_count(const ddp_sampler& sampler) noexcept;

/// Indices [first, first + count) of this rank's share; the range must be within sampler_count.
void sampler_fill(const ddp_sampler& sampler, int64_t epoch, int64_t first, int64_t count, int64_t* indices) noexcept;

}  // namespace ddp::extra
