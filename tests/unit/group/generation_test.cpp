// SPDX-License-Identifier: Apache-2.0
// Which rank writes which bytes of a generation, the reports of ranks about their parts, and which generation a recovery
// takes.
#include "group/generation.hpp"

#include "support/check.hpp"

using namespace ddp::group;

/// A tensor of which the ranks hold parts, cut at random.
KeptItem cut(std::mt19937& random, const std::string& name, int64_t count, int32_t ranks) {
  KeptItem item{name, DDP_F32, count, {}};
  item.parts.resize(static_cast<size_t>(ranks));
  for (int64_t at = 0; at < count;) {
    const int64_t now = std::min<int64_t>(count - at, 1 + static_cast<int64_t>(random() % 50));
    item.parts[random() % item.parts.size()].push_back({0, at, now});
    at += now;
  }
  return item;
}

/// Every byte of every tensor is in one part, once; places in a part do not overlap; what a rank holds of a tensor that is
/// cut comes from its own memory, in order.
ddp_case(every_byte_is_written_once) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const auto ranks = static_cast<int32_t>(1 + random() % 7);
    std::vector<KeptItem> items;
    for (size_t k = random() % 6; k > 0; --k) {
      const std::string name = std::to_string(k);
      const auto count = static_cast<int64_t>(random() % 400);
      items.push_back(random() % 2 == 0 ? cut(random, name, count, ranks) : KeptItem{name, DDP_BF16, count, {}});
    }
    std::vector<std::vector<int>> written;
    for (const KeptItem& item : items) written.emplace_back(static_cast<size_t>(item.bytes()));
    for (int32_t rank = 0; rank < ranks; ++rank) {
      int64_t end = 0;
      const std::vector<KeptPiece> pieces = pieces_of(items, ranks, rank);
      for (const KeptPiece& piece : pieces) {
        expect(piece.at >= end && piece.at % 64 == 0, "a place behind the last, on a line");
        end = piece.at + piece.bytes;
        for (int64_t at = piece.first; at < piece.first + piece.bytes; ++at) ++written[piece.item][static_cast<size_t>(at)];
        const KeptItem& item = items[piece.item];
        if (item.parts.empty()) expect_equal(piece.held, piece.first, "of a tensor that is here whole");
        int64_t held = 0;
        for (const OwnedSpan& span : item.parts.empty() ? std::vector<OwnedSpan>() : item.parts[static_cast<size_t>(rank)]) {
          if (span.first * 4 == piece.first) expect_equal(piece.held, held, "of the rank's own parts");
          held += span.count * 4;
        }
      }
      expect(end_of(pieces) >= end && end_of(pieces) < end + 64, "the end of the part");
    }
    for (const std::vector<int>& bytes : written)
      expect(std::all_of(bytes.begin(), bytes.end(), [](int times) { return times == 1; }),
             "each byte once, seed " + std::to_string(seed));
  }
}

ddp_case(shares_are_even) {
  const std::vector<KeptItem> items = {{"a", DDP_F32, 1'000'000, {}}, {"b", DDP_F64, 3, {}}};
  for (int32_t rank = 0; rank < 7; ++rank) {
    const int64_t bytes = end_of(pieces_of(items, 7, rank));
    expect(bytes > 571'300 && bytes < 571'600, "a seventh: " + std::to_string(bytes));
  }
}

ddp_case(tables_and_notes_come_back) {
  std::mt19937 random(1);
  KeptTable table{3, {0, 2}, {1, 2}, {cut(random, "cut", 100, 3), {"whole", DDP_F64, 9, {}}}};
  const KeptTable read = read_table(write_table(table));
  expect(read.ranks == 3 && read.followers == table.followers && read.ends == table.ends, "the models");
  expect(read.items.size() == 2 && read.items[1].name == "whole" && read.items[1].dtype == DDP_F64, "the tensors");
  for (size_t rank = 0; rank < 3; ++rank)
    expect_equal(count_of(read.items[0].parts[rank]), count_of(table.items[0].parts[rank]), "the parts");
  const KeptNote note = read_note(write_note({4, 17, {"first", ""}, std::string("\0own", 4)}));
  expect(note.epoch == 4 && note.step == 17 && note.bytes.size() == 4 && note.fields.size() == 2, "the note");
}

ddp_case(bytes_that_cannot_be_are_refused) {
  KeptTable none{0, {}, {}, {}};
  expect_error(DDP_ERROR_INTERNAL, [&] { (void)read_table(write_table(none)); }, {"cannot be"});
  Holdings wrong;
  wrong.parts.push_back({{1, 1}, 2, 2, false});
  expect_error(DDP_ERROR_INTERNAL, [&] { (void)read_holdings(write_holdings(wrong)); }, {"cannot be"});
}

Holdings holding(const std::vector<HeldPart>& parts) {
  Holdings made;
  made.torn = {1};
  made.steps = 12;
  made.newest = {5, 6};
  made.parts = parts;
  return read_holdings(write_holdings(made));
}

ddp_case(the_newest_that_is_whole_is_taken) {
  // Of three ranks the second has died. The last has its part of the generation before only, and its own of both.
  const std::vector<Holdings> all = {
      holding({{{1, 8}, 3, 0, true}, {{1, 7}, 3, 0, true}, {{1, 7}, 3, 1, false}}),
      holding({{{1, 7}, 3, 1, false}, {{1, 8}, 3, 2, true}, {{1, 7}, 3, 2, true}, {{1, 8}, 3, 0, false}})};
  const std::optional<Found> found = find_generation(all);
  expect(found && found->generation == GenerationName{1, 7}, "the one before");
  expect(found->givers == std::vector<int32_t>{0, 0, 1}, "who gives each part");
  expect(all[0].torn == std::vector<int32_t>{1} && all[0].steps == 12 && all[0].newest.number == 6, "the rest");
}

/// A later set of buffers counts as newer, whole or not; a set that a recovery has begun and not ended is passed over.
ddp_case(a_set_that_is_not_whole_is_passed_over) {
  std::vector<Holdings> all = {holding({{{1, 9}, 2, 0, true}, {{1, 9}, 2, 1, false}, {{2, 10}, 2, 0, true}}), holding({})};
  expect(find_generation(all)->generation == GenerationName{1, 9}, "the old set");
  all[1] = holding({{{2, 10}, 2, 1, true}});
  const std::optional<Found> found = find_generation(all);
  expect(found && found->generation == GenerationName{2, 10}, "the new set");
  expect(found->givers == std::vector<int32_t>{0, 1}, "own parts");
  expect(!find_generation({holding({{{3, 1}, 2, 0, true}})}).has_value(), "a part is gone");
  expect(!find_generation({holding({}), holding({})}).has_value(), "nothing was kept");
}
