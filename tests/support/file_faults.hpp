// SPDX-License-Identifier: Apache-2.0
// Makes the n-th call of the file table fail, be cut short, or end the process, and records the order of calls. While an
// object lives, all files of the process go through it.
//
//   FileFaults faults({.at = 3, .code = ENOSPC});   // the third call fails
//   ...; expect(faults.calls() >= 3, "reached");
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "os/file.hpp"

namespace ddp::test {

struct FilePlan {
  int64_t at = 0;                     // first call that is disturbed, counted from 1; 0: none
  int64_t count = 1;                  // how many calls from there on
  int code = 0;                       // they fail with this errno
  bool kill = false;                  // or the process ends there (SIGKILL), before the call
  bool cut_short = false;             // or reads and writes move one byte
  std::string only = {};              // count calls of this name alone ("sync", "close"); empty: all
  std::function<void()> before = {};  // runs before each disturbed call; must not use files through the table
};

class FileFaults {
 public:
  explicit FileFaults(const FilePlan& plan);
  ~FileFaults();
  FileFaults(const FileFaults&) = delete;
  FileFaults& operator=(const FileFaults&) = delete;

  [[nodiscard]] int64_t calls() const noexcept;
  /// "open", "write 4096", "sync", "rename a b", ... of the calls that succeeded.
  [[nodiscard]] std::vector<std::string> log() const;
};

/// A folder that is removed with all it holds: on disk, or in memory where a test makes hundreds of files and syncs would be
/// slow.
class TemporaryFolder {
 public:
  enum class Where { kDisk, kMemory };
  explicit TemporaryFolder(Where where = Where::kDisk);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  /// Names in it, sorted.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  std::string path_;
};

/// A file's bytes; throws if the file does not exist.
[[nodiscard]] std::string read_whole(const std::string& path);
void write_whole(const std::string& path, const std::string& bytes);

}  // namespace ddp::test
