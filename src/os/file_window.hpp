// SPDX-License-Identifier: Apache-2.0
// Addresses of this process at which a file in memory is mapped, shared with other processes. Others own the addresses, and
// may have put something else there, so everything here first looks at the mappings.
// Allocates nothing. Threads: any.
// Tested by unit/os/file_window_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "os/in_forks.hpp"
#include "os/mappings.hpp"

namespace ddp::os {

/// Whole pages.
struct FileWindow {
  int fd = -1;
  FileIdentity file;
  std::byte* begin = nullptr;
  int64_t bytes = 0;
  int64_t offset = 0;  // of `begin` in the file

  /// The part of it that an area maps, shared; empty if the area is something else.
  struct Part {
    std::byte* begin = nullptr;
    int64_t bytes = 0;
    int64_t offset = 0;
    int protection = 0;
  };
  [[nodiscard]] Part in(const Area& area) const noexcept;
};

/// The file of a descriptor; throws INTERNAL.
[[nodiscard]] FileIdentity identity_of(int fd);

/// The pages of a part become copies that only this process has, if it writes to them; until then they are the file's.
/// False without memory; then nothing has changed.
[[nodiscard]] bool map_privately(int fd, const FileWindow::Part& part) noexcept;

enum class Left { kNothing, kPartly, kAll, kStuck };

/// The pages become private memory with the contents that they have, also while other threads write to them, and the file's
/// are given back. Gives how much of the mapping was there: kPartly and kNothing if others have unmapped some of it, which
/// stays as it is. kStuck: no memory; a part is shared still.
[[nodiscard]] Left make_private(const FileWindow& window) noexcept;

/// While it lives, a fork() maps the window privately in the child, so that the child writes to memory of its own. One that
/// is made by other means (_Fork, clone) shares it. Cost: fork() reads /proc/self/maps.
class PrivateInForks final : public InForks<PrivateInForks> {
 public:
  explicit PrivateInForks(const FileWindow& window) noexcept : window_(window) { note(*this); }
  ~PrivateInForks() { forget(*this); }

  static void in_the_fork(const PrivateInForks* first) noexcept;

 private:
  friend Left make_private(const FileWindow& window) noexcept;
  const FileWindow window_;
};

}  // namespace ddp::os
