// SPDX-License-Identifier: Apache-2.0
// How a group is created: Group::create is a list of steps, of which each has one concern; and how the ranks that have met
// build it.
#include <cstdlib>
#include <optional>
#include <utility>

#include "bootstrap/failure.hpp"
#include "control/call_state.hpp"
#include "control/control.hpp"
#include "control/port_range.hpp"
#include "control/texts.hpp"
#include "core/attempt.hpp"
#include "device/gpu/own_gpu.hpp"
#include "discovery/join_place.hpp"
#include "discovery/rendezvous.hpp"
#include "exchange/transport.hpp"
#include "group/channels.hpp"
#include "group/gpu.hpp"
#include "group/group.hpp"
#include "group/group_impl.hpp"
#include "group/links.hpp"
#include "group/membership_log.hpp"
#include "group/recovery.hpp"
#include "group/requests.hpp"
#include "group/select.hpp"
#include "group/survival.hpp"
#include "group/tracing.hpp"
#include "group/value_lane.hpp"
#include "os/environment.hpp"
#include "os/log.hpp"

namespace ddp::group {

using bootstrap::UserCall;

namespace {

constexpr const char* kFunction = "ddp_group_create";

/// What a group needs to continue after ranks have died; NULL unless its options ask for it. `threads`: its ranks are
/// threads of one process. `place`: where new ranks find the group. Throws NOT_SUPPORTED.
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

/// A rank joins an existing group.
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

Survival* Group::Impl::survival() const noexcept {
  return options.recoverable != 0 ? static_cast<Survival*>(recoverable.get()) : nullptr;
}

void Group::Impl::connect(const char* function) {
  on_error([&] { build(function); }, [&](const Error& error) { recoverable->excuse(*control, options, error); });
}

void Group::Impl::build(const char* function) {
  const std::string name = control->member(control->rank()).name();
  if (own_gpu == nullptr)
    own_gpu = std::make_shared<gpu::OwnGpu>(options.device_index, origin.local_rank, name);
  else
    own_gpu->rename(name);
  collective::TransportContext context{control.get(), &failure, options, &channels.queues()};
  if (!arenas.empty()) context.arena = arenas.back();
  context.waits = &waits;
  // The failure callback may come at any time from now on; it only touches what outlives the control plane.
  control->on_failure([this](const Error& cause) {
    failure.set(cause, bootstrap::texts::is_goodbye(*control, cause) ? bootstrap::Failure::Wake::kNo
                                                                     : bootstrap::Failure::Wake::kYes);
  });
  const os::Deadline deadline = os::Deadline::in_ms(options.rendezvous_timeout_ms);
  agree_on_options(*control, options, function, deadline);
  if (!origin.threads && control->size() > 1) require_links(*control, options);
  if (options.virtual_ranks != 0 && options.virtual_ranks < control->size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "%s: virtual_ranks is %d, but the group has %d ranks, of which each needs one at least", function,
                     options.virtual_ranks, control->size())
        .as_agreed();
  Survival* const recovers = survival();
  if (recovers != nullptr) recovers->introduce(*control, options, deadline);
  const std::vector<int32_t> newcomers = recovers != nullptr ? recovers->newcomers() : std::vector<int32_t>();
  channels.start(choose_transport(context, {origin.threads, newcomers}, own_gpu, deadline), context, health);
  gpu.side = channels.first().gpu();
  gpu.own = std::make_shared<Gpu>(options, own_gpu, gpu.side);
  memory.emplace(options, health, arenas, *gpu.side);
  backend = options.backend == DDP_BACKEND_NCCL ? DDP_BACKEND_NCCL : channels.first().backend();
  if (arenas.empty() || arenas.back() != channels.first().arena()) arenas.push_back(channels.first().arena());
  failure.add_waker([this] { channels.first().wake(); });
  if (options.requests != 0)
    on_error([&] { channels.requests().open(); },
             [&](const Error& error) {  // also where all ranks agree on it: no thread may wake what is destroyed now
               failure.set(error);
               failure.quiesce();
             });
  if (control->size() == 1) return;
  failure.add_waker([this] { channels.messenger().wake(); });
  if (options.connect_all != 0) channels.messenger().open_all(deadline);
}

void Group::Impl::confirm() {
  const bootstrap::CallState::In inside(control->calls(), UserCall::kCommit);  // where the last of new ranks does it
  survival()->confirm(*control, options, os::Deadline::in_ms(options.timeout_ms));
}

/// The group has broken: the transports end, and the failure stays.
void Group::Impl::retire() noexcept {
  if (gpu.side != nullptr) gpu.side->close(false, collective::GpuSide::Leaves::kGroup);
  failure.set(failure.cause().value_or(Error()));  // if a rank left in good order, no wait was ended yet
  failure.quiesce();
  if (channels.has_started()) channels.requests().stop(failure.cause().value_or(Error()));
  if (channels.has_started()) channels.values().stop(failure.cause().value_or(Error()));
  channels.stop();
  if (gpu.side != nullptr) gpu.side->end();
}

void Group::Impl::give_up(const char* function, const Error& why) noexcept {
  if (failure.broken()) return;
  const ddp_status status = breaks_group(why.status()) ? why.status() : DDP_ERROR_ABORTED;
  if (try_to([&] { health.abort(make_error(status, "%s: %s", function, why.what())); })) health.abort(Error());
}

std::shared_ptr<Group> Group::form(std::unique_ptr<bootstrap::Control> control, const ddp_group_options& options,
                                   const Origin& origin, const char* function, std::shared_ptr<Survival> survival) {
  os::log_about().rank = control->rank();
  Origin numbered = origin;
  numbered.number = os::log_about().group;
  if (survival == nullptr) survival = make_survival(options, origin.threads, std::make_unique<bootstrap::JoinPlace>());
  std::shared_ptr<Recoverable> recoverable = std::move(survival);
  if (recoverable == nullptr) recoverable = std::make_shared<Recoverable>();
  auto impl = std::make_unique<Impl>(std::move(control), options, numbered, std::move(recoverable), Arenas(), nullptr);
  on_error([&] { impl->connect(function); },
           [&](const Error& error) {
             if (error.is_agreed()) return;
             impl->health.give_up(function, error);
             impl->control->leave();  // not before the others have been informed
           });
  std::shared_ptr<Group> group(new Group(std::move(impl)));
  if (options.backend == DDP_BACKEND_NCCL || options.nccl_comm != nullptr) group->gpu_side().connect();
  return group;
}

std::shared_ptr<Group> Group::create(const char* rendezvous, const ddp_group_options& options) {
  Creation creation{rendezvous, options};
  for (const auto step : kSteps) step(creation);
  return creation.group;
}

}  // namespace ddp::group
