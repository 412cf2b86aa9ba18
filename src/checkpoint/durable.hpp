// SPDX-License-Identifier: Apache-2.0
// A file that appears complete or not at all, and survives a crash: written under a temporary name in the folder of its
// target, synced, renamed over it, and the folder synced. Until commit() succeeds the former file is untouched; without
// commit() the temporary file is removed.
//
// temporary.hpp has the name of the temporary file, and the removal of those of dead owners.
// Promises: space for all bytes is set aside first, so a full disk is found before anything is written. An error of sync or
// close is final. A link at the target is replaced, not followed; a target that is a device, pipe or folder is refused.
// Cost: one pass of writes, two syncs.  Threads: one object, one thread.
// The order of steps is that of ALICE (Pillai et al., OSDI 14) for a file that must survive a power cut.
// Tested by unit/checkpoint/durable_test.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "os/file.hpp"

namespace ddp::checkpoint {

class DurableFile {
 public:
  /// Opens the temporary file and sets `bytes` of space aside. Throws IO, OUT_OF_MEMORY.
  DurableFile(const std::string& path, int64_t bytes);
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  /// The next bytes, in order.
  void write(const void* data, int64_t bytes);

  /// Where the bytes are until commit().
  [[nodiscard]] std::string temporary_path() const;
  /// All bytes are there: they survive a power cut from here on, under the temporary name.
  void sync();
  /// Make them the target, for good; syncs first if that was not done. If only the last step (sync of the folder) fails, the
  /// new file is in place and complete but may not survive a power cut; the error's text reports that.
  void commit();

 private:
  void find_target();
  void sweep() const;
  void create_temporary();
  void try_temporary(const std::string& name);

  /// Unlinks the temporary file unless it was renamed.
  struct Temporary {
    explicit Temporary(const os::Fd& in) noexcept : folder(in) {}
    ~Temporary();
    Temporary(const Temporary&) = delete;
    Temporary& operator=(const Temporary&) = delete;
    const os::Fd& folder;
    std::string name;  // empty: no file
  };

  std::string path_;
  std::string base_;  // the last part of path_
  os::Fd folder_;
  os::Fd file_;  // holds the lock until after the rename
  Temporary temporary_{folder_};
  bool replaces_ = false;  // a regular file is there: its permissions are kept
  unsigned mode_ = 0;
  int64_t bytes_;
  int64_t written_ = 0;
  bool synced_ = false;
};

}  // namespace ddp::checkpoint
