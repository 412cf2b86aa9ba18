// SPDX-License-Identifier: Apache-2.0
#include "group/group.hpp"

#include <mutex>

#include "bootstrap/failure.hpp"
#include "control/call_state.hpp"
#include "control/control.hpp"
#include "control/texts.hpp"
#include "core/attempt.hpp"
#include "device/gpu/own_gpu.hpp"
#include "exchange/memory_holds.hpp"
#include "exchange/transport.hpp"
#include "group/channels.hpp"
#include "group/collective_call.hpp"
#include "group/consensus.hpp"
#include "group/create.hpp"
#include "group/ending.hpp"
#include "group/group_impl.hpp"
#include "group/links.hpp"
#include "group/select.hpp"
#include "group/shared_memory.hpp"
#include "group/sparse_rows.hpp"
#include "group/survival.hpp"
#include "group/tracing.hpp"
#include "group/value_lane.hpp"
#include "os/log.hpp"

namespace ddp::group {

using bootstrap::UserCall;

namespace {

void check_together(const char* function, const Tensor& input, const Tensor& output) {
  if (input.is_on_gpu() != output.is_on_gpu())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "%s: input is %s but output is %s; both must lie on the GPU or both in host memory", function,
                     describe(input).c_str(), describe(output).c_str());
}

}  // namespace

Group::Group(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Group::~Group() {
  close();
  const bool was_broken = !impl_->origin.threads && Ending::has_broken(impl_->failure);
  const Arenas arenas = std::move(impl_->arenas);  // a copy would need memory
  impl_.reset();                                   // no thread touches the memory any more
  for (const auto& arena : arenas) {
    collective::MemoryHolds::instance().end(*arena);
    if (was_broken && arena.use_count() > 1) Ending::fence(*arena);
  }
}

void Group::Impl::connect(const char* function) {
  on_error([&] { build(function); },
           [&](const Error& error) {
             if (survival != nullptr) survival->excuse(*control, options, error);
           });
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
  if (survival != nullptr) survival->introduce(*control, options, deadline);
  const std::vector<int32_t> newcomers = survival != nullptr ? survival->newcomers() : std::vector<int32_t>();
  channels.start(choose_transport(context, {origin.threads, newcomers}, own_gpu, deadline), context, health);
  gpu.emplace(options, own_gpu, channels.first().gpu());
  memory.emplace(options, health, arenas, *gpu);
  backend = options.backend == DDP_BACKEND_NCCL ? DDP_BACKEND_NCCL : channels.first().backend();
  if (arenas.empty() || arenas.back() != channels.first().arena()) arenas.push_back(channels.first().arena());
  failure.add_waker([this] { channels.first().wake(); });
  if (options.requests != 0)
    on_error([&] { channels.requests().open(); },
             [&](const Error& error) {  // also where all ranks agree on it: nobody must wake what goes now
               failure.set(error);
               failure.quiesce();
             });
  if (control->size() == 1) return;
  failure.add_waker([this] { channels.messenger().wake(); });
  if (options.connect_all != 0) channels.messenger().open_all(deadline);
}

void Group::Impl::confirm() {
  const bootstrap::CallState::In inside(control->calls(), UserCall::kCommit);  // where the last of new ranks does it
  survival->confirm(*control, options, os::Deadline::in_ms(options.timeout_ms));
}

/// The group has broken: the transports end, and the failure stays.
void Group::Impl::retire() noexcept {
  if (gpu) gpu->close(false, Gpu::Leaves::kGroup);
  failure.set(Error());  // if a rank left in good order, no wait was ended yet
  failure.quiesce();
  if (channels.has_started()) channels.requests().stop(failure.cause().value_or(Error()));
  if (channels.has_started()) channels.values().stop(failure.cause().value_or(Error()));
  channels.stop();
  if (gpu) gpu->end();
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
  auto impl = std::make_unique<Impl>(std::move(control), options, numbered, std::move(survival), Arenas(), nullptr);
  on_error([&] { impl->connect(function); },
           [&](const Error& error) {
             if (error.is_agreed()) return;
             impl->health.give_up(function, error);
             impl->control->leave();  // not before the others have been informed
           });
  std::shared_ptr<Group> group(new Group(std::move(impl)));
  if (options.backend == DDP_BACKEND_NCCL || options.nccl_comm != nullptr) group->gpu().connect();
  return group;
}

int32_t Group::rank() const noexcept { return impl_->control->rank(); }
int32_t Group::size() const noexcept { return impl_->control->size(); }
ddp_backend Group::backend() const noexcept { return impl_->backend; }
std::string Group::name_of(int32_t rank) const { return impl_->control->member(rank).name(); }
Health& Group::health() const noexcept { return impl_->health; }
Gpu& Group::gpu() const noexcept { return *impl_->gpu; }
Memory& Group::memory() const noexcept { return *impl_->memory; }
Channels& Group::channels() noexcept { return impl_->channels; }
bootstrap::Control& Group::control() noexcept { return *impl_->control; }
bootstrap::CallState& Group::calls() noexcept { return impl_->control->calls(); }
const ddp_group_options& Group::options() const noexcept { return impl_->options; }
const Group::Origin& Group::origin() const noexcept { return impl_->origin; }

// The end of a pass may compare replicas, whatever other pass is open (ddp_model_check_replicas itself has come through here
// before).
void Group::check_idle(const char* function) const {
  impl_->health.check_usable();
  const bootstrap::CallState& calls = impl_->control->calls();
  impl_->channels.check_idle(function, calls.call() == UserCall::kCheck && calls.is_caller());
}

void check_operation(const Group& group, const char* function, const Tensor& tensor, ddp_reduce op) {
  if (is_complex(tensor.dtype) && op != DDP_SUM && op != DDP_AVERAGE)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "%s: %s has no minimum, maximum or product here; complex numbers are added and averaged", function,
                     describe(tensor).c_str());
  group.gpu().check_reduction(function, tensor, op);
}

