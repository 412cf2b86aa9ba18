// SPDX-License-Identifier: Apache-2.0
// What the system reports about memory on huge pages, read without the library.
#pragma once

#include "support/check.hpp"

namespace ddp::test {

/// What the system reports about the mapping that contains `address`, in KiB: "AnonHugePages:", "ShmemPmdMapped:", "Rss:".
/// -1: nothing.
inline long long kib_of(const void* address, const char* field) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<unsigned long long>(address);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2) inside = begin <= wanted && wanted < end;
    if (inside && line.rfind(field, 0) == 0) return std::stoll(line.substr(std::strlen(field)));
  }
  return -1;
}

/// Does this system move memory of a file (a memfd), or private memory (-1), onto huge pages when it is asked?
inline bool system_moves(int file) {
  constexpr size_t kHuge = size_t{2} << 20;
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, Linux 6.1
  char setting[64] = {};
  std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled").getline(setting, sizeof setting);
  if (std::strstr(setting, "[never]") != nullptr || setting[0] == '\0') return false;
  void* const all = mmap(nullptr, 2 * kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(all != MAP_FAILED, "addresses");
  auto* const at = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(all) + kHuge - 1) / kHuge * kHuge);
  expect(mmap(at, kHuge, PROT_READ | PROT_WRITE, MAP_FIXED | (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED), file,
              0) == at,
         "memory");
  at[0] = 1;
  const bool moves = madvise(at, kHuge, kCollapse) == 0;
  munmap(all, 2 * kHuge);
  return moves;
}

}  // namespace ddp::test
