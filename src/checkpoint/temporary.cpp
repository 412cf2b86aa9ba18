// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/temporary.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "core/hash.hpp"
#include "os/clock.hpp"
#include "os/file.hpp"
#include "os/log.hpp"

namespace ddp::checkpoint {
namespace {

constexpr size_t kRandomDigits = 16;

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

/// The prefix of all temporary names of a target. File names have at most 255 bytes, so a long one is cut and made unique by
/// its hash.
std::string temporary_prefix(const std::string& base) {
  const std::string stem =
      base.size() <= 180 ? base : base.substr(0, 160) + "-" + hex(content_hash(base.data(), base.size()));
  return "." + stem + ".ddp-";
}

bool all_of(std::string_view text, std::string_view allowed) noexcept {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

}  // namespace

std::string random_digits() {
  uint64_t value = 0;
  if (getrandom(&value, sizeof value, GRND_NONBLOCK) != static_cast<ssize_t>(sizeof value))
    value = static_cast<uint64_t>(os::now_ns()) ^ static_cast<uint64_t>(getpid()) << 32;
  return hex(value);
}

std::string temporary_name(const std::string& base) {
  return temporary_prefix(base) + std::to_string(getpid()) + "-" + random_digits() + ".tmp";
}

// Prefix, PID, "-", 16 hexadecimal digits, ".tmp".
bool is_temporary_of(std::string_view name, const std::string& base) {
  constexpr std::string_view kEnd = ".tmp";
  const std::string prefix = temporary_prefix(base);
  if (name.size() < prefix.size() + kRandomDigits + kEnd.size() + 2 || name.substr(0, prefix.size()) != prefix) return false;
  name.remove_prefix(prefix.size());
  if (name.substr(name.size() - kEnd.size()) != kEnd) return false;
  name.remove_suffix(kEnd.size());
  const size_t dash = name.find('-');
  return dash != std::string_view::npos && all_of(name.substr(0, dash), "0123456789") &&
         name.size() - dash - 1 == kRandomDigits && all_of(name.substr(dash + 1), "0123456789abcdef");
}

std::optional<std::vector<std::string>> names_in(int folder) {
  os::Fd fd = os::open_file(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (!fd.is_open()) return std::nullopt;
  const auto close_list = [](DIR* list) { ::closedir(list); };
  const std::unique_ptr<DIR, decltype(close_list)> list(::fdopendir(fd.get()), close_list);
  if (list == nullptr) return std::nullopt;
  (void)fd.release();
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(list.get())) {
    names.emplace_back(entry->d_name);
    errno = 0;
  }
  if (errno != 0) return std::nullopt;
  return names;
}

void sweep_temporaries(int folder, const std::function<bool(const std::string&)>& belongs, const std::string& beside) {
  const std::optional<std::vector<std::string>> names = names_in(folder);
  if (!names) return;
  for (const std::string& name : *names) {
    if (!belongs(name)) continue;
    const os::Fd fd = os::open_file(folder, name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (!fd.is_open() || os::file_table().lock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;  // its owner lives
    if (os::file_table().unlink(folder, name.c_str()) == 0)
      os::log(DDP_LOG_INFO, "removed \"%s\", left beside \"%s\" by a save that was killed", name.c_str(), beside.c_str());
  }
}

}  // namespace ddp::checkpoint
