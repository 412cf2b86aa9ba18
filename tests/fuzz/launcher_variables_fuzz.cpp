// SPDX-License-Identifier: Apache-2.0
// Any bytes as the environment that a launcher leaves: lines of NAME=VALUE. A rank is refused with INVALID_ARGUMENT, or it
// gets a rank inside the world, and a place that can be parsed again.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "control/limits.hpp"
#include "control/net.hpp"
#include "core/error.hpp"
#include "discovery/launchers.hpp"
#include "discovery/rendezvous.hpp"
#include "fuzz/must.hpp"

namespace {

using namespace ddp;

std::map<std::string, std::string, std::less<>> variables;  // an EnvironmentFn carries no state

const char* look_up(const char* name) {
  const auto found = variables.find(std::string_view(name));
  return found != variables.end() ? found->second.c_str() : nullptr;
}

void read_variables(std::string_view bytes) {
  variables.clear();
  while (!bytes.empty()) {
    const std::string_view line = bytes.substr(0, bytes.find('\n'));
    bytes.remove_prefix(std::min(bytes.size(), line.size() + 1));
    const size_t equals = line.find('=');
    // A variable ends at its first NUL.
    if (equals != std::string_view::npos)
      variables[std::string(line.substr(0, equals))] =
          std::string(line.substr(equals + 1, line.find('\0', equals) - equals - 1));
  }
}

void resolve(const char* rendezvous) {
  ddp_group_options options{};
  options.struct_size = sizeof options;
  options.rank = options.world_size = -1;
  try {
    const bootstrap::Meeting meeting = bootstrap::resolve_meeting(rendezvous, options, look_up);
    must(meeting.size >= 1 && meeting.size <= bootstrap::limits::kRanks && meeting.rank >= 0 && meeting.rank < meeting.size,
         "a rank inside the world");
    if (meeting.size == 1 || meeting.kind != bootstrap::Meeting::Kind::kEnvironment) return;
    const auto [host, port] = bootstrap::net::split_place(meeting.place);
    must(!host.empty() && port >= 1 && port <= 65'535, "a host and a port");
  } catch (const Error& error) {
    must(error.status() == DDP_ERROR_INVALID_ARGUMENT && !error.text().empty(), "refusals are INVALID_ARGUMENT with a text");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  read_variables({reinterpret_cast<const char*>(data), size});
  resolve("env://");
  resolve("tcp://node:29500#second");
  (void)bootstrap::describe_variables(look_up);
  return 0;
}
