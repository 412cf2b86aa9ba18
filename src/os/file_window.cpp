// SPDX-License-Identifier: Apache-2.0
#include "os/file_window.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace ddp::os {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kAtOnce = int64_t{2} << 20;  // copied, then given back: a process needs this much memory besides

/// Write to each page what is in it. A compare-and-swap takes the page for writing, and loses no other thread's store.
void touch_for_writing(std::byte* begin, int64_t bytes) noexcept {
  for (int64_t at = 0; at < bytes; at += kPage) {
    auto* const byte = reinterpret_cast<volatile unsigned char*>(begin + at);
    unsigned char seen = __atomic_load_n(byte, __ATOMIC_RELAXED);
    (void)__atomic_compare_exchange_n(byte, &seen, seen, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  }
}

/// False without memory, and for pages that are not for writing.
bool take_for_writing(std::byte* begin, int64_t bytes) noexcept {
  int result = 0;
  do {
    result = madvise(begin, static_cast<size_t>(bytes), MADV_POPULATE_WRITE);
  } while (result != 0 && (errno == EINTR || errno == EAGAIN));
  if (result == 0) return true;
  if (errno == ENOMEM || errno == EFAULT || errno == EHWPOISON) return false;
  touch_for_writing(begin, bytes);  // before Linux 5.14, or a filter of system calls
  return true;
}

/// The contents stay in the file for as long as a page of it is not copied. False without memory.
bool copy_and_give_back(int fd, const FileWindow::Part& part) noexcept {
  for (int64_t at = 0; at < part.bytes; at += kAtOnce) {
    const int64_t bytes = std::min(kAtOnce, part.bytes - at);
    if (!take_for_writing(part.begin + at, bytes)) return false;
    (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, part.offset + at, bytes);
  }
  return true;
}

/// False without memory. Pages that the program made read-only are copied too: others still write to those of the file.
bool take_part(int fd, FileWindow::Part part) noexcept {
  const int protection = std::exchange(part.protection, PROT_READ | PROT_WRITE);
  if (!map_privately(fd, part) || !copy_and_give_back(fd, part)) return false;
  return protection == part.protection || mprotect(part.begin, static_cast<size_t>(part.bytes), protection) == 0;
}

}  // namespace

FileIdentity identity_of(int fd) {
  struct stat file {};
  if (fstat(fd, &file) != 0) throw make_error(DDP_ERROR_INTERNAL, "fstat failed (%s)", std::strerror(errno));
  return {file.st_dev, file.st_ino};
}

FileWindow::Part FileWindow::in(const Area& area) const noexcept {
  const auto first = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t from = std::max(first, area.begin);
  const uintptr_t to = std::min(first + static_cast<uintptr_t>(bytes), area.end);
  Part part;
  if (from >= to || !area.is_shared() || area.file != file) return part;
  const auto place = static_cast<int64_t>(area.offset + (from - area.begin));
  if (place != offset + static_cast<int64_t>(from - first)) return part;
  part.begin = begin + (from - first);
  part.bytes = static_cast<int64_t>(to - from);
  part.offset = place;
  part.protection = (area.access[0] == 'r' ? PROT_READ : 0) | (area.access[1] == 'w' ? PROT_WRITE : 0) |
                    (area.access[2] == 'x' ? PROT_EXEC : 0);
  return part;
}

// A mapping elsewhere first: where the system refuses the memory, MAP_FIXED may have unmapped the pages already.
bool map_privately(int fd, const FileWindow::Part& part) noexcept {
  for (const int extra : {0, MAP_NORESERVE}) {
    void* const tried =
        mmap(nullptr, static_cast<size_t>(part.bytes), part.protection, MAP_PRIVATE | extra, fd, part.offset);
    if (tried == MAP_FAILED) continue;
    (void)munmap(tried, static_cast<size_t>(part.bytes));
    if (mmap(part.begin, static_cast<size_t>(part.bytes), part.protection, MAP_PRIVATE | MAP_FIXED | extra, fd,
             part.offset) != MAP_FAILED)
      return true;
  }
  return false;
}

// A fork in between would have pages of which the file has lost the contents.
Left make_private(const FileWindow& window) noexcept {
  const PrivateInForks::NoFork none;
  const int error = errno;
  int64_t found = 0;
  bool stuck = false;
  const bool read = walk_areas(Detail::kPlaces, [&](const Area& area) {
    const FileWindow::Part part = window.in(area);
    found += part.bytes;
    if (part.bytes == 0) return area.end < reinterpret_cast<uintptr_t>(window.begin) + static_cast<uintptr_t>(window.bytes);
    stuck = !take_part(window.fd, part);
    return !stuck;
  });
  errno = error;
  if (!read || stuck) return Left::kStuck;
  if (found == 0) return Left::kNothing;
  return found == window.bytes ? Left::kAll : Left::kPartly;
}

void PrivateInForks::in_the_fork(const PrivateInForks* first) noexcept {
  const auto make_private = [&](const Area& area) {
    for (const PrivateInForks* each = first; each != nullptr; each = each->next())
      if (const FileWindow::Part part = each->window_.in(area); part.bytes > 0) (void)map_privately(each->window_.fd, part);
    return true;
  };
  if (first == nullptr || walk_areas(Detail::kPlaces, make_private)) return;
  // Without a descriptor for the list of mappings, what was shared counts as being where it was.
  for (const PrivateInForks* each = first; each != nullptr; each = each->next()) {
    const FileWindow& window = each->window_;
    (void)map_privately(window.fd, {window.begin, window.bytes, window.offset, PROT_READ | PROT_WRITE});
  }
}

}  // namespace ddp::os
