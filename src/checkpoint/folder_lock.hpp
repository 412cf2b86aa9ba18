// SPDX-License-Identifier: Apache-2.0
// One job saves to a folder, and of a job one generation: the rank that writes holds a lock (flock) on the file
// `.ddp-folder.lock` in it, in which it writes its process, its job, and how many times its group has formed. The kernel
// releases the lock when the process ends, however it ends. The file is read before every save: another process of the same
// job with a smaller number was replaced (it is stopped, and still has the lock; the next save removes the files that it
// wrote); one with a greater or the same number has continued in another part of the group, and this part's save fails. The
// same process is no conflict (a new model after an old one that was not destroyed yet). A file system without locks does
// not guard against other jobs, and one save logs that. If the lock is not a regular file, the save fails. Threads: one
// object, one thread. Tested by unit/checkpoint/folder_test.cpp and process/checkpoint_folder_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "os/closed_in_forks.hpp"
#include "os/file.hpp"

namespace ddp::checkpoint {

class FolderLock {
 public:
  /// Who saves.
  struct Saver {
    std::string job;
    std::string name;        // for the other's error text
    int64_t generation = 1;  // of its group
  };
  explicit FolderLock(const std::string& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  [[nodiscard]] bool is_of(const std::string& folder) const noexcept { return folder == folder_; }
  /// Before a save. Throws IO if another job has the folder, or another part of this one's group.
  void claim(const Saver& saver);

 private:
  enum class Kernel { kUnknown, kOurs, kTheirs, kNoLocks };
  void look_at_kernel();
  void write_owner(const Saver& saver) const;

  std::string folder_;
  os::Fd file_;
  std::optional<os::ClosedInForks> closed_in_forks_;  // a fork of the process must not keep the lock
  Kernel lock_ = Kernel::kUnknown;
};

}  // namespace ddp::checkpoint