void begin_post(Group& group, UserCall call) {
  group.health().check_usable();
  group.channels().check_idle(bootstrap::name_of(call), true);
  if (group.channels().requests().is_open()) return;
  if (group.channels().any_open())
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: the first request of a group is made while no backward pass is open, or the group with the option "
                     "requests = 1: all ranks open a channel for it",
                     bootstrap::name_of(call));
  const bootstrap::CallState::In inside(group.calls(), call);
  on_error<Error>(
      [&] { group.channels().requests().open(); },
      [&](const Error& error) { break_for(group, error.is_agreed() ? Part::kLocal : Part::kOwn, nullptr, error); });
}

void Group::barrier(Posting posting) {
  run_or_post(*this, UserCall::kBarrier, posting, [](const Sequence& in) { in.transport.barrier(); });
}

void Group::all_reduce(const Tensor& tensor, ddp_reduce op, void* stream, Posting posting) {
  constexpr UserCall kCall = UserCall::kAllReduce;
  check_operation(*this, name_as_made(kCall, posting), tensor, op);
  run_or_post(*this, kCall, tensor, posting,
              [real = real_view(tensor), op, stream](const Sequence& in) { in.transport.all_reduce(real, op, stream); });
}

void Group::all_gather(const Tensor& input, const Tensor& output, void* stream, Posting posting) {
  constexpr UserCall kCall = UserCall::kAllGather;
  const char* const name = name_as_made(kCall, posting);
  check_together(name, input, output);
  if (input.dtype != output.dtype || output.count != input.count * size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: output is %s; for the input %s on %d ranks it must have %lld elements",
                     name, describe(output).c_str(), describe(input).c_str(), size(),
                     static_cast<long long>(input.count) * size());
  run_or_post(*this, kCall, input, posting, [from = real_view(input), to = real_view(output), stream](const Sequence& in) {
    in.transport.all_gather(from, to, stream);
  });
}

void Group::reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op, void* stream, Posting posting) {
  constexpr UserCall kCall = UserCall::kReduceScatter;
  const char* const name = name_as_made(kCall, posting);
  check_together(name, input, output);
  if (input.dtype != output.dtype || input.count != output.count * size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: input is %s; for the output %s on %d ranks it must have %lld elements",
                     name, describe(input).c_str(), describe(output).c_str(), size(),
                     static_cast<long long>(output.count) * size());
  check_operation(*this, name, input, op);
  run_or_post(*this, kCall, input, posting,
              [from = real_view(input), to = real_view(output), op, stream](const Sequence& in) {
                in.transport.reduce_scatter(from, to, op, stream);
              });
}

void Group::broadcast(const Tensor& tensor, int32_t root, void* stream, Posting posting) {
  constexpr UserCall kCall = UserCall::kBroadcast;
  check_root(*this, name_as_made(kCall, posting), root);
  run_or_post(*this, kCall, tensor, posting,
              [real = real_view(tensor), root, stream](const Sequence& in) { in.transport.broadcast(real, root, stream); });
}

void Group::reduce_metrics(const Tensor& values, ddp_reduce op) {
  run_collective(*this, UserCall::kReduceMetrics, [&] { channels().own().all_reduce(values, op); });
}

int64_t Group::all_reduce_rows(const Tensor& indices, const Tensor& rows, ddp_reduce op) {
  check_idle("ddp_group_all_reduce_rows");
  const bootstrap::CallState::In inside(calls(), UserCall::kAllReduceRows);
  return impl_->rows.all_reduce(*this, indices, real_view(rows), op);
}

void Group::get_rows(const Tensor& indices, const Tensor& rows) const { impl_->rows.get(indices, real_view(rows)); }

std::vector<std::string> Group::gather(std::string_view what, std::string_view mine) {
  health().check_usable();
  const Survival* const survival = impl_->survival.get();
  const int64_t timeout_ms = impl_->options.timeout_ms;
  const os::Deadline deadline = os::Deadline::in_ms(survival == nullptr ? timeout_ms : survival->limit_ms(timeout_ms));
  return or_break(*this, Part::kExchange, [&] { return impl_->control->gather(what, mine, deadline); });
}

void Group::close() noexcept {
  const std::lock_guard lock(impl_->closing);
  if (!impl_->health.begin_close()) return;
  end_trace(*this);
  const bool is_inside = calls().inside() != 0 || impl_->channels.any_open() || !impl_->channels.requests().is_idle() ||
                         !impl_->channels.values().await_idle();
  const bool in_order = !is_inside && !impl_->health.has_fault();
  impl_->gpu->close(in_order, Gpu::Leaves::kGroup);
  if (in_order) impl_->channels.shutdown();
  impl_->health.leave();
  SharedMemory::make_private(*this);
}

}  // namespace ddp::group
