// SPDX-License-Identifier: Apache-2.0
#include "os/huge_pages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace ddp::os {
namespace {

// Blocks that are moved by one call: enough to make the cost of calls negligible, few enough to keep a limit.
constexpr int64_t kMovedAtOnce = 8 * kHugePage;

uintptr_t up(uintptr_t address) noexcept { return (address + kHugePage - 1) / kHugePage * kHugePage; }

}  // namespace

bool allows_huge_pages(const char* setting) noexcept {
  return std::strstr(setting, "[always]") != nullptr || std::strstr(setting, "[madvise]") != nullptr;
}

bool huge_pages_allowed() noexcept {
  std::FILE* file = std::fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
  if (file == nullptr) return false;
  std::array<char, 64> line{};
  const bool read = std::fgets(line.data(), static_cast<int>(line.size()), file) != nullptr;
  std::fclose(file);
  return read && allows_huge_pages(line.data());
}

int64_t to_huge_pages(void* data, int64_t bytes, Deadline limit) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = up(address);
  const uintptr_t end = (address + static_cast<uintptr_t>(std::max<int64_t>(bytes, 0))) / kHugePage * kHugePage;
  if (end <= begin || !huge_pages_allowed()) return 0;
  const int error = errno;
  int64_t moved = 0;
  for (uintptr_t at = begin; at < end && !limit.passed(); at += kMovedAtOnce) {
    const size_t length = std::min<uintptr_t>(kMovedAtOnce, end - at);
    if (madvise(reinterpret_cast<void*>(at), length, MADV_COLLAPSE) != 0) break;
    moved += static_cast<int64_t>(length);
  }
  errno = error;
  return moved;
}

void* reserve_addresses(size_t bytes) noexcept {
  const size_t wanted = bytes + kHugePage;
  void* const all = mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(all);
  const uintptr_t begin = up(address);
  if (begin > address) munmap(all, begin - address);
  const uintptr_t past = (begin + bytes + 4095) / 4096 * 4096;
  if (address + wanted > past) munmap(reinterpret_cast<void*>(past), address + wanted - past);
  return reinterpret_cast<void*>(begin);
}

void* map_zeroed(size_t bytes) noexcept {
  void* const place = reserve_addresses(bytes);
  if (place == nullptr) return nullptr;
  void* const memory = mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (memory == MAP_FAILED) {
    unmap(place, bytes);
    return nullptr;
  }
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

void unmap(void* memory, size_t bytes) noexcept { munmap(memory, bytes); }

}  // namespace ddp::os
