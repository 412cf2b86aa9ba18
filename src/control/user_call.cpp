// SPDX-License-Identifier: Apache-2.0
#include "control/user_call.hpp"

#include <array>

namespace ddp::bootstrap {
namespace {

constexpr std::array kNames = {"",
#define DDP_USER_CALL(id, name) name,
                               DDP_USER_CALLS(DDP_USER_CALL)
#undef DDP_USER_CALL
};
static_assert(kNames.size() == static_cast<size_t>(kLastUserCall) + 1);

}  // namespace

const char* name_of(UserCall call) noexcept {
  const auto at = static_cast<size_t>(call);
  return at < kNames.size() ? kNames[at] : "";
}

UserCall user_call(std::string_view function) noexcept {
  for (size_t at = 1; at < kNames.size(); ++at)
    if (function == kNames[at]) return static_cast<UserCall>(at);
  return UserCall::kNone;
}

std::string describe_call(UserCall call, std::string_view what) {
  std::string name = name_of(call);
  if (what.empty() || what == name) return name;
  const std::string quoted = "\"" + std::string(what) + "\"";
  return name.empty() ? quoted : name + " (" + quoted + ")";
}

}  // namespace ddp::bootstrap
