#include "comm/group.hpp"

#include <atomic>
#include <mutex>
#include <optional>

#include "base/bytes.hpp"
#include "base/float_environment.hpp"
#include "base/log.hpp"
#include "comm/choose.hpp"
#include "comm/control/agree.hpp"
#include "comm/control/call_state.hpp"
#include "comm/control/control.hpp"
#include "comm/control/texts.hpp"
#include "comm/failure.hpp"
#include "comm/gathered.hpp"
#include "comm/memory_holds.hpp"
#include "comm/nccl/own_gpu.hpp"
#include "comm/nccl/bucket.hpp"
#include "comm/nccl/side.hpp"
#include "comm/nccl/stamps.hpp"
#include "comm/or_break.hpp"
#include "comm/rendezvous/rendezvous.hpp"
#include "comm/rows.hpp"
#include "comm/transport.hpp"

namespace ddp {

struct Group::Impl {
  ddp_group_options options{};
  Origin origin;
  std::unique_ptr<nccl::OwnGpu> gpu;
  // Destroyed in reverse: the transport and its threads first, then the control plane's, then what they point to.
  Failure failure;
  std::unique_ptr<Control> control;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<nccl::Side> side;
  std::atomic<nccl::Side*> published_side{nullptr};  // for those who must not wait
  std::atomic<const void*> pass_owner{nullptr};
  std::atomic<bool> closed{false};
  std::mutex closing;  // close() once
  uint64_t models = 0;
  const void* absence_of = nullptr;
  std::string absence;
  Rows rows;           // the last sparse sum
  // Made in time, for when there is no memory.
  const Error destroyed{DDP_ERROR_INVALID_STATE, "the group was destroyed"};
  std::optional<Error> gave_up;

  void connect(const char* function);
  void abort(const Error& cause) noexcept;
  void give_up(const char* function, const Error& why) noexcept;
};

namespace {

/// What decides how ranks talk to each other must be the same on all.
void agree_on_options(Control& control, const ddp_group_options& options, const char* function, Deadline deadline) {
  const std::string mine = std::to_string(static_cast<int>(options.backend)) + " with sum_order " +
                           std::to_string(static_cast<int>(options.sum_order));
  const std::vector<std::string> all = control.gather("group options", mine, deadline);
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw make_error(DDP_ERROR_MISMATCH, "%s: the ranks ask for different backends or orders: %s for backend %s, %s for backend %s", function,
                       control.member(0).name().c_str(), all[0].c_str(), control.member(static_cast<int32_t>(rank)).name().c_str(),
                       all[rank].c_str());
}

/// What every rank makes on its GPU, or no rank: it needs memory there.
template <class Make>
std::unique_ptr<BucketOperation> all_or_nobody(Group& group, Make&& make) {
  std::unique_ptr<BucketOperation> made;
  const std::optional<Error> problem = try_to([&] { made = make(); });
  group.agree("GPU memory", problem ? &*problem : nullptr);
  return made;
}

void check_together(const char* function, const Tensor& input, const Tensor& output) {
  if (input.is_on_gpu() != output.is_on_gpu())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: input is %s but output is %s; both must lie on the GPU or both in host memory", function,
                     describe(input).c_str(), describe(output).c_str());
}

void check_operation(const char* function, const Tensor& tensor, ddp_reduce op) {
  if (is_complex(tensor.dtype) && op != DDP_SUM && op != DDP_AVERAGE)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: %s has no minimum and no maximum; complex numbers have no order", function,
                     describe(tensor).c_str());
}

}  // namespace

