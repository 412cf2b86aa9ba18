// SPDX-License-Identifier: Apache-2.0
// Files. Every system call goes through one table (seam: file I/O), so that a test can make the n-th call fail, be cut short
// or end the process. Above the table: a descriptor that closes itself, and reads and writes that handle EINTR and short
// counts.
// Promises: descriptors are CLOEXEC where the caller asks open for it; a file-size limit comes back as EFBIG, never as
// SIGXFSZ.
// Any thread.
// Tested by unit/os/file_test.cpp and unit/checkpoint/durable_test.cpp.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/error.hpp"

namespace ddp::os {

/// The system calls libddp makes on files; each as its namesake: -1 and errno on failure. `dir` may be AT_FDCWD.
struct FileTable {
  int (*open)(int dir, const char* path, int flags, unsigned mode);
  int (*close)(int fd);
  int (*duplicate)(int fd);
  ssize_t (*read)(int fd, void* data, size_t bytes, int64_t offset);
  ssize_t (*write)(int fd, const void* data, size_t bytes);
  int (*reserve)(int fd, int64_t bytes);
  int (*sync)(int fd);
  int (*status)(int fd, struct stat* out);
  int (*status_at)(int dir, const char* path, struct stat* out, int flags);
  int (*change_mode)(int fd, unsigned mode);
  int (*lock)(int fd, int operation);
  int (*rename)(int from_dir, const char* from, int to_dir, const char* to);
  int (*unlink)(int dir, const char* path);
};

/// The table in use, and the one of the operating system.
[[nodiscard]] const FileTable& file_table() noexcept;
[[nodiscard]] const FileTable& system_file_table() noexcept;

/// Replace the table; NULL restores the system's. Tests only, while no file is in use.
void set_file_table(const FileTable* table) noexcept;

/// Owns a descriptor; closes it through the table.
class Fd {
 public:
  Fd() noexcept = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int release() noexcept;
  /// Close, and ignore errors.
  void reset() noexcept;

 private:
  int fd_ = -1;
};

/// `cannot write "model.st": No space left on device; free some space or save elsewhere`. Status IO, or OUT_OF_MEMORY when
/// descriptors or memory ran out.
[[nodiscard]] Error file_error(std::string_view action, std::string_view path, int code);

/// Open, retrying EINTR; -1 and errno on failure.
[[nodiscard]] Fd open_file(int dir, const char* path, int flags, unsigned mode) noexcept;

/// All of it, at the descriptor's position. Throws file_error.
void write_all(int fd, const void* data, int64_t bytes, std::string_view path);

/// Up to `bytes` from `offset`; fewer only at the end of the file. Throws file_error.
[[nodiscard]] int64_t read_at(int fd, int64_t offset, void* data, int64_t bytes, std::string_view path);

/// Set space aside so that later writes can not find the disk full. A file system that can not do that is no error.
void reserve_space(int fd, int64_t bytes, std::string_view path);

/// fsync. A failure is final: the kernel may have dropped the pages, and a second fsync would lie.
void sync_file(int fd, std::string_view path);

}  // namespace ddp::os
