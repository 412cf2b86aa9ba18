// SPDX-License-Identifier: Apache-2.0
// What is mapped where in this process, as /proc/self/maps and /proc/self/smaps have it.
// Allocates nothing and takes no lock, so a fork may use it before anything else there; throws what a visitor throws.
// Threads: any; what other threads map and unmap meanwhile may be missing.
// Tested by unit/os/mappings_test.cpp.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace ddp::os {

/// The file behind a mapping.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  [[nodiscard]] bool operator==(const FileIdentity&) const noexcept = default;
};

struct Area {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  char access[5] = "----";  // "rw-p": p is private, s is shared
  uint64_t offset = 0;      // of `begin` in the file
  FileIdentity file;        // inode 0: none
  char name[64] = "";       // cut off
  // Of smaps alone:
  char flags[128] = "";  // "rd wr mr mw me ac sd", each behind a space
  int protection_key = 0;

  [[nodiscard]] bool is_shared() const noexcept { return access[3] == 's'; }
  [[nodiscard]] bool has_flag(const char* two_letters) const noexcept;
};

/// Take a line of either file in. True: it is the first line of an area, which begins anew. Other lines add to the area. A
/// pure function.
bool read_line(const char* line, Area& area) noexcept;

enum class Detail { kPlaces, kFlags };  // maps; smaps, which takes the kernel some ms for each GiB

/// visit(area) for each, from the lowest address on, until it gives false. False if the file cannot be read.
bool walk_areas(Detail detail, bool (*visit)(const Area&, void*), void* with);

template <class Visit>
bool walk_areas(Detail detail, Visit visit) {
  return walk_areas(
      detail, [](const Area& area, void* with) { return (*static_cast<Visit*>(with))(area); }, &visit);
}

}  // namespace ddp::os
