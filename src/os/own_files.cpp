// SPDX-License-Identifier: Apache-2.0
#include "os/own_files.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "core/error.hpp"
#include "os/clock.hpp"

namespace ddp::os {
namespace {

constexpr unsigned kOthersWrite = 022;
constexpr std::chrono::milliseconds kLockStep{5};

struct stat status_of(const Fd& file, const std::string& path) {
  struct stat info {};
  if (file_table().status(file.get(), &info) != 0) throw file_error("look at", path, errno);
  return info;
}

}  // namespace

void check_own_folder(const std::string& path) {
  struct stat info {};
  if (file_table().status_at(AT_FDCWD, path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
    throw file_error("look at the folder", path, errno);
  const char* problem = nullptr;
  if (!S_ISDIR(info.st_mode))
    problem = "is no folder";
  else if (info.st_uid != geteuid())
    problem = "belongs to another user";
  else if ((info.st_mode & kOthersWrite) != 0)
    problem = "can be written to by other users";
  if (problem != nullptr)
    throw make_error(DDP_ERROR_IO, "\"%s\" %s; choose another path, or remove it", path.c_str(), problem);
}

void make_own_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) throw file_error("create the folder", path, errno);
  check_own_folder(path);
}

Fd make_new_file(const std::string& path, int access, unsigned mode) {
  const int flags = access | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  Fd file = open_file(AT_FDCWD, path.c_str(), flags, mode);
  // An existing file was left by a killed process, or is another user's trap.
  if (!file.is_open() && errno == EEXIST && file_table().unlink(AT_FDCWD, path.c_str()) == 0)
    file = open_file(AT_FDCWD, path.c_str(), flags, mode);
  if (!file.is_open()) throw file_error("create", path, errno);
  return file;
}

Fd open_regular_file(const std::string& path, int flags, unsigned mode) {
  Fd file = open_file(AT_FDCWD, path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode);
  if (file.is_open() ? !S_ISREG(status_of(file, path).st_mode) : errno == ELOOP || errno == EISDIR || errno == ENXIO)
    throw make_error(DDP_ERROR_IO, "\"%s\" is no regular file; choose another path, or remove it", path.c_str());
  return file;
}

Fd open_own_file(const std::string& path, int flags, unsigned mode) {
  Fd file = open_regular_file(path, flags, mode);
  if (file.is_open() && status_of(file, path).st_uid != geteuid())
    throw make_error(DDP_ERROR_IO, "\"%s\" belongs to another user; choose another path", path.c_str());
  return file;
}

void lock_file(const Fd& file, const std::string& path, int64_t limit_ms) {
  const Deadline end = Deadline::in_ms(limit_ms);
  while (file_table().lock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) throw file_error("lock", path, errno);
    if (end.passed())
      throw make_error(DDP_ERROR_TIMED_OUT, "another process has locked \"%s\" for %lld ms; is it stopped?", path.c_str(),
                       static_cast<long long>(limit_ms));
    std::this_thread::sleep_for(kLockStep);
  }
}

}  // namespace ddp::os