Group::Group(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Group::~Group() {
  close();
  const std::shared_ptr<Arena> arena = impl_->transport->arena();
  impl_.reset();  // no thread touches the memory any more
  MemoryHolds::instance().end(*arena);
}

void Group::Impl::connect(const char* function) {
  gpu = std::make_unique<nccl::OwnGpu>(options.device_index, origin.local_rank, control->member(control->rank()).name());
  const TransportContext context{control.get(), &failure, options};
  // The failure callback may come at any time from now on; it only touches what outlives the control plane.
  control->on_failure([this](const Error& cause) {
    failure.set(cause, texts::is_goodbye(*control, cause) ? Failure::Wake::kNo : Failure::Wake::kYes);
  });
  const Deadline deadline = Deadline::in_ms(options.rendezvous_timeout_ms);
  agree_on_options(*control, options, function, deadline);
  transport = choose_transport(context, origin.threads, deadline);
  failure.add_waker([this] { transport->wake(); });
}

void Group::Impl::abort(const Error& cause) noexcept {
  control->abort(cause);
  failure.set(cause);
}

void Group::Impl::give_up(const char* function, const Error& why) noexcept {
  if (control->size() == 1 || failure.broken()) return;
  try {
    const std::string text = texts::gave_up(control->member(control->rank()), function, why.text()).text();
    abort(Error(breaks_group(why.status()) ? why.status() : DDP_ERROR_PEER_FAILED, text));
  } catch (const std::exception&) {
    abort(*gave_up);
  }
}

std::shared_ptr<Group> Group::create(const char* rendezvous, const ddp_group_options& options) {
  const Meeting meeting = resolve_meeting(rendezvous, options, [](const char* name) -> const char* { return ::getenv(name); });
  return form(meet(meeting, options), options, {meeting.kind == Meeting::Kind::kLocal, meeting.local_rank}, "ddp_group_create");
}

std::shared_ptr<Group> Group::form(std::unique_ptr<Control> control, const ddp_group_options& options, const Origin& origin, const char* function) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->origin = origin;
  impl->control = std::move(control);
  impl->gave_up = texts::gave_up(impl->control->member(impl->control->rank()), nullptr, Error().text());
  try {
    impl->connect(function);
  } catch (const std::exception& thrown) {
    if (const Error error = to_error(thrown); !error.is_agreed()) {
      impl->give_up(function, error);
      impl->control->leave();  // not before the others have been told
    }
    throw;
  }
  std::shared_ptr<Group> group(new Group(std::move(impl)));
  if (options.backend == DDP_BACKEND_NCCL) static_cast<void>(group->gpu_side());
  return group;
}

int32_t Group::rank() const noexcept { return impl_->control->rank(); }
int32_t Group::size() const noexcept { return impl_->control->size(); }
ddp_backend Group::backend() const noexcept {
  return impl_->options.backend == DDP_BACKEND_NCCL ? DDP_BACKEND_NCCL : impl_->transport->backend();
}
std::string Group::name_of(int32_t rank) const { return impl_->control->member(rank).name(); }
const gpu::Device& Group::gpu() { return impl_->gpu->open(); }
gpu::Scratch& Group::gpu_scratch() { return impl_->gpu->scratch(); }
void Group::bind(Tensor& tensor, const char* what) { impl_->gpu->bind(tensor, what); }

nccl::Side& Group::gpu_side() {
  if (impl_->side != nullptr) return *impl_->side;
  check_usable();
  const Deadline deadline = Deadline::in_ms(impl_->options.rendezvous_timeout_ms);
  const TransportContext context{impl_->control.get(), &impl_->failure, impl_->options};
  const std::optional<Error> problem = try_to([&] { static_cast<void>(gpu()); });
  try {
    ddp::agree(*impl_->control, "GPU", problem, deadline);
    impl_->side = std::make_unique<nccl::Side>(context, gpu(), deadline);
  } catch (const Error& error) {
    fail(error);
    throw;
  }
  impl_->published_side.store(impl_->side.get());
  impl_->failure.add_waker([raw = impl_.get()] { raw->side->wake(); });
  return *impl_->side;
}

nccl::Side* Group::existing_gpu_side() const noexcept { return impl_->published_side.load(); }

const uint32_t* Group::gpu_stop(void* stream) const {
  nccl::Side* const side = existing_gpu_side();
  return side == nullptr ? nullptr : side->stop_on(stream);
}

// What only gives can always be had by gathering.
bool Group::can(Collective kind, bool on_gpu) const noexcept {
  return on_gpu ? nccl::Side::can(kind) : kind == Collective::kPublish || impl_->transport->can(kind);
}

std::unique_ptr<BucketOperation> Group::prepare(const ExchangeSpec& spec) {
  if (!spec.on_gpu) return transport().can(spec.kind()) ? transport().prepare(spec) : make_gathered(transport(), rank(), spec);
  auto words = transport().prepare(nccl::words_of(spec));
  return all_or_nobody(*this, [&] { return gpu_side().prepare(spec, std::move(words)); });
}

