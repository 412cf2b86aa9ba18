// SPDX-License-Identifier: Apache-2.0
#include "group/generation.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/bytes.hpp"

namespace ddp::group {
namespace {

constexpr int64_t kLine = 64;  // bytes: where a tensor begins in a part, and in the row of those that are shared out

constexpr int64_t in_lines(int64_t bytes) noexcept { return (bytes + kLine - 1) / kLine * kLine; }

/// Bytes of all tensors that are shared out, each from a line on.
int64_t shared_bytes(const std::vector<KeptItem>& items) noexcept {
  int64_t bytes = 0;
  for (const KeptItem& item : items) bytes += item.parts.empty() ? in_lines(item.bytes()) : 0;
  return bytes;
}

/// Where the share of a rank begins; of the rank behind the last: the end.
int64_t share_begin(int64_t all, int32_t ranks, int32_t rank) noexcept {
  const int64_t lines = all / kLine, each = lines / ranks, rest = lines % ranks;
  return (each * rank + std::min<int64_t>(rest, rank)) * kLine;
}

void write_item(ByteWriter& writer, const KeptItem& item) {
  writer.text(item.name).number(static_cast<int32_t>(item.dtype)).number(item.count);
  writer.number(static_cast<uint32_t>(item.parts.size()));
  for (const std::vector<OwnedSpan>& spans : item.parts) {
    writer.number(static_cast<uint32_t>(spans.size()));
    for (const OwnedSpan& span : spans) writer.number(span.piece).number(span.first).number(span.count);
  }
}

KeptItem read_item(ByteReader& reader) {
  KeptItem item;
  item.name = reader.text();
  item.dtype = static_cast<ddp_dtype>(reader.number<int32_t>());
  item.count = reader.number<int64_t>();
  for (auto ranks = reader.number<uint32_t>(); ranks > 0; --ranks) {
    std::vector<OwnedSpan>& spans = item.parts.emplace_back();
    for (auto left = reader.number<uint32_t>(); left > 0; --left) {
      OwnedSpan span;
      span.piece = reader.number<int32_t>();
      span.first = reader.number<int64_t>();
      span.count = reader.number<int64_t>();
      spans.push_back(span);
    }
  }
  return item;
}

}  // namespace

int64_t KeptItem::bytes() const noexcept { return count * dtype_size(dtype); }

bool KeptItem::is_alike(const KeptTensor& tensor) const noexcept {
  return name == tensor.name && dtype == tensor.tensor.dtype && count == tensor.tensor.count;
}

KeptItem item_of(const KeptTensor& tensor) { return {tensor.name, tensor.tensor.dtype, tensor.tensor.count, tensor.parts}; }

std::vector<KeptPiece> pieces_of(const std::vector<KeptItem>& items, int32_t ranks, int32_t rank) {
  const int64_t all = shared_bytes(items);
  const int64_t begin = share_begin(all, ranks, rank), end = share_begin(all, ranks, rank + 1);
  std::vector<KeptPiece> pieces;
  int64_t row = 0, at = 0;
  const auto add = [&](size_t item, int64_t first, int64_t bytes, int64_t held) {
    if (bytes <= 0) return;
    pieces.push_back({item, first, bytes, held, at});
    at = in_lines(at + bytes);
  };
  for (size_t k = 0; k < items.size(); ++k) {
    const KeptItem& item = items[k];
    if (item.parts.empty()) {
      const int64_t first = std::max<int64_t>(begin - row, 0);
      add(k, first, std::min(end - row, item.bytes()) - first, first);
      row += in_lines(item.bytes());
      continue;
    }
    const int64_t element = dtype_size(item.dtype);
    int64_t held = 0;
    for (const OwnedSpan& span : item.parts[static_cast<size_t>(rank)]) {
      add(k, span.first * element, span.count * element, held);
      held += span.count * element;
    }
  }
  return pieces;
}

int64_t end_of(const std::vector<KeptPiece>& pieces) noexcept {
  return pieces.empty() ? 0 : in_lines(pieces.back().at + pieces.back().bytes);
}

std::string write_table(const KeptTable& table) {
  ByteWriter writer;
  writer.number(table.ranks).number(static_cast<uint32_t>(table.followers.size()));
  for (size_t k = 0; k < table.followers.size(); ++k)
    writer.number(table.followers[k]).number(static_cast<uint64_t>(table.ends[k]));
  for (const KeptItem& item : table.items) write_item(writer, item);
  return std::move(writer).bytes();
}

KeptTable read_table(std::string_view bytes) {
  ByteReader reader(bytes);
  KeptTable table;
  table.ranks = reader.number<int32_t>();
  for (auto left = reader.number<uint32_t>(); left > 0; --left) {
    table.followers.push_back(reader.number<int32_t>());
    table.ends.push_back(reader.number<uint64_t>());
  }
  while (!reader.at_end()) table.items.push_back(read_item(reader));
  if (table.ranks < 1 || (!table.ends.empty() && table.ends.back() != table.items.size()))
    throw Error(DDP_ERROR_INTERNAL, "a rank tells of a generation that cannot be");
  return table;
}

std::string write_note(const KeptNote& note) {
  ByteWriter writer;
  writer.number(note.epoch).number(note.step).text(note.bytes);
  for (const std::string& fields : note.fields) writer.text(fields);
  return std::move(writer).bytes();
}

KeptNote read_note(std::string_view bytes) {
  ByteReader reader(bytes);
  KeptNote note;
  note.epoch = reader.number<int64_t>();
  note.step = reader.number<int64_t>();
  note.bytes = reader.text();
  while (!reader.at_end()) note.fields.emplace_back(reader.text());
  return note;
}

std::string write_holdings(const Holdings& holdings) {
  ByteWriter writer;
  writer.number(static_cast<uint32_t>(holdings.torn.size()));
  for (const int32_t place : holdings.torn) writer.number(place);
  writer.number(holdings.steps);
  writer.number(holdings.newest.set).number(holdings.newest.number);
  for (const HeldPart& part : holdings.parts)
    writer.number(part.generation.set)
        .number(part.generation.number)
        .number(part.ranks)
        .number(part.rank)
        .number(static_cast<uint8_t>(part.is_own));
  return std::move(writer).bytes();
}

Holdings read_holdings(std::string_view bytes) {
  ByteReader reader(bytes);
  Holdings holdings;
  for (auto left = reader.number<uint32_t>(); left > 0; --left) holdings.torn.push_back(reader.number<int32_t>());
  holdings.steps = reader.number<int64_t>();
  holdings.newest.set = reader.number<int64_t>();
  holdings.newest.number = reader.number<int64_t>();
  while (!reader.at_end()) {
    HeldPart part;
    part.generation.set = reader.number<int64_t>();
    part.generation.number = reader.number<int64_t>();
    part.ranks = reader.number<int32_t>();
    part.rank = reader.number<int32_t>();
    part.is_own = reader.number<uint8_t>() != 0;
    if (part.ranks < 1 || part.rank < 0 || part.rank >= part.ranks)
      throw Error(DDP_ERROR_INTERNAL, "a rank tells of a part that cannot be");
    holdings.parts.push_back(part);
  }
  return holdings;
}

std::optional<Found> find_generation(const std::vector<Holdings>& by_rank) {
  std::map<GenerationName, std::vector<int32_t>> givers;
  for (const bool own : {true, false})
    for (size_t rank = 0; rank < by_rank.size(); ++rank)
      for (const HeldPart& part : by_rank[rank].parts) {
        if (part.is_own != own) continue;
        std::vector<int32_t>& found = givers[part.generation];
        found.resize(static_cast<size_t>(part.ranks), -1);
        int32_t& giver = found[static_cast<size_t>(part.rank)];
        if (giver < 0) giver = static_cast<int32_t>(rank);
      }
  for (auto each = givers.rbegin(); each != givers.rend(); ++each)
    if (std::find(each->second.begin(), each->second.end(), -1) == each->second.end())
      return Found{each->first, std::move(each->second)};
  return std::nullopt;
}

}  // namespace ddp::group
