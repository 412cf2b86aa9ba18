// SPDX-License-Identifier: Apache-2.0
// Folders and files in places where other users can write, such as /tmp. Another user may make a name there first, as a
// folder, link or FIFO of his own; files opened here belong to this user, or opening them is an error with that text. Any
// thread; a call that waits has a limit. Tested by unit/os/own_files_test.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "os/file.hpp"

namespace ddp::os {

/// The folder `path` belongs to this user, no other user may write into it, and it is no link. Throws IO.
void check_own_folder(const std::string& path);

/// Makes the folder with mode 700, or uses one of this user alone that is there. Throws IO.
void make_own_folder(const std::string& path);

/// A new file, also in place of one of this name; it is empty, and no link to another. `access`: O_WRONLY or O_RDWR. Throws
/// file_error.
[[nodiscard]] Fd make_new_file(const std::string& path, int access, unsigned mode);

/// A regular file, which is made if `flags` have O_CREAT. Throws IO for a link, a folder, a FIFO or a device; not open, and
/// errno, for another failure. `flags` as of open, without O_TRUNC.
[[nodiscard]] Fd open_regular_file(const std::string& path, int flags, unsigned mode);

/// The same; throws IO too if the file belongs to another user.
[[nodiscard]] Fd open_own_file(const std::string& path, int flags, unsigned mode);

/// Locks the file for this process alone. Throws TIMED_OUT after `limit_ms`, or what file_error makes.
void lock_file(const Fd& file, const std::string& path, int64_t limit_ms);

}  // namespace ddp::os
