// SPDX-License-Identifier: Apache-2.0
#include "group/create.hpp"

#include <cstdlib>
#include <optional>
#include <utility>

#include "control/port_range.hpp"
#include "core/attempt.hpp"
#include "discovery/rendezvous.hpp"
#include "group/group.hpp"
#include "group/links.hpp"
#include "group/membership_log.hpp"
#include "group/recovery.hpp"
#include "group/select.hpp"
#include "group/survival.hpp"
#include "group/tracing.hpp"
#include "os/environment.hpp"
#include "os/log.hpp"

namespace ddp::group {
namespace {

constexpr const char* kFunction = "ddp_group_create";

/// A group that is being created; each step adds what it is for.
struct Creation {
  const char* rendezvous;
  ddp_group_options options;
  bootstrap::Meeting meeting{};
  Group::Origin origin{};
  std::shared_ptr<Survival> survival{};
  std::shared_ptr<Group> group{};
  int64_t generation = 1;  // of the group, as this rank finds it
};

void take_environment(Creation& creation) {
  bootstrap::resolve_ports(creation.options, secure_getenv("DDP_PORT_RANGE"));
  resolve_links(creation.options, secure_getenv("DDP_LINKS"));
}

void find_meeting(Creation& creation) {
  creation.meeting = bootstrap::resolve_meeting(creation.rendezvous, creation.options,
                                                [](const char* name) -> const char* { return ::getenv(name); });
  os::log_about().rank = creation.meeting.rank;
  creation.origin = {creation.meeting.kind == bootstrap::Meeting::Kind::kLocal, creation.meeting.local_rank};
}

void check_variables(Creation& creation) {
  if (creation.meeting.rank == 0) os::check_environment();
}

void prepare_to_recover(Creation& creation) {
  creation.survival = make_survival(
      creation.options, creation.origin.threads,
      std::make_unique<bootstrap::JoinPlace>(creation.meeting, creation.options, secure_getenv("DDP_JOIN_FILE")));
}

void meet(Creation& creation) {
  if (creation.options.join != 0) return;
  creation.group = Group::form(bootstrap::meet(creation.meeting, creation.options, opening_of(creation.options)),
                               creation.options, creation.origin, kFunction, std::move(creation.survival));
  log_membership(creation.group->control(), creation.options, {});
}

/// A rank joins a group that stands.
std::shared_ptr<Group> join_once(const Creation& creation, const os::Deadline& deadline) {
  const std::shared_ptr<Survival>& survival = creation.survival;
  std::shared_ptr<Group> group =
      Group::form(survival->join(creation.options, deadline), creation.options, creation.origin, kFunction, survival);
  Changes changes;
  changes.joined = survival->newcomers();
  Recovery::take_place(*group, {});
  survival->set_changes(std::move(changes));
  return group;
}

/// A rank that dies while this one joins ends that; the others meet again, and so does this one.
void join(Creation& creation) {
  if (creation.options.join == 0) return;
  for (const os::Deadline deadline = os::Deadline::in_ms(creation.options.rendezvous_timeout_ms);;) {
    const std::optional<Error> failed = try_to([&] { creation.group = join_once(creation, deadline); });
    if (!failed) break;
    if (!breaks_group(failed->status()) || deadline.passed()) throw Error(*failed);
    os::log_of(*failed, DDP_LOG_WARNING, "%s: this rank joins again: %s", kFunction, failed->what());
    prepare_to_recover(creation);
  }
  creation.generation = creation.survival->generation();
}

void obey_launcher(Creation& creation) {
  follow_launcher(*creation.group, creation.generation, creation.meeting.group_name);
}

/// In this order; the first that throws ends the creation.
constexpr void (*kSteps[])(Creation&) = {take_environment, find_meeting, check_variables, prepare_to_recover, meet, join,
                                         obey_launcher};

}  // namespace

std::shared_ptr<Survival> make_survival(const ddp_group_options& options, bool threads,
                                        std::unique_ptr<bootstrap::JoinPlace> place) {
  if (options.recoverable == 0) return nullptr;
  if (threads)
    throw Error(DDP_ERROR_NOT_SUPPORTED,
                "ddp_group_create: recoverable is 1, but the ranks are threads of one process (local://), of which none can "
                "die alone; leave it 0");
  if (options.nccl_comm != nullptr)
    throw Error(
        DDP_ERROR_NOT_SUPPORTED,
        "ddp_group_create: recoverable is 1, but nccl_comm is a communicator of the program, which has these ranks for "
        "ever; leave one of them out");
  return std::make_shared<Survival>(std::move(place));
}

std::shared_ptr<Group> Group::create(const char* rendezvous, const ddp_group_options& options) {
  Creation creation{rendezvous, options};
  for (const auto step : kSteps) step(creation);
  return creation.group;
}

}  // namespace ddp::group
