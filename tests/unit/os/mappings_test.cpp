// SPDX-License-Identifier: Apache-2.0
// Lines of /proc/self/maps and smaps, and the mappings of this process.
#include "os/mappings.hpp"

#include <sys/sysmacros.h>

#include "support/check.hpp"

ddp_case(a_first_line_begins_an_area) {
  os::Area area;
  area.protection_key = 7;
  expect(os::read_line("7f0a10000000-7f0a10200000 rw-s 00001000 08:02 4711                       /memfd:libddp (deleted)",
                       area),
         "a first line");
  expect_equal(area.begin, uintptr_t{0x7f0a10000000}, "begin");
  expect_equal(area.end, uintptr_t{0x7f0a10200000}, "end");
  expect(std::string(area.access) == "rw-s" && area.is_shared(), "access");
  expect_equal(area.offset, uint64_t{0x1000}, "offset");
  expect(area.file == os::FileIdentity{makedev(8, 2), 4711}, "file");
  expect(std::string(area.name) == "/memfd:libddp (deleted)", area.name);
  expect_equal(area.protection_key, 0, "a new area has nothing of the one before");
  expect(os::read_line("00400000-00401000 r--p 00000000 00:00 0 ", area) && area.name[0] == '\0' && !area.is_shared(),
         "without a name");
}

ddp_case(other_lines_add_to_it) {
  os::Area area;
  expect(os::read_line("00400000-00401000 rw-p 00000000 00:00 0 ", area), "a first line");
  for (const char* line :
       {"Size:                  4 kB", "VmFlags: rd wr mr mw me ac lo sd ", "ProtectionKey:         3", ""})
    expect(!os::read_line(line, area), line);
  expect(area.has_flag("lo") && area.has_flag("rd") && area.has_flag("sd"), area.flags);
  expect(!area.has_flag("dc") && !area.has_flag("d "), "flags are two letters");
  expect_equal(area.protection_key, 3, "key");
  expect_equal(area.begin, uintptr_t{0x400000}, "the area is the same");
}

ddp_case(lines_of_no_such_kind_are_no_areas) {
  for (const char* line : {"-", "40-", "zz-40 rw-p 0 0:0 0", "400000-401000", "400000-401000 rw-p",
                           "400000-401000 rw-p 0 00", "Anonymous:      0 kB", "FilePmdMapped: 0 kB"}) {
    os::Area area;
    expect(!os::read_line(line, area), line);
  }
}

ddp_case(the_mappings_of_this_process_are_walked_in_order) {
  void* const memory = mmap(nullptr, 3 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(memory != MAP_FAILED && madvise(memory, 3 << 20, MADV_DONTFORK) == 0, "memory that forks do not get");
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  for (const os::Detail detail : {os::Detail::kPlaces, os::Detail::kFlags}) {
    uintptr_t last = 0;
    int found = 0, flagged = 0;
    expect(os::walk_areas(detail,
                          [&](const os::Area& area) {
                            expect(area.begin >= last && area.end > area.begin, "ascending");
                            last = area.end;
                            if (area.begin > begin || area.end < begin + (3 << 20)) return true;
                            ++found;
                            flagged += area.has_flag("dc") ? 1 : 0;
                            return true;
                          }),
           "the file is read");
    expect_equal(found, 1, "found once");
    expect_equal(flagged, detail == os::Detail::kFlags ? 1 : 0, "its flag");
  }
  int visits = 0;
  expect(os::walk_areas(os::Detail::kPlaces, [&](const os::Area&) { return ++visits < 2; }), "read");
  expect_equal(visits, 2, "a visitor ends the walk");
  munmap(memory, 3 << 20);
}
