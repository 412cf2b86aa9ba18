// SPDX-License-Identifier: Apache-2.0
#include "capi/reentry.hpp"

#include "core/error.hpp"
#include "os/log.hpp"

namespace ddp::capi {
namespace {

thread_local InProgram* innermost = nullptr;

}  // namespace

InProgram::InProgram(const group::Group& group) noexcept : group_(group), outer_(innermost) { innermost = this; }

InProgram::~InProgram() {
  InProgram** at = &innermost;
  while (*at != nullptr && *at != this) at = &(*at)->outer_;
  if (*at == this) *at = outer_;
}

bool is_in_program(const group::Group& group) noexcept {
  for (const InProgram* in = innermost; in != nullptr; in = in->outer_)
    if (&in->group_ == &group) return true;
  return false;
}

void require_outside_program(const group::Group& group, const char* function) {
  if (is_in_program(group))
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: this is inside a function that libddp has called for the same group (a hook, an update, a reader "
                     "or a writer); call it after that function has returned, or use a second group",
                     function);
}

bool is_refused_in_program(const group::Group& group, const char* function) noexcept {
  if (!is_in_program(group)) return false;
  os::log(DDP_LOG_WARNING,
          "%s: it is not destroyed, because this is inside a function that libddp has called for the same group; call it "
          "after that function has returned",
          function);
  return true;
}

}  // namespace ddp::capi