Transport& Group::transport() noexcept { return *impl_->transport; }
Control& Group::control() noexcept { return *impl_->control; }
CallState& Group::calls() noexcept { return impl_->control->calls(); }
const ddp_group_options& Group::options() const noexcept { return impl_->options; }
const Group::Origin& Group::origin() const noexcept { return impl_->origin; }

void Group::check_usable() const {
  check_no_fault();
  impl_->failure.check();
}

void Group::check_no_fault() const {
  if (impl_->closed.load()) throw Error(DDP_ERROR_INVALID_STATE, "the group was destroyed");
  if (impl_->failure.woken()) impl_->failure.check();
}

void Group::check_idle(const char* function) const {
  check_usable();
  if (impl_->pass_owner.load() != nullptr)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: a backward pass is open on this group; call ddp_model_end_backward first, or use a second group", function);
  if (!impl_->absence.empty()) throw make_error(DDP_ERROR_INVALID_STATE, "%s: %s", function, impl_->absence.c_str());
}

uint64_t Group::next_model() noexcept { return ++impl_->models; }

void Group::set_absence(const void* owner, std::string text) {
  impl_->absence_of = owner;
  impl_->absence = std::move(text);
}

/// A collective that fails for the group's sake fails for everybody, with one cause.
template <class Body>
void Group::collective(UserCall call, Body&& body) {
  check_idle(ddp::name_of(call));
  const CallState::In inside(calls(), call);
  try {
    body();
  } catch (const Error& error) {
    fail(error);
    throw;
  }
}

void Group::fail(const Error& error) {
  if (!breaks_group(error.status()) && error.status() != DDP_ERROR_MISMATCH) return;
  impl_->control->abort(error);
  const std::optional<Error> of_all = impl_->control->settle();  // also: the others know before the program may end for it
  impl_->failure.set(of_all.has_value() ? *of_all : error);
  impl_->failure.check();  // the first cause, whichever it was
}

/// As collective(), for tensors on a GPU: the ranks compare what they do before anybody waits inside NCCL.
template <class Body>
void Group::gpu_collective(UserCall call, const Stamp& stamp, Body&& body) {
  const StandardFloats floats;  // for threads that are made here
  collective(call, [&] {
    nccl::compare_stamps(*impl_->transport, *impl_->control, stamp);
    or_break(*this, [&] { body(gpu_side()); });  // the others are inside NCCL
  });
}

void Group::barrier() {
  collective(UserCall::kBarrier, [&] { impl_->transport->barrier(); });
}

void Group::all_reduce(const Tensor& tensor, ddp_reduce op, void* stream) {
  check_operation("ddp_group_all_reduce", tensor, op);
  if (tensor.is_on_gpu()) {
    nccl::check_reduction("ddp_group_all_reduce", tensor, op);
    const Tensor real = real_view(tensor);
    return gpu_collective(UserCall::kAllReduce, nccl::stamp_of(Collective::kAllReduce, real, real.count, op),
                          [&](nccl::Side& side) { side.all_reduce(real, op, stream); });
  }
  collective(UserCall::kAllReduce, [&] { impl_->transport->all_reduce(real_view(tensor), op); });
}

void Group::all_gather(const Tensor& input, const Tensor& output, void* stream) {
  check_together("ddp_group_all_gather", input, output);
  if (input.dtype != output.dtype || output.count != input.count * size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_group_all_gather: output is %s; for the input %s on %d ranks it must have %lld elements",
                     describe(output).c_str(), describe(input).c_str(), size(), static_cast<long long>(input.count * size()));
  if (input.is_on_gpu())
    return gpu_collective(UserCall::kAllGather, nccl::stamp_of(Collective::kAllGather, input, input.count),
                          [&](nccl::Side& side) { side.all_gather(real_view(input), real_view(output), stream); });
  collective(UserCall::kAllGather, [&] { impl_->transport->all_gather(real_view(input), real_view(output)); });
}

