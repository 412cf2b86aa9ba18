// SPDX-License-Identifier: Apache-2.0
// Functions of the program that the library calls must not use the objects of the outer call. A
// collective call of the same group would wait for an exchange that waits for this function to return, and the end of
// a pass would end the thread that it runs on.
// Like the text of the last error it belongs to the thread, because a hook runs on one of the library's own. A thread may
// have several stacks (fibers, tasks of Julia, greenlets), whose functions end in any order. Threads: any. Tested by
// capi/reentry_test.cpp.
#pragma once

namespace ddp::group {
class Group;
}  // namespace ddp::group

namespace ddp::capi {

/// As long as it lives, this thread is in a function that has been called for this group.
class InProgram {
 public:
  explicit InProgram(const group::Group& group) noexcept;
  ~InProgram();
  InProgram(const InProgram&) = delete;
  InProgram& operator=(const InProgram&) = delete;

 private:
  friend bool is_in_program(const group::Group& group) noexcept;
  const group::Group& group_;
  InProgram* outer_;
};

[[nodiscard]] bool is_in_program(const group::Group& group) noexcept;
/// Throws INVALID_STATE if it is.
void require_outside_program(const group::Group& group, const char* function);
/// True, and a warning in the log, if it is: for functions that return no status.
[[nodiscard]] bool is_refused_in_program(const group::Group& group, const char* function) noexcept;

}  // namespace ddp::capi
