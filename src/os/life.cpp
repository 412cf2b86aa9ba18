// SPDX-License-Identifier: Apache-2.0
#include "os/life.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <sstream>

namespace ddp::os {
namespace {

struct Life {
  std::string boot_id;
  uint64_t process_namespace = 0;
  int64_t pid = 0;
  uint64_t began = 0;  // in ticks since the boot: a number that is used again differs in it
};

uint64_t own_namespace() {
  struct stat about {};
  return ::stat("/proc/self/ns/pid", &about) == 0 ? static_cast<uint64_t>(about.st_ino) : 0;
}

constexpr uint64_t kExiting = 4;  // PF_EXITING: it runs no code of its program any more

struct Stat {
  uint64_t flags = 0;
  uint64_t began = 0;
};

std::string read_text(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  std::array<char, 1024> bytes{};
  const ssize_t got = ::read(fd, bytes.data(), bytes.size());
  ::close(fd);
  return {bytes.data(), got > 0 ? static_cast<size_t>(got) : 0};
}

std::string boot_id() {
  std::string id = read_text("/proc/sys/kernel/random/boot_id");
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

std::optional<Stat> read_stat(const std::string& folder) {
  const std::string text = read_text(folder + "/stat");
  const size_t close = text.rfind(')');  // the name before it may hold anything
  if (close == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(close + 1));
  Stat stat;
  std::string passed;
  constexpr int kFirst = 3, kFlags = 9, kBegan = 22;
  for (int field = kFirst; field < kFlags; ++field) rest >> passed;
  rest >> stat.flags;
  for (int field = kFlags + 1; field < kBegan; ++field) rest >> passed;
  if (!(rest >> stat.began)) return std::nullopt;
  return stat;
}

/// The first thread may have ended alone.
bool are_all_threads_exiting(const std::string& folder) {
  DIR* const tasks = ::opendir((folder + "/task").c_str());
  if (tasks == nullptr) return false;
  bool all = true;
  while (const dirent* entry = ::readdir(tasks)) {
    if (entry->d_name[0] == '.') continue;
    const std::optional<Stat> stat = read_stat(folder + "/task/" + entry->d_name);
    all = all && (!stat.has_value() || (stat->flags & kExiting) != 0);
  }
  ::closedir(tasks);
  return all;
}

/// Nothing if it is of another host or process namespace.
std::optional<Life> visible(const std::string& life) {
  const size_t end = std::min(life.find('/'), life.size());
  Life of{life.substr(0, end)};
  const int read =
      std::sscanf(life.c_str() + end, "/%" SCNu64 "/%" SCNd64 "/%" SCNu64, &of.process_namespace, &of.pid, &of.began);
  const bool is_process = read == 3 && of.pid > 0 && of.pid <= INT32_MAX;
  if (!is_process || of.process_namespace != own_namespace() || of.boot_id != boot_id()) return std::nullopt;
  return of;
}

}  // namespace

std::string this_life() { return life_of(getpid()); }

std::string life_of(int64_t pid) {
  const std::optional<Stat> stat = read_stat("/proc/" + std::to_string(pid));
  const uint64_t space = own_namespace();
  const std::string boot = boot_id();
  if (!stat.has_value() || space == 0 || boot.empty()) return "";
  return boot + "/" + std::to_string(space) + "/" + std::to_string(pid) + "/" + std::to_string(stat->began);
}

bool is_visible(const std::string& life) { return visible(life).has_value(); }

bool has_ended(const std::string& life) {
  const std::optional<Life> of = visible(life);
  if (!of.has_value()) return false;
  if (::kill(static_cast<pid_t>(of->pid), 0) != 0 && errno == ESRCH) return true;
  const std::string folder = "/proc/" + std::to_string(of->pid);
  const std::optional<Stat> stat = read_stat(folder);
  if (!stat.has_value()) return false;
  return stat->began != of->began || ((stat->flags & kExiting) != 0 && are_all_threads_exiting(folder));
}

}  // namespace ddp::os
