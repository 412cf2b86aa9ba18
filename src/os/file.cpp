// SPDX-License-Identifier: Apache-2.0
#include "os/file.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

namespace ddp::os {
namespace {

constexpr int64_t kMaxCall = int64_t{1} << 30;  // Linux moves at most 2 GiB - 4 KiB in one call

constexpr FileTable kSystemFiles = {
    .open = [](int dir, const char* path, int flags, unsigned mode) { return ::openat(dir, path, flags, mode); },
    .close = [](int fd) { return ::close(fd); },
    .duplicate = [](int fd) { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); },
    .read = [](int fd, void* data, size_t bytes, int64_t offset) { return ::pread(fd, data, bytes, offset); },
    .write = [](int fd, const void* data, size_t bytes) { return ::write(fd, data, bytes); },
    .reserve = [](int fd, int64_t bytes) { return ::fallocate(fd, 0, 0, bytes); },
    .sync = [](int fd) { return ::fsync(fd); },
    .status = [](int fd, struct stat* out) { return ::fstat(fd, out); },
    .status_at = [](int dir, const char* path, struct stat* out, int flags) { return ::fstatat(dir, path, out, flags); },
    .change_mode = [](int fd, unsigned mode) { return ::fchmod(fd, mode); },
    .lock = [](int fd, int operation) { return ::flock(fd, operation); },
    .rename = [](int from_dir, const char* from, int to_dir,
                 const char* to) { return ::renameat(from_dir, from, to_dir, to); },
    .unlink = [](int dir, const char* path) { return ::unlinkat(dir, path, 0); },
};

std::atomic<const FileTable*> current_files{&kSystemFiles};

// A write above RLIMIT_FSIZE sends SIGXFSZ to the writing thread, which ends the process. Hold it back and take it off
// again.
class HoldFileSizeSignal {
 public:
  HoldFileSizeSignal() noexcept {
    sigemptyset(&only_);
    sigaddset(&only_, SIGXFSZ);
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &only_, &before_);
  }
  ~HoldFileSizeSignal() {
    const int code = errno;
    const timespec now{};
    if (!was_pending_)
      while (sigtimedwait(&only_, nullptr, &now) == -1 && errno == EINTR) {
      }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = code;
  }
  HoldFileSizeSignal(const HoldFileSizeSignal&) = delete;
  HoldFileSizeSignal& operator=(const HoldFileSizeSignal&) = delete;

 private:
  sigset_t only_;
  sigset_t before_;
  bool was_pending_ = false;
};

/// Call until it is not interrupted.
template <class Call>
auto retried(Call&& call) noexcept {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

const char* advice(int code) noexcept {
  switch (code) {
    case ENOSPC: return "; free some space or save elsewhere";
    case EDQUOT: return "; raise the quota or save elsewhere";
    case EFBIG: return "; raise the file-size limit (ulimit -f) or save elsewhere";
    case EACCES:
    case EPERM: return "; check the permissions of the file and its folder";
    case EROFS: return "; choose a folder that can be written";
    case ENOENT: return "; check the path";
    case ENOTDIR:
    case EISDIR: return "; give the path of a file in an existing folder";
    case ELOOP:
    case ENAMETOOLONG: return "; choose another path";
    case EMFILE:
    case ENFILE: return "; close some files or raise the limit (ulimit -n)";
    case EIO: return "; the disk may be failing, use another one";
    case ESTALE: return "; the network file system lost it, mount it again";
    default: return "";
  }
}

}  // namespace

const FileTable& file_table() noexcept { return *current_files.load(std::memory_order_acquire); }
const FileTable& system_file_table() noexcept { return kSystemFiles; }
void set_file_table(const FileTable* table) noexcept {
  current_files.store(table == nullptr ? &kSystemFiles : table, std::memory_order_release);
}

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int Fd::release() noexcept { return std::exchange(fd_, -1); }

void Fd::reset() noexcept {
  if (is_open()) (void)file_table().close(release());
}

Error file_error(std::string_view action, std::string_view path, int code) {
  const bool exhausted = code == EMFILE || code == ENFILE || code == ENOMEM;
  std::string text = "cannot ";
  text.append(action).append(" \"").append(path).append("\": ");
  text += std::system_category().message(code) + advice(code);
  return Error(exhausted ? DDP_ERROR_OUT_OF_MEMORY : DDP_ERROR_IO, std::move(text));
}

Fd open_file(int dir, const char* path, int flags, unsigned mode) noexcept {
  return Fd(retried([&] { return file_table().open(dir, path, flags, mode); }));
}

void write_all(int fd, const void* data, int64_t bytes, std::string_view path) {
  const auto* from = static_cast<const std::byte*>(data);
  const HoldFileSizeSignal hold;
  while (bytes > 0) {
    const auto ask = static_cast<size_t>(std::min(bytes, kMaxCall));
    const ssize_t wrote = retried([&] { return file_table().write(fd, from, ask); });
    if (wrote < 0) throw file_error("write", path, errno);
    if (wrote == 0) throw file_error("write", path, EIO);
    from += wrote;
    bytes -= wrote;
  }
}

int64_t read_at(int fd, int64_t offset, void* data, int64_t bytes, std::string_view path) {
  auto* to = static_cast<std::byte*>(data);
  int64_t done = 0;
  while (done < bytes) {
    const auto ask = static_cast<size_t>(std::min(bytes - done, kMaxCall));
    const ssize_t got = retried([&] { return file_table().read(fd, to + done, ask, offset + done); });
    if (got < 0) throw file_error("read", path, errno);
    if (got == 0) break;
    done += got;
  }
  return done;
}

void reserve_space(int fd, int64_t bytes, std::string_view path) {
  if (bytes <= 0) return;
  const HoldFileSizeSignal hold;
  if (retried([&] { return file_table().reserve(fd, bytes); }) == 0) return;
  if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) return;
  throw file_error("reserve space for", path, errno);
}

void sync_file(int fd, std::string_view path) {
  if (retried([&] { return file_table().sync(fd); }) != 0) throw file_error("sync", path, errno);
}

}  // namespace ddp::os
