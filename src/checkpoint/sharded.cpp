// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/sharded.hpp"

#include <algorithm>

namespace ddp::checkpoint {
namespace {

/// Calls fn(begin, bytes, before) for the overlap of [at, at + bytes) with each part of a rank: `begin` in bytes of the flat
/// tensor, `before` in bytes of the rank's own data.
template <class Fn>
void each_overlap(const Item& item, int32_t rank, int64_t at, int64_t bytes, const Fn& fn) {
  const int64_t size = dtype_size(item.tensor.dtype);
  int64_t held = 0;
  for (const OwnedSpan& part : item.parts[static_cast<size_t>(rank)]) {
    const int64_t first = part.first * size, begin = std::max(at, first);
    const int64_t end = std::min(at + bytes, first + part.count * size);
    if (begin < end) fn(begin, end - begin, held + begin - first);
    held += part.count * size;
  }
}

}  // namespace

void put_part(const group::Group& group, gpu::Transfer& transfer, const Item& item, int64_t at, int64_t bytes,
              std::byte* chunk) {
  each_overlap(item, group.rank(), at, bytes, [&](int64_t begin, int64_t count, int64_t before) {
    transfer.read_to(item.tensor, before, count, chunk + (begin - at));
  });
}

void gather_chunk(group::Group& group, const Item& item, int64_t at, int64_t bytes, std::byte* chunk) {
  for (int32_t rank = 0; rank < group.size(); ++rank)
    each_overlap(item, rank, at, bytes, [&](int64_t begin, int64_t count, int64_t) {
      group.broadcast(flat_tensor(chunk + (begin - at), DDP_U8, count), rank);
    });
}

void keep_part(const group::Group& group, gpu::Transfer& transfer, const Item& item, int64_t at, int64_t bytes,
               const std::byte* chunk) {
  each_overlap(item, group.rank(), at, bytes, [&](int64_t begin, int64_t count, int64_t before) {
    transfer.write_from(item.tensor, before, count, chunk + (begin - at));
  });
}

}  // namespace ddp::checkpoint
