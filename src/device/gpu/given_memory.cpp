// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/given_memory.hpp"

#include <utility>

#include "core/attempt.hpp"

namespace ddp::gpu {

GivenMemory::~GivenMemory() {
  if (given_.empty() || !device_.frees().may_free(device_.name(), *device_.owner().text())) return;
  for (const auto& [memory, given] : given_) give_back(memory, given.nccl);
}

void GivenMemory::take(void* memory, int64_t bytes, const ddp_nccl_table& nccl) {
  const std::lock_guard lock(mutex_);
  on_error(
      [&] {
        given_.emplace(static_cast<std::byte*>(memory), Given{bytes, &nccl, {}});
      },
      [&](const Error&) { give_back(memory, &nccl); });
}

void GivenMemory::take(device::Memory memory, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  std::byte* const data = memory.data();
  given_.emplace(data, Given{bytes, nullptr, std::move(memory)});
}

std::optional<GivenMemory::Piece> GivenMemory::piece_of(const std::byte* data, int64_t bytes) const noexcept {
  const std::lock_guard lock(mutex_);
  auto after = given_.upper_bound(const_cast<std::byte*>(data));
  if (after == given_.begin()) return std::nullopt;
  const auto& [begin, given] = *--after;
  return data + bytes <= begin + given.bytes ? std::optional(Piece{begin, given.bytes}) : std::nullopt;
}

bool GivenMemory::owns(const void* memory) const noexcept {
  const std::lock_guard lock(mutex_);
  return given_.count(static_cast<std::byte*>(const_cast<void*>(memory))) != 0;
}

void GivenMemory::free(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = given_.find(static_cast<std::byte*>(memory));
  if (found == given_.end()) return;
  give_back(memory, found->second.nccl);
  given_.erase(found);
}

void GivenMemory::give_back(void* memory, const ddp_nccl_table* nccl) const noexcept {
  if (nccl == nullptr) return;
  const Device::Current current(device_, std::nothrow);
  static_cast<void>(nccl->mem_free(memory));
}

}  // namespace ddp::gpu
