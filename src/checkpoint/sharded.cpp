#include "checkpoint/sharded.hpp"

#include <algorithm>

namespace ddp::checkpoint {
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

/// The first byte of this rank's part, in the flat tensor.
int64_t begin_of_own(const group::Group& group, const Item& item) noexcept {
  return item.parts[static_cast<size_t>(group.rank())].first * dtype_size(item.tensor.dtype);
}

}  // namespace

void put_part(const group::Group& group, gpu::Transfer& transfer, const Item& item, int64_t at, int64_t bytes,
              std::byte* chunk) {
  const Bytes range = overlap(item, static_cast<size_t>(group.rank()), at, bytes);
  if (range.end > range.begin)
    transfer.read_to(item.tensor, range.begin - begin_of_own(group, item), range.end - range.begin,
                     chunk + (range.begin - at));
}

void gather_chunk(group::Group& group, const Item& item, int64_t at, int64_t bytes, std::byte* chunk) {
  for (size_t rank = 0; rank < item.parts.size(); ++rank) {
    const Bytes range = overlap(item, rank, at, bytes);
    if (range.end > range.begin)
      group.broadcast(flat_tensor(chunk + (range.begin - at), DDP_U8, range.end - range.begin), static_cast<int32_t>(rank));
  }
}

void keep_part(const group::Group& group, gpu::Transfer& transfer, const Item& item, int64_t at, int64_t bytes,
               const std::byte* chunk) {
  const Bytes range = overlap(item, static_cast<size_t>(group.rank()), at, bytes);
  if (range.end > range.begin)
    transfer.write_from(item.tensor, range.begin - begin_of_own(group, item), range.end - range.begin,
                        chunk + (range.begin - at));
}

}  // namespace ddp::checkpoint
