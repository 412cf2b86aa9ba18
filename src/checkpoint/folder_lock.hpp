// SPDX-License-Identifier: Apache-2.0
// One job saves to a folder: the rank that writes holds a lock (flock) on the file `.ddp-folder.lock` in it, in which it
// says who it is. The kernel lets go of the lock when the process ends, however it ends. Two holders are no conflict: the
// same process (a new model after an old one that was not destroyed yet), and the same job. The second is a rank that is
// stopped, was replaced, and still has the lock; what it wrote is taken away by the next save. A file system without locks
// guards nothing, and one save logs that. What is no regular file is no lock: the save fails. Threads: one object, one
// thread. Tested by unit/checkpoint/folder_test.cpp and process/checkpoint_folder_test.cpp.
#pragma once

#include <optional>
#include <string>

#include "os/closed_in_forks.hpp"
#include "os/file.hpp"

namespace ddp::checkpoint {

class FolderLock {
 public:
  /// `who`: for the other's error text. Throws IO if another job has it.
  FolderLock(const std::string& folder, const std::string& job, const std::string& who);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Is it ours, and of this folder? Otherwise the next save tries again.
  [[nodiscard]] bool holds(const std::string& folder) const noexcept { return is_held_ && folder == folder_; }

 private:
  void refuse_other(const std::string& job) const;
  void write_owner(const std::string& job, const std::string& who) const;

  std::string folder_;
  os::Fd file_;
  std::optional<os::ClosedInForks> closed_in_forks_;  // a fork of the process must not keep the lock
  bool is_held_ = false;
};

}  // namespace ddp::checkpoint
