// SPDX-License-Identifier: Apache-2.0
// A file that is written through memory, so that the last writes are there when the process dies, however it dies. Its
// space is taken when it is made: no later write can find the disk full.
// Threads: one makes and ends it; the memory from any.
// Tested by unit/trace/live_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ddp::trace {

class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  /// A file with this many zeros, under a temporary name in the folder of `path`; show() gives it its name. Throws the
  /// errors of os::file_error.
  [[nodiscard]] static MappedFile make(const std::string& path, int64_t bytes);
  /// One that is there. Throws as above; IO if it is smaller than `least` bytes.
  [[nodiscard]] static MappedFile open(const std::string& path, int64_t least);
  /// Now it is at its path, in the place of what was there. Throws as above.
  void show();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] int64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// This process has made or opened it: a fork of it has the memory too, and must leave it alone.
  [[nodiscard]] bool is_ours() const noexcept;

 private:
  void map(int fd);

  std::string path_;
  std::string beside_;  // "": it is shown
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  uint64_t process_ = 0;
};

}  // namespace ddp::trace
