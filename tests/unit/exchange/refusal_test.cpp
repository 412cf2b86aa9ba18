// SPDX-License-Identifier: Apache-2.0
// Which memory is not shared where it is: by made-up mappings, and by this process's own.
#include "shm/refusal.hpp"

#include <sys/syscall.h>

#include "support/check.hpp"

os::Area area_of(uintptr_t begin, uintptr_t end, const char* access = "rw-p", const char* flags = " rd wr mr mw me ac sd") {
  os::Area area;
  area.begin = begin;
  area.end = end;
  std::strcpy(area.access, access);
  std::strcpy(area.flags, flags);
  return area;
}

constexpr uintptr_t kBegin = 0x7f0000001000, kEnd = 0x7f0000301000;

std::string refusal(const std::vector<os::Area>& areas) { return shm::refusal_of(areas, kBegin + 64, kEnd - 64); }

ddp_case(plain_memory_is_shared) {
  expect(refusal({area_of(kBegin, kEnd)}).empty(), "one mapping");
  expect(refusal({area_of(kBegin - 4096, kBegin + 8192), area_of(kBegin + 8192, kEnd + 4096)}).empty(), "two");
  os::Area named = area_of(kBegin, kEnd);
  std::strcpy(named.name, "[heap]");
  expect(refusal({named}).empty(), "the heap");
  named.file.inode = 5;
  std::strcpy(named.name, "/memfd:libddp (deleted)");
  expect(refusal({named}).empty(), "what was shared once");
}

ddp_case(every_flag_is_a_reason) {
  for (const char* flag : {"lo", "dc", "wf", "dd", "mg", "um", "uw", "gd", "ss", "gu", "sl", "mt", "pf", "io", "ht"}) {
    const std::string flags = std::string(" rd wr mr mw me ac ") + flag + " sd";
    expect(!refusal({area_of(kBegin, kEnd, "rw-p", flags.c_str())}).empty(), flag);
    expect(!refusal({area_of(kBegin, kBegin + 4096), area_of(kBegin + 4096, kEnd, "rw-p", flags.c_str())}).empty(),
           std::string(flag) + " behind the first mapping");
  }
  for (const char* flag : {"hg", "nh", "nr", "ac", "sd"}) {
    const std::string flags = std::string(" rd wr mr mw me ") + flag;
    expect(refusal({area_of(kBegin, kEnd, "rw-p", flags.c_str())}).empty(), std::string(flag) + " is none");
  }
}

ddp_case(other_kinds_of_mappings_are_reasons) {
  const auto said = [](const std::string& text, const char* part) {
    expect(text.find(part) != std::string::npos, text + " has no " + part);
  };
  said(refusal({area_of(kBegin, kEnd, "rw-s")}), "shared memory already");
  said(refusal({area_of(kBegin, kEnd, "r--p")}), "cannot be read and written");
  said(refusal({area_of(kBegin, kEnd, "---p")}), "cannot be read and written");
  said(refusal({area_of(kBegin, kEnd, "rwxp")}), "executable");
  said(refusal({area_of(kBegin, kEnd, "rw-p", "")}), "VmFlags");
  said(refusal({area_of(kBegin, kEnd - 4096)}), "not mapped");
  said(refusal({area_of(kBegin + 4096, kEnd)}), "not mapped");
  said(refusal({area_of(kBegin, kBegin + 8192), area_of(kBegin + 12288, kEnd)}), "not mapped");
  said(refusal({}), "not mapped");
  os::Area other = area_of(kBegin, kEnd);
  other.file.inode = 9;
  std::strcpy(other.name, "/tmp/weights");
  said(refusal({other}), "/tmp/weights");
  other = area_of(kBegin, kEnd);
  other.protection_key = 2;
  said(refusal({other}), "protection key");
  other = area_of(kBegin, kEnd);
  std::strcpy(other.name, "[stack]");
  said(refusal({other}), "stack");
  std::strcpy(other.name, "[anon: Go: heap]");
  said(refusal({other}), "Go");
  said(shm::refusal_of({area_of(0xc000000000, 0xc000800000)}, 0xc000000000, 0xc000400000), "Go");
}

/// A private mapping that is changed by `change`.
std::string refusal_after(const std::function<bool(void*, size_t)>& change) {
  constexpr size_t kBytes = 2 << 20;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(memory != MAP_FAILED && change(memory, kBytes), "prepared");
  std::memset(memory, 1, 4096);
  const std::string reason = shm::refusal_of(memory, kBytes);
  munmap(memory, kBytes);
  return reason;
}

ddp_case(the_memory_of_this_process_is_looked_at) {
  const auto advise = [](int advice) {
    return [advice](void* memory, size_t bytes) { return madvise(memory, bytes, advice) == 0; };
  };
  expect(refusal_after([](void*, size_t) { return true; }).empty(), "plain memory");
  expect(!refusal_after(advise(MADV_DONTFORK)).empty(), "MADV_DONTFORK");
  expect(!refusal_after(advise(MADV_WIPEONFORK)).empty(), "MADV_WIPEONFORK");
  expect(!refusal_after(advise(MADV_DONTDUMP)).empty(), "MADV_DONTDUMP");
  expect(!refusal_after([](void* memory, size_t bytes) {
            return mprotect(static_cast<char*>(memory) + bytes - 4096, 4096, PROT_READ) == 0;
          }).empty(),
         "a page at the end that cannot be written");
  expect(!refusal_after([](void* memory, size_t bytes) {
            return munmap(static_cast<char*>(memory) + bytes / 2, 4096) == 0;
          }).empty(),
         "a hole");
  const auto small = std::make_unique<char[]>(1 << 20);
  expect(!shm::refusal_of(small.get(), (1 << 20) - 1).empty(), "below 1 MiB");
#if !defined(__SANITIZE_ADDRESS__)  // which has local variables, by which a stack is recognised, on its heap
  expect_equal(shm::refusal_of(small.get(), 1 << 20), std::string(), "what is said of 1 MiB of the heap");
#endif
  char here[2 << 20];
  std::memset(here, 1, sizeof here);
  expect(shm::refusal_of(here, sizeof here) == "they are a stack", "the stack");
}

ddp_case(mappings_of_files_and_shared_ones_are_refused) {
  std::FILE* const file = std::tmpfile();
  expect(file != nullptr && ftruncate(fileno(file), 2 << 20) == 0, "a file");
  for (const int kind : {MAP_PRIVATE, MAP_SHARED}) {
    void* const memory = mmap(nullptr, 2 << 20, PROT_READ | PROT_WRITE, kind, fileno(file), 0);
    expect(memory != MAP_FAILED && !shm::refusal_of(memory, 2 << 20).empty(), "a mapping of a file");
    munmap(memory, 2 << 20);
  }
  std::fclose(file);
}

ddp_case(locked_memory_is_refused) {
  const std::string reason = refusal_after([](void* memory, size_t bytes) {
    return syscall(SYS_mlock, static_cast<char*>(memory) + bytes - 4096, 4096) == 0;  // sanitizers make mlock() do nothing
  });
  expect(!reason.empty(), "a page of it is locked");
}
