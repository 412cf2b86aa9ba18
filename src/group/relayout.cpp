// SPDX-License-Identifier: Apache-2.0
#include "group/relayout.hpp"

#include <algorithm>

#include "core/hash.hpp"
#include "group/consensus.hpp"

namespace ddp::group {
namespace {

constexpr int64_t kChunkBytes = int64_t{4} << 20;

/// Bytes [at, at + bytes) of a part, which has these pieces, into what this rank has of the tensors.
void take(gpu::Transfer& transfer, const std::vector<KeptPiece>& pieces, const std::vector<KeptTensor>& tensors,
          int32_t rank, int64_t at, int64_t bytes, const std::byte* from) {
  for (const KeptPiece& piece : pieces) {
    const int64_t begin = std::max(at, piece.at), end = std::min(at + bytes, piece.at + piece.bytes);
    if (begin >= end) continue;
    const KeptTensor& to = tensors[piece.item];
    if (to.tensor.count == 0) continue;
    const int64_t first = piece.first + begin - piece.at, last = first + end - begin;  // bytes of the tensor
    if (to.parts.empty()) {
      transfer.write_from(to.tensor, first, last - first, from + (begin - at));
      continue;
    }
    const int64_t element = dtype_size(to.tensor.dtype);
    int64_t held = 0;
    for (const OwnedSpan& span : to.parts[static_cast<size_t>(rank)]) {
      const int64_t mine = std::max(first, span.first * element);
      const int64_t till = std::min(last, (span.first + span.count) * element);
      if (mine < till)
        transfer.write_from(to.tensor, held + mine - span.first * element, till - mine,
                            from + (begin - at) + (mine - first));
      held += span.count * element;
    }
  }
}

}  // namespace

const gpu::Device* device_of(const std::vector<KeptTensor>& tensors) {
  std::vector<Tensor> all;
  for (const KeptTensor& each : tensors) all.push_back(each.tensor);
  return gpu::device_of(all);
}

uint64_t give_parts(Group& group, const KeptTable& table, const std::vector<int32_t>& givers, const FindPart& find,
                    const std::vector<KeptTensor>& tensors, gpu::Transfer& transfer) {
  std::vector<std::byte> chunk(static_cast<size_t>(kChunkBytes));
  Hasher hasher;
  for (int32_t part = 0; part < table.ranks; ++part) {
    const int32_t giver = givers[static_cast<size_t>(part)];
    const std::vector<KeptPiece> pieces = pieces_of(table.items, table.ranks, part);
    const std::byte* const from = group.rank() == giver ? find(part) : nullptr;
    for (int64_t at = 0, end = end_of(pieces); at < end; at += kChunkBytes) {
      const int64_t bytes = std::min(kChunkBytes, end - at);
      if (from != nullptr) std::copy_n(from + at, bytes, chunk.data());
      group.broadcast(flat_tensor(chunk.data(), DDP_U8, bytes), giver);
      hasher.add(chunk.data(), static_cast<size_t>(bytes));
      or_break(group, Part::kOwn, [&] { take(transfer, pieces, tensors, group.rank(), at, bytes, chunk.data()); });
    }
  }
  or_break(group, Part::kOwn, [&] { transfer.finish(); });
  return hasher.value();
}

}  // namespace ddp::group
