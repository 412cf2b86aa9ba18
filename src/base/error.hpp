// The one exception type of libddp: a status and one sentence that names the culprit.
// Thrown where something fails, caught in three places only: capi/guard.hpp, comm/lane.cpp, comm/watchdog.cpp (and at thread
// entry points, which turn it into the group's first cause). Any thread.
// Tested by unit/base/error_test.cpp.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "ddp/types.h"

namespace ddp {

class Error : public std::exception {
 public:
  Error(ddp_status status, std::string text) : status_(status), text_(std::move(text)) {}

  [[nodiscard]] ddp_status status() const noexcept { return status_; }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  ddp_status status_;
  std::string text_;
};

/// Does an error with this status end the group for good?
[[nodiscard]] constexpr bool breaks_group(ddp_status status) noexcept {
  return status == DDP_ERROR_TIMED_OUT || status == DDP_ERROR_PEER_FAILED || status == DDP_ERROR_ABORTED;
}

/// "DDP_ERROR_..." for a status; never NULL.
[[nodiscard]] const char* status_name(ddp_status status) noexcept;

/// printf-style construction, so that messages stay one readable line at the place of failure.
[[nodiscard]] Error make_error(ddp_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace ddp
