// SPDX-License-Identifier: Apache-2.0
#include "os/environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>

#include "core/closest.hpp"
#include "os/log.hpp"

namespace ddp::os {
namespace {

// include/ENVIRONMENT.md, "Environment variables"; the last ones are for bindings, tests and programs that ddprun starts.
constexpr std::array<std::string_view, 20> kKnown{
    "DDP_TOKEN",      "DDP_TOKEN_FILE",     "DDP_INSECURE",     "DDP_LOG",     "DDP_SOCKET_IFNAME",
    "DDP_PORT_RANGE", "DDP_JOIN",           "DDP_PLACEMENT",    "DDP_TRACE",   "DDP_JOIN_FILE",
    "DDP_WATCH_DIR",  "DDP_MEMBERSHIP_LOG", "DDP_MODULE_PATH",  "DDP_LIBRARY", "DDP_LIB_DIR",
    "DDP_RESTARTS",   "DDP_TEST_HOST",      "DDP_NCCL_LIBRARY", "DDP_LINKS",   "DDP_GUARD_VALUES"};
constexpr std::array<std::string_view, 5> kLevels{"debug", "info", "warning", "error", "off"};

}  // namespace

std::vector<std::string> doubtful_variables(const char* const* environment) {
  std::vector<std::string> texts;
  for (; *environment != nullptr; ++environment) {
    const std::string_view assignment = *environment;
    const std::string_view name = assignment.substr(0, assignment.find('='));
    const std::string_view value = assignment.substr(std::min(name.size() + 1, assignment.size()));
    if (name == "DDP_LOG" && !value.empty() && std::find(kLevels.begin(), kLevels.end(), value) == kLevels.end())
      texts.push_back("DDP_LOG is \"" + std::string(value) + "\"; it must be debug, info, warning, error or off");
    if (!name.starts_with("DDP_") || std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end()) continue;
    const std::string_view meant = closest(name, kKnown);
    if (!meant.empty())
      texts.push_back("the variable " + std::string(name) + " is not read by libddp; did you mean " + std::string(meant) +
                      "?");
  }
  return texts;
}

void check_environment() {
  static std::atomic<bool> is_checked{false};
  if (is_checked.exchange(true)) return;
  for (const std::string& text : doubtful_variables(environ)) log(DDP_LOG_WARNING, "%s", text.c_str());
}

}  // namespace ddp::os
