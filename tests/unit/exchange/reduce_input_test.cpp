// SPDX-License-Identifier: Apache-2.0
// What one member adds to an exchange, and where results go, without any endpoint.
#include "socket/reduce_input.hpp"

#include "support/check.hpp"
#include "support/values.hpp"

std::vector<collective::BucketSpec::Piece> three_pieces(Bytes& memory) {
  return {{memory.data(), 4, false}, {memory.data() + 16, 4, false}, {memory.data() + 40, 3, false}};
}

ddp_case(a_result_lands_at_once_inside_one_piece_that_somebody_uses) {
  Bytes memory(64);
  socket::PieceInput mine(cpu::ReduceRule{DDP_F32, DDP_SUM, 2}, three_pieces(memory));
  expect_equal(mine.count(), int64_t{11}, "elements");
  expect(mine.landing({1, 3}) == memory.data() + 4 && mine.landing({8, 3}) == memory.data() + 40, "inside a piece");
  expect(mine.landing({7, 2}) == nullptr, "not across two");
  expect(mine.landing({3, 0}) == nullptr, "nothing lands nowhere");
  mine.learn(collective::BucketHeader{false, {0b011}});
  expect(mine.landing({8, 3}) == nullptr && mine.landing({1, 3}) != nullptr, "not in a piece that nobody uses");
}

ddp_case(a_piece_that_nobody_uses_is_left_alone) {
  Bytes memory(64, std::byte{1});
  const Bytes result(44, std::byte{2});
  socket::PieceInput mine(cpu::ReduceRule{DDP_F32, DDP_SUM, 2}, three_pieces(memory));
  mine.learn(collective::BucketHeader{false, {0b101}});
  mine.deliver(result.data(), {0, 11});
  expect(
      memory[15] == std::byte{2} && memory[16] == std::byte{1} && memory[31] == std::byte{1} && memory[40] == std::byte{2},
      "the first and the third only");
}

ddp_case(own_elements_are_copied_only_when_they_lie_apart) {
  Bytes memory = random_values(DDP_F32, 16, 1), scratch(44);
  socket::PieceInput mine(cpu::ReduceRule{DDP_F32, DDP_SUM, 2}, three_pieces(memory));
  expect(mine.node(0, {4, 4}, scratch.data()) == memory.data() + 16, "in place");
  expect(mine.node(0, {0, 11}, scratch.data()) == scratch.data(), "gathered");
  expect(
      std::memcmp(scratch.data(), memory.data(), 32) == 0 && std::memcmp(scratch.data() + 32, memory.data() + 40, 12) == 0,
      "gathered in order");
}

ddp_case(work_is_done_on_what_is_used_of_the_own_slice) {
  Bytes memory(64), scratch(44);
  const std::vector<OwnedSpan> own{{0, 2, 2}, {1, 0, 4}, {2, 0, 1}};
  std::vector<std::array<int64_t, 3>> seen;
  const auto see = [&](int32_t piece, int64_t first, int64_t count) { seen.push_back({piece, first, count}); };
  socket::SliceInput mine(cpu::ReduceRule{DDP_F32, DDP_SUM, 2}, three_pieces(memory), own, {see, {}});
  mine.learn(collective::BucketHeader{false, {0b101}});
  mine.work();
  expect(seen == std::vector<std::array<int64_t, 3>>{{0, 2, 2}, {2, 0, 1}}, "whole spans after a sum");
  seen.clear();
  static_cast<void>(mine.values({3, 6}, scratch.data()));
  expect(seen == std::vector<std::array<int64_t, 3>>{{0, 3, 1}, {2, 0, 1}}, "what is about to travel");
}

ddp_case(slices_of_pieces_are_spans_of_the_flat_array) {
  Bytes memory(64);
  const socket::FlatOwnership owned =
      socket::flat_slices(Ownership::divided({{{0, 0, 4}, {1, 0, 1}}, {{1, 1, 3}}, {{2, 0, 3}}}), three_pieces(memory));
  expect(owned.size() == 3 && owned[0].size() == 1, "pieces that follow each other are one span");
  expect(owned[0][0].count == 5 && owned[1][0].first == 5 && owned[1][0].count == 3 && owned[2][0].first == 8,
         "where they lie");
}

ddp_case(a_part_takes_only_its_own_elements_of_a_segment) {
  const Bytes input = random_values(DDP_I32, 30, 2);
  Bytes output(40, std::byte{1});
  socket::PartInput mine(cpu::ReduceRule{DDP_I32, DDP_SUM, 3}, input.data(), output.data(), 10, 3, 1);
  expect(mine.landing({5, 10}) == nullptr && mine.landing({12, 3}) == output.data() + 8, "landing inside the own part only");
  mine.deliver(input.data() + 20, {5, 10});
  expect(std::memcmp(output.data(), input.data() + 40, 20) == 0 && output[20] == std::byte{1}, "elements 10 to 14");
}
