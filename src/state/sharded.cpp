#include "state/sharded.hpp"

#include <algorithm>
#include <cstring>

namespace ddp::state {
namespace {

struct Bytes {
  int64_t begin = 0;  // of the flat tensor
  int64_t end = 0;
};

/// What lies in the chunk of the part of a rank.
Bytes overlap(const Item& item, size_t rank, int64_t at, int64_t bytes) noexcept {
  const int64_t size = dtype_size(item.tensor.dtype);
  const OwnedSpan& part = item.parts[rank];
  return Bytes{std::max(at, part.first * size), std::min(at + bytes, (part.first + part.count) * size)};
}

/// This rank's memory at a byte of the flat tensor.
std::byte* own(const Item& item, size_t rank, int64_t byte) noexcept {
  return item.tensor.data + (byte - item.parts[rank].first * dtype_size(item.tensor.dtype));
}

}  // namespace

void gather_chunk(Group& group, const Item& item, int64_t at, int64_t bytes, std::vector<std::byte>& buffer) {
  if (static_cast<int64_t>(buffer.size()) < bytes) buffer.resize(static_cast<size_t>(bytes));
  for (size_t rank = 0; rank < item.parts.size(); ++rank) {
    const Bytes range = overlap(item, rank, at, bytes);
    if (range.end <= range.begin) continue;
    std::byte* const place = buffer.data() + (range.begin - at);
    const int64_t length = range.end - range.begin;
    if (static_cast<int32_t>(rank) == group.rank()) std::memcpy(place, own(item, rank, range.begin), static_cast<size_t>(length));
    group.broadcast(flat_tensor(place, DDP_U8, length), static_cast<int32_t>(rank));
  }
}

void keep_part(const Group& group, const Item& item, int64_t at, int64_t bytes, const std::byte* chunk) noexcept {
  const auto rank = static_cast<size_t>(group.rank());
  const Bytes range = overlap(item, rank, at, bytes);
  if (range.end > range.begin)
    std::memcpy(own(item, rank, range.begin), chunk + (range.begin - at), static_cast<size_t>(range.end - range.begin));
}

}  // namespace ddp::state