void Group::reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op, void* stream) {
  check_together("ddp_group_reduce_scatter", input, output);
  if (input.dtype != output.dtype || input.count != output.count * size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_group_reduce_scatter: input is %s; for the output %s on %d ranks it must have %lld elements",
                     describe(input).c_str(), describe(output).c_str(), size(), static_cast<long long>(output.count * size()));
  check_operation("ddp_group_reduce_scatter", input, op);
  if (input.is_on_gpu()) {
    nccl::check_reduction("ddp_group_reduce_scatter", input, op);
    return gpu_collective(UserCall::kReduceScatter, nccl::stamp_of(Collective::kReduceScatter, real_view(input), real_view(output).count, op),
                          [&](nccl::Side& side) { side.reduce_scatter(real_view(input), real_view(output), op, stream); });
  }
  collective(UserCall::kReduceScatter, [&] { impl_->transport->reduce_scatter(real_view(input), real_view(output), op); });
}

void Group::broadcast(const Tensor& tensor, int32_t root, void* stream) {
  if (root < 0 || root >= size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_group_broadcast: root is %d; the group has the ranks 0 to %d", root, size() - 1);
  if (tensor.is_on_gpu()) {
    Stamp stamp = nccl::stamp_of(Collective::kBroadcast, tensor, tensor.count);
    stamp.root = root;
    return gpu_collective(UserCall::kBroadcast, stamp, [&](nccl::Side& side) { side.broadcast(real_view(tensor), root, stream); });
  }
  collective(UserCall::kBroadcast, [&] { impl_->transport->broadcast(real_view(tensor), root); });
}

void Group::reduce_metrics(const Tensor& values, ddp_reduce op) {
  collective(UserCall::kReduceMetrics, [&] { impl_->transport->all_reduce(values, op); });
}

int64_t Group::all_reduce_rows(const Tensor& indices, const Tensor& rows, ddp_reduce op) {
  check_idle("ddp_group_all_reduce_rows");
  const CallState::In inside(calls(), UserCall::kAllReduceRows);
  return impl_->rows.all_reduce(*this, indices, real_view(rows), op);
}

void Group::get_rows(const Tensor& indices, const Tensor& rows) const { impl_->rows.get(indices, real_view(rows)); }

std::vector<std::string> Group::gather(std::string_view what, std::string_view mine) {
  check_usable();
  try {
    return impl_->control->gather(what, mine, Deadline::in_ms(impl_->options.timeout_ms));
  } catch (const Error& error) {
    fail(error);
    throw;
  }
}

void Group::agree(std::string_view what, const Error* mine) {
  throw_first(gather(what, outcome_bytes(mine)));
}

void* Group::alloc(int64_t bytes) {
  check_usable();
  return impl_->options.backend == DDP_BACKEND_NCCL ? alloc_on_gpu(bytes) : alloc_in_host(bytes);
}

void* Group::alloc_in_host(int64_t bytes) { return MemoryHolds::instance().alloc(impl_->transport->arena(), bytes); }

void* Group::alloc_on_gpu(int64_t bytes) { return gpu_side().alloc(bytes); }

void Group::free(void* data) {
  if (nccl::Side* const side = existing_gpu_side(); side == nullptr || !side->free(data))
    MemoryHolds::instance().free(*impl_->transport->arena(), data);
}

void Group::abort(const Error& cause) noexcept { impl_->abort(cause); }

void Group::give_up(const char* function, const Error& why) noexcept { impl_->give_up(function, why); }

void Group::close() noexcept {
  const std::lock_guard lock(impl_->closing);
  if (impl_->closed.exchange(true)) return;
  const bool in_order = calls().inside() == 0 && impl_->pass_owner.load() == nullptr && !impl_->failure.woken();
  if (impl_->side != nullptr) impl_->side->close(in_order);
  if (in_order) impl_->transport->farewell();
  impl_->control->leave();
  impl_->failure.set(impl_->destroyed);  // ends waits in other threads
  impl_->failure.quiesce();  // from here no thread of the control plane touches the transport
}

void Group::open_pass(const void* owner) {
  check_usable();
  if (!impl_->absence.empty() && impl_->absence_of != owner)
    throw make_error(DDP_ERROR_INVALID_STATE, "ddp_model_begin_backward: %s", impl_->absence.c_str());
  const void* nobody = nullptr;
  if (!impl_->pass_owner.compare_exchange_strong(nobody, owner))
    throw Error(DDP_ERROR_INVALID_STATE, "ddp_model_begin_backward: another backward pass is open on this group; end it first");
}

void Group::close_pass(const void* owner) noexcept {
  const void* expected = owner;
  impl_->pass_owner.compare_exchange_strong(expected, nullptr);
}

}  // namespace ddp
