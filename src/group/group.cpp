// SPDX-License-Identifier: Apache-2.0
#include "group/group.hpp"

#include <mutex>

#include "bootstrap/failure.hpp"
#include "control/call_state.hpp"
#include "control/control.hpp"
#include "control/texts.hpp"
#include "exchange/memory_holds.hpp"
#include "exchange/transport.hpp"
#include "group/channels.hpp"
#include "group/collective_call.hpp"
#include "group/consensus.hpp"
#include "group/ending.hpp"
#include "group/group_impl.hpp"
#include "group/sparse_rows.hpp"
#include "group/value_lane.hpp"

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

int32_t Group::rank() const noexcept { return impl_->control->rank(); }
int32_t Group::size() const noexcept { return impl_->control->size(); }
Recoverable& Recoverable::of(const Group& group) noexcept { return *group.impl_->recoverable; }
ddp_backend Group::backend() const noexcept { return impl_->backend; }
std::string Group::name_of(int32_t rank) const { return impl_->control->member(rank).name(); }
Health& Group::health() const noexcept { return impl_->health; }
Gpu& Group::gpu() const noexcept { return *impl_->gpu.own; }
collective::GpuSide& Group::gpu_side() const noexcept { return *impl_->gpu.side; }
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
  group.gpu_side().check_reduction(function, tensor, op);
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

void reduce_metrics(Group& group, const Tensor& values, ddp_reduce op) {
  run_collective(group, UserCall::kReduceMetrics, [&] { group.channels().own().all_reduce(values, op); });
}

int64_t Group::all_reduce_rows(const Tensor& indices, const Tensor& rows, ddp_reduce op) {
  check_idle("ddp_group_all_reduce_rows");
  const bootstrap::CallState::In inside(calls(), UserCall::kAllReduceRows);
  return impl_->rows.all_reduce(*this, indices, real_view(rows), op);
}

void Group::get_rows(const Tensor& indices, const Tensor& rows) const { impl_->rows.get(indices, real_view(rows)); }

std::vector<std::string> Group::gather(std::string_view what, std::string_view mine) {
  health().check_usable();
  const os::Deadline deadline = os::Deadline::in_ms(impl_->recoverable->limit_ms(impl_->options.timeout_ms));
  return or_break(*this, Part::kExchange, [&] { return impl_->control->gather(what, mine, deadline); });
}

void Group::close() noexcept {
  const std::lock_guard lock(impl_->closing);
  if (!impl_->health.begin_close()) return;
  if (at_end_ != nullptr) at_end_(*this);
  const bool is_inside = calls().inside() != 0 || impl_->channels.any_open() || !impl_->channels.requests().is_idle() ||
                         !impl_->channels.values().await_idle();
  const bool in_order = !is_inside && !impl_->health.has_fault();
  impl_->gpu.side->close(in_order, collective::GpuSide::Leaves::kGroup);
  if (in_order)
    impl_->channels.shutdown();
  else if (!impl_->health.has_fault())
    impl_->channels.end_messages();
  impl_->health.leave();
  impl_->memory->make_private();
}

}  // namespace ddp::group
