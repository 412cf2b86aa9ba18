// SPDX-License-Identifier: Apache-2.0
// From the rendezvous text, the options and the environment to a Meeting. Explicit options win over the environment.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>

#include "control/limits.hpp"
#include "control/texts.hpp"
#include "discovery/launchers.hpp"
#include "discovery/rendezvous.hpp"
#include "os/loopback.hpp"

namespace ddp::bootstrap {
namespace {

constexpr size_t kGroupNameLength = 64;

bool is_group_name(std::string_view name) {
  return name.size() <= kGroupNameLength && name.front() != '.' && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                  c == '.';
         });
}

void check_host_and_port(const std::string& text) {
  const size_t colon = text.rfind(':');
  int32_t port = 0;
  const char* end = text.data() + text.size();
  const bool has_port = colon != std::string::npos && colon > 0 &&
                        std::from_chars(text.data() + colon + 1, end, port).ptr == end && port > 0 && port < 65'536;
  const bool bare_ipv6 = has_port && text.front() != '[' && text.find(':') != colon;
  if (!has_port || bare_ipv6)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "the rendezvous tcp://%s has no host:port in it (write tcp://node1:29500 or tcp://[::1]:29500)",
                     text.c_str());
}

// Kind, place and group name. The options are needed for store:// alone.
Meeting parse(const char* rendezvous, const ddp_group_options& options) {
  std::string text = rendezvous != nullptr ? rendezvous : "env://";
  Meeting meeting;
  if (const size_t hash = text.rfind('#'); hash != std::string::npos) {
    meeting.group_name = text.substr(hash + 1);
    text.resize(hash);
    if (meeting.group_name.empty() || !is_group_name(meeting.group_name))
      throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                       "the group name \"%s\" after # must have 1 to 64 letters, digits, dots, hyphens or underscores",
                       meeting.group_name.substr(0, 2 * kGroupNameLength).c_str());
  }
  const auto scheme = [&](const char* name, Meeting::Kind kind) {
    if (text.rfind(name, 0) != 0) return false;
    meeting.kind = kind;
    meeting.place = text.substr(std::strlen(name));
    return true;
  };
  const bool known = scheme("env://", Meeting::Kind::kEnvironment) || scheme("tcp://", Meeting::Kind::kTcp) ||
                     scheme("file://", Meeting::Kind::kFile) || scheme("local://", Meeting::Kind::kLocal) ||
                     scheme("store://", Meeting::Kind::kStore);
  const bool takes_place = meeting.kind != Meeting::Kind::kEnvironment && meeting.kind != Meeting::Kind::kStore;
  if (!known || takes_place == meeting.place.empty())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "the rendezvous \"%s\" is none of env://, tcp://host:port, file:///path, local://name and store://",
                     text.c_str());
  if (meeting.kind == Meeting::Kind::kTcp) check_host_and_port(meeting.place);
  if (meeting.kind == Meeting::Kind::kFile && meeting.place.front() != '/')
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "the path in the rendezvous file://%s must begin with a slash",
                     meeting.place.c_str());
  if (meeting.kind == Meeting::Kind::kStore &&
      (options.store == nullptr || options.store->set == nullptr || options.store->get == nullptr))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "the rendezvous store:// needs options->store with set and get");
  return meeting;
}

[[noreturn]] void throw_missing(const std::string& missing, EnvironmentFn environment) {
  throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                   "cannot tell where this rank belongs: %s missing; found in the environment: %s. Start the ranks with "
                   "ddprun, torchrun, mpirun or srun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
                   missing.c_str(), describe_variables(environment).c_str());
}

