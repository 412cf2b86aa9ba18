// SPDX-License-Identifier: Apache-2.0
// How work is cut: pieces into tiles, tiles into vectors and single elements.
#include "modules/cuda/kernels/tiles.hpp"

#include "support/check.hpp"

using namespace ddp::cuda;

struct Piece {
  uint32_t count;
  uint32_t first_tile;
};
using SmallTable = Table<Piece, 64>;

ddp_case(every_tile_finds_its_piece) {
  SmallTable table;
  Planner planner(table, 8);
  std::vector<std::pair<int32_t, uint32_t>> wanted;  // piece and first element of every tile
  for (const uint32_t count : {1U, 8U, 9U, 0U, 64U, 7U, 0U, 17U}) {
    for (uint32_t first = 0; first < count; first += 8) wanted.emplace_back(table.count, first);
    planner.add({count, 0});
  }
  expect_equal(static_cast<size_t>(table.tiles), wanted.size(), "tiles");
  for (uint32_t tile = 0; tile < table.tiles; ++tile) {
    const int32_t piece = piece_of(table.entries, table.count, tile);
    expect_equal(piece, wanted[tile].first, "piece of tile " + std::to_string(tile));
    expect_equal((tile - table.entries[piece].first_tile) * 8, wanted[tile].second,
                 "first element of tile " + std::to_string(tile));
  }
}

ddp_case(a_table_says_when_it_is_full) {
  Table<Piece, 2> table;
  Planner planner(table, 8);
  expect(planner.empty() && !planner.full(), "empty");
  planner.add({9, 0});
  planner.add({1, 0});
  expect(planner.full(), "full");
  planner.clear();
  expect(planner.empty() && table.tiles == 0, "empty again");
}

ddp_case(long_arrays_are_taken_in_parts) {
  std::vector<std::pair<int64_t, uint32_t>> parts;
  each_part(2 * kMaxPiece + 5, [&](int64_t first, uint32_t length) { parts.emplace_back(first, length); });
  expect(parts == std::vector<std::pair<int64_t, uint32_t>>{{0, kMaxPiece}, {kMaxPiece, kMaxPiece}, {2 * kMaxPiece, 5}},
         "three parts");
  parts.clear();
  each_part(0, [&](int64_t first, uint32_t length) { parts.emplace_back(first, length); });
  expect(parts.empty(), "no part of nothing");
}

const void* address(uintptr_t at) { return reinterpret_cast<const void*>(at); }

ddp_case(arrays_are_brought_to_their_alignment_together) {
  // Four elements at a time: 16 bytes of F32, 8 of F16.
  for (uint32_t past = 0; past < 4; ++past)
    for (uint32_t count = 0; count < 40; ++count) {
      const Lane lanes[] = {{address(4096 + past * 4), 4}, {address(8192 + past * 2), 2}, {nullptr, 4}};
      const Split cut = split(count, 4, lanes);
      const uint32_t head = past == 0 ? 0 : 4 - past;
      expect_equal(cut.vectors, count > head ? (count - head) / 4 : 0, "vectors");
      if (cut.vectors > 0) expect_equal(cut.head, head, "head");
    }
}

ddp_case(arrays_that_cannot_be_aligned_together_have_no_vectors) {
  const Lane apart[] = {{address(4096), 4}, {address(8196), 4}};
  expect_equal(split(1000, 4, apart).vectors, 0U, "vectors of arrays that lie differently");
  const Lane broken[] = {{address(4097), 4}, {address(4097), 4}};
  expect_equal(split(1000, 4, broken).vectors, 0U, "vectors of arrays between elements");
  const Lane widths[] = {{address(4096 + 4), 4}, {address(8192 + 8), 4}};
  expect_equal(split(1000, 4, widths).vectors, 0U, "vectors of arrays with other heads");
}

ddp_case(every_element_is_moved_once) {
  for (uint32_t past = 0; past < 8; ++past)
    for (uint32_t count = 0; count < 100; ++count) {
      const Lane lanes[] = {{address(4096 + past * 2), 2}};
      const Split cut = split(count, 8, lanes);
      std::vector<int> moved(count);
      for (uint32_t v = 0; v < cut.vectors; ++v)
        for (uint32_t k = 0; k < 8; ++k) ++moved.at(cut.head + v * 8 + k);
      for (uint32_t i = 0; i < count - cut.vectors * 8; ++i) ++moved.at(single_at(cut, 8, i));
      expect(moved == std::vector<int>(count, 1), "each once");
    }
}
