// SPDX-License-Identifier: Apache-2.0
// A collective fails on all ranks or on none. An error that the ranks exchange becomes the result of all, and the group
// stays usable (all_or_none). Any other error breaks the group at once, so that no rank waits for timeout_ms (or_break).
// Tested by scarce/collectives_test.cpp, gpu_host/sync_failure_test.cpp and gpu_host/batch_norm_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "control/consensus.hpp"
#include "core/attempt.hpp"
#include "group/group.hpp"

namespace ddp::group {

/// Collective: every rank runs its body, which gives bytes or nothing, and gets what all bodies gave, by rank. If any threw,
/// all ranks throw the same: the error of the first rank that has one, a lack of memory before others.
template <class Body>
std::vector<std::string> all_or_none(Group& group, std::string_view what, Body&& body) {
  return bootstrap::read_outcomes(group.control(), group.gather(what, bootstrap::outcome_of(body)));
}

/// The same without a body: pass this rank's error, or NULL.
void agree(Group& group, std::string_view what, const Error* mine);

/// What a body is in a collective call. It decides which of its errors break the group.
enum class Part {
  kOwn,       // the other ranks wait for what comes of it: all
  kExchange,  // the other ranks are in it: that a rank is lost or late, or that ranks differ (Health::fail)
  kCall,      // the whole of a call: the errors of is_own()
  kLocal      // no rank waits for it: none
};
[[nodiscard]] constexpr Part call_if(bool collective) noexcept { return collective ? Part::kCall : Part::kLocal; }

/// A lack of memory, threads or descriptors, or a defect of libddp, that the other ranks cannot know of. Not wrong
/// arguments, and not what all ranks agreed on.
[[nodiscard]] bool is_own(const Error& error) noexcept;

/// Breaks the group if the part asks for it. Throws what is thrown in place of `error`, if anything is.
void break_for(Group& group, Part part, const char* function, const Error& error);

/// Returns the result of the body. An exception from it breaks the group, if the part requires it, and is rethrown.
/// `function` is the public call, or NULL.
template <class Body>
auto or_break(Group& group, Part part, const char* function, Body&& body) {
  return on_error(body, [&](const Error& error) { break_for(group, part, function, error); });
}
template <class Body>
auto or_break(Group& group, Part part, Body&& body) {
  return or_break(group, part, nullptr, body);
}

}  // namespace ddp::group
