// SPDX-License-Identifier: Apache-2.0
// One launch for many arrays: a table of pieces goes to the kernel by value, and the work is cut into tiles of one size, so
// that every multiprocessor has the same to do whatever the arrays' sizes are.
//
// A piece knows the number of its first tile; a block of threads finds the piece of a tile by halving. Inside a tile
// elements are moved several at a time where all arrays of a piece can be brought to the alignment of that by the same few
// single elements at the front.
// Kernel parameters may have 32,764 bytes since CUDA 12.1; a table that holds fewer pieces is copied sooner, so there are
// two sizes.
// Pure functions, also for the host.
// Tested by unit/cuda/tiles_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "modules/cuda/kernels/numbers.hpp"

namespace ddp::cuda {

inline constexpr int64_t kMaxPiece = int64_t{1} << 30;  // elements; a multiple of every tile

/// Entry has first_tile and count.
template <class Entry, int capacity>
struct Table {
  static constexpr int kCapacity = capacity;
  using Piece = Entry;
  int32_t count;
  uint32_t tiles;
  Entry entries[capacity];
};

DDP_HD uint32_t tiles_of(uint32_t count, uint32_t tile) noexcept { return count / tile + (count % tile != 0 ? 1 : 0); }

/// The piece that a tile belongs to. Pieces without elements have no tile and are not in the table.
template <class Entry>
DDP_HD int32_t piece_of(const Entry* entries, int32_t count, uint32_t tile) noexcept {
  int32_t low = 0;
  int32_t high = count;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    if (entries[middle].first_tile <= tile)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/// One array of a tile; NULL: this piece has none.
struct Lane {
  const void* data;
  uint32_t size;  // of an element
};

/// `head` single elements, then `vectors` times some, then single ones.
struct Split {
  uint32_t head;
  uint32_t vectors;
};

/// How `count` elements are cut, where all lanes move `width` elements at a time.
template <int lanes>
DDP_HD Split split(uint32_t count, uint32_t width, const Lane (&lane)[lanes]) noexcept {
  uint32_t head = 0;
  bool known = false;
  for (int i = 0; i < lanes; ++i) {
    if (lane[i].data == nullptr) continue;
    const auto past = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(lane[i].data) % (width * lane[i].size));
    if (past % lane[i].size != 0) return {0, 0};
    const uint32_t before = past == 0 ? 0 : width - past / lane[i].size;
    if (known && before != head) return {0, 0};
    head = before;
    known = true;
  }
  if (head >= count) return {0, 0};
  return {head, (count - head) / width};
}

/// The i-th of the elements that are moved one at a time.
DDP_HD uint32_t single_at(const Split& split, uint32_t width, uint32_t i) noexcept {
  return i < split.head ? i : i + split.vectors * width;
}

/// Adds arrays to a table and calls flush(table) for a table that is full, and at the end. add() wants entries whose count
/// is set; it sets first_tile.
template <class T>
class Planner {
 public:
  explicit Planner(T& table, uint32_t tile) noexcept : table_(table), tile_(tile) { clear(); }

  [[nodiscard]] bool full() const noexcept { return table_.count == T::kCapacity; }
  [[nodiscard]] bool empty() const noexcept { return table_.count == 0; }
  void clear() noexcept {
    table_.count = 0;
    table_.tiles = 0;
  }
  void add(typename T::Piece piece) noexcept {
    piece.first_tile = table_.tiles;
    table_.tiles += tiles_of(piece.count, tile_);
    table_.entries[table_.count++] = piece;
  }

 private:
  T& table_;
  uint32_t tile_;
};

/// Calls body(first, length) for an array's parts of at most kMaxPiece elements.
template <class Body>
void each_part(int64_t count, Body body) {
  for (int64_t at = 0; at < count; at += kMaxPiece)
    body(at, static_cast<uint32_t>(count - at < kMaxPiece ? count - at : kMaxPiece));
}

/// `address` moved on by bytes; NULL stays NULL.
template <class Void>
Void* moved(Void* address, int64_t bytes) noexcept {
  if (address == nullptr) return nullptr;
  return reinterpret_cast<Void*>(reinterpret_cast<uintptr_t>(address) + static_cast<uintptr_t>(bytes));
}

}  // namespace ddp::cuda