// The rank and the size; a plain run without any launcher is a group of one.
void find_rank_and_size(Meeting& meeting, const ddp_group_options& options, const Launch& launch,
                        EnvironmentFn environment) {
  if (options.rank < -1 || options.world_size < -1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "options->%s is %d; 0 or more is possible, and -1 for what the rendezvous says",
                     options.rank < -1 ? "rank" : "world_size", options.rank < -1 ? options.rank : options.world_size);
  const auto size = options.world_size >= 0 ? std::optional(options.world_size) : launch.size;
  auto rank = options.rank >= 0 ? std::optional(options.rank) : launch.rank;
  if (options.rank < 0 && options.world_size == 1) rank = 0;  // whatever number the launcher gave this process
  const bool nothing = !size.has_value() && !rank.has_value() && launch.host.empty();
  if (nothing && meeting.kind == Meeting::Kind::kEnvironment) return;
  if (!size.has_value() || (!rank.has_value() && *size != 1)) {
    const bool local = meeting.kind == Meeting::Kind::kLocal;
    std::string missing = rank.has_value() ? "" : local ? "options->rank" : "the rank (RANK or options->rank)";
    if (!size.has_value()) {
      if (!missing.empty()) missing += " and ";
      missing += local ? "options->world_size" : "the world size (WORLD_SIZE or options->world_size)";
    }
    throw_missing(missing + (rank.has_value() || size.has_value() ? " is" : " are"), environment);
  }
  meeting.size = *size;
  meeting.rank = rank.value_or(0);
  if (*size < 1 || *size > limits::kRanks)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "a world size of %d is not possible; 1 to %d are", *size, limits::kRanks);
  if (meeting.rank < 0 || meeting.rank >= meeting.size) throw texts::rank_out_of_range(meeting.rank, meeting.size);
}

/// host:port; "" if one of them is not known.
std::string place_at(const std::string& host, std::optional<int32_t> port) {
  if (port.has_value() && (*port < 1 || *port > 65'535))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "MASTER_PORT is %d; 1 to 65535 are possible", *port);
  if (!port.has_value() || host.empty()) return "";
  const bool bare_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return (bare_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(*port);
}

// Where rank 0 is, for env://.
void find_place(Meeting& meeting, const Launch& launch, EnvironmentFn environment) {
  meeting.port_may_be_taken = launch.port_may_be_taken;
  const bool one_host = launch.local_size.has_value() && *launch.local_size == meeting.size;
  // On one host the loopback address is always right, whatever the host's name resolves to.
  meeting.place = place_at(one_host ? os::loopback() : launch.host, launch.port);
  if (!meeting.place.empty() || meeting.size == 1) return;
  const bool names_start = !launch.job.empty() || launch.needs_parent;
  if (one_host && names_start) {
    meeting.kind = Meeting::Kind::kFile;
    meeting.private_place = true;
    meeting.needs_parent = launch.needs_parent;
    meeting.place = launch.launcher;
    return;
  }
  std::string missing = launch.host.empty() ? "MASTER_ADDR (the host of rank 0)" : "";
  if (!launch.port.has_value()) missing += std::string(missing.empty() ? "" : " and ") + "MASTER_PORT";
  throw_missing(missing + (launch.host.empty() && !launch.port.has_value() ? " are" : " is"), environment);
}

}  // namespace

Meeting resolve_meeting(const char* rendezvous, const ddp_group_options& options, EnvironmentFn environment) {
  Meeting meeting = parse(rendezvous, options);
  const bool by_environment = meeting.kind == Meeting::Kind::kEnvironment;
  const Launch launch = meeting.kind == Meeting::Kind::kLocal ? Launch{} : read_launch(environment);
  if (options.join != 0 && meeting.kind != Meeting::Kind::kLocal) {  // the group decides its rank and size
    meeting.local_rank = launch.local_rank.value_or(0);
    if (by_environment) meeting.place = place_at(launch.host, launch.port);
    return meeting;
  }
  find_rank_and_size(meeting, options, launch, environment);
  meeting.local_rank = launch.local_rank.value_or(meeting.kind == Meeting::Kind::kLocal ? meeting.rank : 0);
  if (meeting.size == 1) {  // there is no rank to meet, but others may join
    if (by_environment && options.recoverable != 0) find_place(meeting, launch, environment);
    return meeting;
  }
  // Elsewhere than at env:// ranks of several launchers may meet, if the program gives them their numbers.
  const bool numbered_by_launcher = options.rank < 0 && options.world_size < 0;
  if (by_environment || numbered_by_launcher) meeting.job = launch.job;
  if (by_environment) find_place(meeting, launch, environment);
  return meeting;
}

}  // namespace ddp::bootstrap
