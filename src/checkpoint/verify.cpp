// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/verify.hpp"

#include <algorithm>

#include "checkpoint/parts.hpp"
#include "core/hash.hpp"

namespace ddp::checkpoint {
namespace {

Layout read_layout(Source& source, int64_t cap) {
  std::string head(static_cast<size_t>(kLengthBytes), '\0');
  if (source.size(kLengthBytes) < kLengthBytes) throw Error(DDP_ERROR_IO, "it is too short for a safetensors file");
  source.read(0, head.data(), kLengthBytes);
  const int64_t length = parse_length(head, cap);
  if (source.size(kLengthBytes + length) < kLengthBytes + length)
    throw Error(DDP_ERROR_IO, "it ends inside its header of " + std::to_string(length) + " bytes; it is truncated");
  head.resize(static_cast<size_t>(kLengthBytes + length));
  source.read(kLengthBytes, head.data() + kLengthBytes, length);
  return read_head(head);
}

void check_length(Source& source, const Layout& layout) {
  const int64_t there = source.size(layout.file_bytes);
  if (there < layout.file_bytes)
    throw make_error(DDP_ERROR_IO, "it is truncated: its header declares %lld bytes, but it has %lld",
                     static_cast<long long>(layout.file_bytes), static_cast<long long>(there));
  if (there > layout.file_bytes)
    throw make_error(DDP_ERROR_IO, "it has more than the %lld bytes that its header declares",
                     static_cast<long long>(layout.file_bytes));
}

uint64_t hash_of(Source& source, int64_t offset, int64_t bytes, std::vector<std::byte>& buffer) {
  Hasher hasher;
  for (int64_t at = 0; at < bytes; at += kChunkBytes) {
    const int64_t now = std::min(kChunkBytes, bytes - at);
    source.read(offset + at, buffer.data(), now);
    hasher.add(buffer.data(), static_cast<size_t>(now));
  }
  return hasher.value();
}

/// What is asked for besides the model.
std::vector<Part> listed(const Parts& parts) {
  std::vector<Part> all;
  if (!parts.optimizers.empty()) all.push_back(Part::kOptimizer);
  if (parts.ema != nullptr) all.push_back(Part::kEma);
  if (parts.outer != nullptr) all.push_back(Part::kOuter);
  return all;
}

}  // namespace

Opened verify(Source& source, const Parts& parts, const Manifest& manifest, bool partial, bool only_own) {
  Opened opened;
  opened.layout = read_layout(source, header_cap(parts.model.table()));
  const Layout& layout = opened.layout;
  if (only_own && !layout.checked)
    throw Error(DDP_ERROR_IO, "it was not written by libddp, so nothing shows that it is whole");
  check_kinds(parts, layout.header.metadata, partial);
  opened.match = compare(manifest.items, layout, listed(parts));
  refuse_differences(opened.match, manifest.items, partial);
  (void)read_counters(layout.header.metadata);
  check_length(source, layout);
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kChunkBytes, layout.file_bytes)));
  for (const size_t position : opened.match.places) {
    if (position == Match::kAbsent) continue;
    const TensorEntry& entry = layout.header.tensors[position];
    const int64_t offset = layout.data_begin + entry.begin;
    const uint64_t hash = hash_of(source, offset, entry.bytes(), buffer);
    if (layout.checked && hash != layout.hashes[position])
      throw Error(DDP_ERROR_IO, "the data of the tensor \"" + entry.name + "\" at byte " + std::to_string(offset) +
                                    " does not match its checksum; it is damaged");
    opened.places.push_back({offset, hash});
  }
  return opened;
}

}  // namespace ddp::checkpoint
