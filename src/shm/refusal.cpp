// SPDX-License-Identifier: Apache-2.0
#include "shm/refusal.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ddp::shm {
namespace {

constexpr uintptr_t kPage = 4096;

struct Flag {
  const char* letters;
  const char* reason;
};
constexpr Flag kRefused[] = {{"lo", "they are locked in memory (mlock)"},
                             {"dc", "they are kept from forks (MADV_DONTFORK)"},
                             {"wf", "forks find zeros there (MADV_WIPEONFORK)"},
                             {"dd", "they are kept out of core dumps (MADV_DONTDUMP)"},
                             {"mg", "the kernel may merge their pages (MADV_MERGEABLE)"},
                             {"um", "userfaultfd watches them"},
                             {"uw", "userfaultfd watches them"},
                             {"ui", "userfaultfd watches them"},
                             {"gd", "they are a stack"},
                             {"ss", "they are a shadow stack"},
                             {"gu", "there are guard pages in them"},
                             {"sl", "their mapping is sealed (mseal)"},
                             {"mt", "their pages are tagged (MTE)"},
                             {"pf", "they are memory of a device"},
                             {"io", "they are memory of a device"},
                             {"mm", "they are memory of a device"},
                             {"ht", "they are on pages of hugetlbfs"}};

bool begins_with(const char* text, const char* with) noexcept { return std::strncmp(text, with, std::strlen(with)) == 0; }

/// The first arena of Go's heap on 64-bit systems begins at 0xc000000000.
bool is_heap_of_go(const os::Area& area) noexcept { return area.begin >> 32 == 0xc0 || begins_with(area.name, "[anon: Go"); }

std::string refusal_of(const os::Area& area) {
  if (area.is_shared()) return "they are shared memory already";
  if (area.access[0] != 'r' || area.access[1] != 'w') return "a part of them cannot be read and written";
  if (area.access[2] == 'x') return "a part of them is executable";
  // What was shared once is a private mapping of such a file.
  if (area.file.inode != 0 && !begins_with(area.name, "/memfd:libddp"))
    return std::string("they are a mapping of ") + area.name;
  if (begins_with(area.name, "[stack")) return "they are a stack";
  if (area.flags[0] == '\0') return "this system does not say what is special about them (VmFlags in /proc/self/smaps)";
  for (const Flag& flag : kRefused)
    if (area.has_flag(flag.letters)) return flag.reason;
  if (area.protection_key != 0) return "they have a protection key";
  if (is_heap_of_go(area)) return "they belong to Go's heap, whose runtime gives pages back to the system as it likes";
  return {};
}

/// VmPin of /proc/self/status, in KiB; -1: unknown.
long pinned_kib() noexcept {
  std::FILE* const file = std::fopen("/proc/self/status", "re");
  if (file == nullptr) return -1;
  long kib = -1;
  std::array<char, 256> line{};
  while (kib < 0 && std::fgets(line.data(), static_cast<int>(line.size()), file) != nullptr)
    if (begins_with(line.data(), "VmPin:")) kib = std::strtol(line.data() + 6, nullptr, 10);
  std::fclose(file);
  return kib;
}

bool several_nodes() noexcept {
  std::FILE* const file = std::fopen("/sys/devices/system/node/online", "re");
  if (file == nullptr) return false;
  std::array<char, 64> line{};
  const bool read = std::fgets(line.data(), static_cast<int>(line.size()), file) != nullptr;
  std::fclose(file);
  return read && std::strpbrk(line.data(), "-,") != nullptr;
}

/// Are pages of [begin, end) on different NUMA nodes? The copy would be on one.
bool is_on_several_nodes(uintptr_t begin, uintptr_t end) noexcept {
  constexpr size_t kMost = 512;
  std::array<void*, kMost> pages{};
  std::array<int, kMost> nodes{};
  int first = -1;
  for (uintptr_t at = begin; at < end;) {
    size_t count = 0;
    for (; count < kMost && at < end; at += kPage) pages[count++] = reinterpret_cast<void*>(at);
    if (syscall(SYS_move_pages, 0, count, pages.data(), nullptr, nodes.data(), 0) != 0) return false;
    for (size_t i = 0; i < count; ++i) {
      if (nodes[i] < 0) continue;  // not touched yet
      if (first >= 0 && nodes[i] != first) return true;
      first = nodes[i];
    }
  }
  return false;
}

}  // namespace

std::string refusal_of(const std::vector<os::Area>& areas, uintptr_t begin, uintptr_t end) {
  uintptr_t at = begin;
  for (const os::Area& area : areas) {
    if (area.begin > at) break;
    std::string reason = refusal_of(area);
    if (!reason.empty()) return reason;
    at = area.end;
  }
  return at < end ? "a part of them is not mapped" : "";
}

std::string refusal_of(const void* data, int64_t bytes) {
  if (bytes < kLeastShared) return "memory below 1 MiB is not shared";
  if (sysconf(_SC_PAGESIZE) != static_cast<long>(kPage)) return "this system has no pages of 4 KiB";
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes);
  const long pinned = pinned_kib();
  if (pinned != 0)
    return pinned < 0 ? "this system does not say whether memory is pinned (VmPin in /proc/self/status)"
                      : "this process has pinned memory (VmPin in /proc/self/status): io_uring or RDMA may use these pages";
  bool has_java = false;
  (void)os::walk_areas(os::Detail::kPlaces, [&](const os::Area& area) {
    has_java = std::strstr(area.name, "/libjvm.so") != nullptr;
    return !has_java;
  });
  if (has_java) return "a virtual machine of Java is in this process, and they may belong to its heap";
  const auto here = reinterpret_cast<uintptr_t>(&has_java);
  std::vector<os::Area> areas;
  bool is_stack = false;
  const bool read = os::walk_areas(os::Detail::kFlags, [&](const os::Area& area) {
    if (area.begin < end && area.end > begin) {
      areas.push_back(area);
      is_stack = is_stack || (area.begin <= here && here < area.end);
    }
    return area.end < end;
  });
  if (!read) return "this system has no /proc/self/smaps, which says what is special about them";
  if (is_stack) return "they are a stack";
  std::string reason = refusal_of(areas, begin, end);
  if (reason.empty() && several_nodes() && is_on_several_nodes(begin / kPage * kPage, end))
    reason = "their pages are on several NUMA nodes, and a copy would be on one";
  return reason;
}

}  // namespace ddp::shm
