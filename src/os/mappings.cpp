// SPDX-License-Identifier: Apache-2.0
#include "os/mappings.hpp"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ddp::os {
namespace {

/// Digits of base 16 or 10; false without a digit.
bool read_number(const char*& at, uint64_t base, uint64_t* out) noexcept {
  const char* const begin = at;
  *out = 0;
  for (;; ++at) {
    uint64_t digit = base;
    if (*at >= '0' && *at <= '9') digit = static_cast<uint64_t>(*at - '0');
    if (*at >= 'a' && *at <= 'f') digit = static_cast<uint64_t>(*at - 'a') + 10;
    if (digit >= base) return at != begin;
    *out = *out * base + digit;
  }
}

bool skip(const char*& at, char expected) noexcept {
  if (*at != expected) return false;
  ++at;
  return true;
}

template <size_t kSize>
void copy_text(char (&to)[kSize], const char* from) noexcept {
  const size_t length = strnlen(from, kSize - 1);
  std::memcpy(to, from, length);
  to[length] = '\0';
}

/// Calls line(text) for each line of a file, cut off at 511 characters, until it gives false.
template <class Line>
bool read_lines(const char* path, Line&& line) {
  const struct File {
    int fd;
    ~File() {
      if (fd >= 0) close(fd);
    }
  } file{open(path, O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return false;
  char text[512];
  char block[4096];
  size_t length = 0;
  ssize_t got = 0;
  bool more = true;
  while (more && ((got = read(file.fd, block, sizeof block)) > 0 || (got < 0 && errno == EINTR))) {
    for (ssize_t at = 0; at < got && more; ++at) {
      if (block[at] != '\n') {
        if (length < sizeof text - 1) text[length++] = block[at];
        continue;
      }
      text[length] = '\0';
      length = 0;
      more = line(static_cast<const char*>(text));
    }
  }
  return got >= 0;
}

}  // namespace

bool Area::has_flag(const char* two_letters) const noexcept {
  const char wanted[] = {' ', two_letters[0], two_letters[1], '\0'};
  return std::strstr(flags, wanted) != nullptr;
}

bool read_line(const char* line, Area& area) noexcept {
  constexpr char kFlags[] = "VmFlags:";
  constexpr char kKey[] = "ProtectionKey:";
  uint64_t begin = 0, end = 0, offset = 0, major = 0, minor = 0, inode = 0;
  const char* at = line;
  if (!read_number(at, 16, &begin) || !skip(at, '-') || !read_number(at, 16, &end) || !skip(at, ' ')) {
    if (std::strncmp(line, kFlags, sizeof kFlags - 1) == 0) copy_text(area.flags, line + sizeof kFlags - 1);
    if (std::strncmp(line, kKey, sizeof kKey - 1) == 0) {
      at = line + sizeof kKey - 1;
      while (*at == ' ') ++at;
      uint64_t key = 0;
      if (read_number(at, 10, &key)) area.protection_key = static_cast<int>(key);
    }
    return false;
  }
  area = Area();
  area.begin = begin;
  area.end = end;
  copy_text(area.access, at);
  at += std::strlen(area.access);
  if (!skip(at, ' ') || !read_number(at, 16, &offset) || !skip(at, ' ') || !read_number(at, 16, &major) || !skip(at, ':') ||
      !read_number(at, 16, &minor) || !skip(at, ' ') || !read_number(at, 10, &inode))
    return false;
  area.offset = offset;
  area.file = {makedev(static_cast<unsigned>(major), static_cast<unsigned>(minor)), static_cast<ino_t>(inode)};
  while (*at == ' ') ++at;
  copy_text(area.name, at);
  return true;
}

bool walk_areas(Detail detail, bool (*visit)(const Area&, void*), void* with) {
  Area area;  // the last one whose first line was read
  bool more = true;
  const auto line = [&](const char* text) {
    Area before = area;
    if (!read_line(text, area)) return true;
    if (before.end != 0) more = visit(before, with);
    return more;
  };
  const bool read = read_lines(detail == Detail::kPlaces ? "/proc/self/maps" : "/proc/self/smaps", line);
  if (read && more && area.end != 0) (void)visit(area, with);
  return read;
}

}  // namespace ddp::os
