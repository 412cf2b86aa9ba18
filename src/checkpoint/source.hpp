// SPDX-License-Identifier: Apache-2.0
// Where a checkpoint is read from, at any offset: a file, or a stream from a callback. A stream can not go back, and a
// checkpoint is read twice (once to verify, once to load), so what comes is kept in a file without a name that the system
// removes by itself.
// Promises: of an endless stream no more is kept than was asked for; a pipe or device is refused, never waited for.
// Threads: one object, one thread. The callback runs on the caller's thread.
// Tested by unit/checkpoint/source_test.cpp and unit/checkpoint/missing_file_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/error.hpp"
#include "os/file.hpp"

namespace ddp::checkpoint {

/// At most `capacity` bytes into `data`; 0 at the end, negative on failure (ddp_read_fn). Throws as PushFn.
using PullFn = std::function<int64_t(void* data, int64_t capacity)>;

class Source {
 public:
  [[nodiscard]] static Source from_file(const std::string& path);
  [[nodiscard]] static Source from_stream(PullFn pull);

  /// The length; of a stream only if it is at most `limit`, otherwise any number above it.
  [[nodiscard]] int64_t size(int64_t limit);

  /// Exactly these bytes. Throws IO if they are not there.
  void read(int64_t offset, void* data, int64_t bytes);

  /// For error texts: `checkpoint "path"`.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  Source(std::string name, std::string path) : name_(std::move(name)), path_(std::move(path)) {}
  void pull_until(int64_t end);

  std::string name_;
  std::string path_;
  os::Fd file_;
  PullFn pull_;        // empty: a file, or a stream that ended
  int64_t bytes_ = 0;  // that file_ holds
};

/// Why a checkpoint that was to be loaded is not there: a mistyped name, a mistyped folder, or another working folder. IO:
/// names the file, and what there is instead. Reads the folder; `path` need not exist in any part.
[[nodiscard]] Error missing_file(const std::string& path);

}  // namespace ddp::checkpoint
