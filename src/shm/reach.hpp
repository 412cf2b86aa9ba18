// SPDX-License-Identifier: Apache-2.0
// Transport::place_of and reach for the memory of a host's ranks.
#pragma once

#include "exchange/transport.hpp"
#include "shm/mesh.hpp"

namespace ddp::shm {

[[nodiscard]] inline int64_t place_in(const Mesh& mesh, const void* data, int64_t bytes) noexcept {
  const int64_t offset = mesh.own->offset_of(data, bytes);
  return offset == kNotInReach ? collective::Transport::kNoPlace : offset;
}

/// `of`: a rank of the mesh.
[[nodiscard]] inline std::shared_ptr<std::byte> reach(const Mesh& mesh, int32_t of, int64_t place) noexcept {
  const std::shared_ptr<Mapping>& mapping = mesh.mappings[static_cast<size_t>(of)];
  if (place < 0 || place >= mapping->size()) return nullptr;
  return {mapping, mapping->base() + place};
}

}  // namespace ddp::shm
