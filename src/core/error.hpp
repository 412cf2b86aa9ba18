// SPDX-License-Identifier: Apache-2.0
// The one exception type of libddp: a status and one sentence that names the cause.
// Thrown where something fails; caught by attempt.hpp, and by the files in tests/lint/catch_allowed.txt. A copy shares the
// text, so copying never fails. Any thread.
// Tested by unit/core/error_test.cpp.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ddp/types.h"

namespace ddp {

/// What an error is about, as numbers. Lists ascend; a list that is empty, a call 0 and bytes -1 mean: not known.
struct ErrorDetails {
  std::vector<int32_t> ranks = {};
  std::vector<int32_t> parameters = {};  // their indices
  int32_t call = 0;                      // of the first of two ranks that differ (bootstrap::UserCall)
  int32_t other_call = 0;                // of the second
  int64_t bytes_expected = -1;
  int64_t bytes_got = -1;

  [[nodiscard]] bool operator==(const ErrorDetails&) const = default;
};

class Error : public std::exception {
 public:
  Error(ddp_status status, std::string text)
      : status_(status), text_(std::make_shared<const std::string>(std::move(text))) {}
  /// OUT_OF_MEMORY, "out of memory": the error that can be made without memory.
  Error() noexcept : status_(DDP_ERROR_OUT_OF_MEMORY) {}

  [[nodiscard]] ddp_status status() const noexcept { return status_; }
  [[nodiscard]] const std::string& text() const noexcept;
  [[nodiscard]] const char* what() const noexcept override { return text().c_str(); }

  /// Do all ranks of the group throw this error in this call, because they agreed on it? Then no rank waits for this one.
  [[nodiscard]] bool is_agreed() const noexcept { return agreed_; }
  [[nodiscard]] Error as_agreed() const noexcept {
    Error copy(*this);
    copy.agreed_ = true;
    return copy;
  }

  /// The rank that failed or was late, if the error is about one; else -1.
  [[nodiscard]] int32_t culprit() const noexcept { return culprit_; }
  [[nodiscard]] Error about(int32_t rank) const noexcept {
    Error copy(*this);
    copy.culprit_ = rank;
    return copy;
  }

  /// NULL: none were given.
  [[nodiscard]] const ErrorDetails* details() const noexcept { return details_.get(); }
  /// Without memory for them: without details.
  [[nodiscard]] Error with(ErrorDetails details) const noexcept;
  /// Another status and text for what this error is about.
  [[nodiscard]] Error retold(ddp_status status, std::string text) const {
    Error other(status, std::move(text));
    other.culprit_ = culprit_;
    other.details_ = details_;
    return other;
  }

 private:
  ddp_status status_;
  bool agreed_ = false;
  int32_t culprit_ = -1;
  std::shared_ptr<const std::string> text_;
  std::shared_ptr<const ErrorDetails> details_;
};

/// Any exception as an Error: a lack of memory, threads or descriptors is OUT_OF_MEMORY and names which; an unknown
/// exception is INTERNAL.
[[nodiscard]] Error to_error(const std::exception& thrown) noexcept;

/// OUT_OF_MEMORY if errno's value means that memory, descriptors or threads are used up, else `otherwise`.
[[nodiscard]] ddp_status status_of_errno(int error, ddp_status otherwise) noexcept;

/// What to do when descriptors are used up, to end a text with: "; raise the limit of open files (ulimit -n)". Empty for
/// other values.
[[nodiscard]] const char* advice_of_errno(int error) noexcept;
/// The same for the words of another library, which has no more of errno.
[[nodiscard]] const char* advice_in(std::string_view text) noexcept;

/// Is a group broken by each error with this status?
[[nodiscard]] constexpr bool breaks_group(ddp_status status) noexcept {
  return status == DDP_ERROR_TIMED_OUT || status == DDP_ERROR_PEER_FAILED || status == DDP_ERROR_ABORTED ||
         status == DDP_ERROR_DIFFERENT_CALLS;
}

/// "DDP_ERROR_..." for a status; never NULL.
[[nodiscard]] const char* status_name(ddp_status status) noexcept;

/// printf-style construction, so that messages stay one readable line at the place of failure.
[[nodiscard]] Error make_error(ddp_status status, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace ddp
