// SPDX-License-Identifier: Apache-2.0
// The functions that start collectives: arguments, rules about send and receive.
#include <utility>

#include "core/dtype.hpp"
#include "support/fake_gpu/calls.hpp"
#include "support/fake_gpu/nccl.hpp"

namespace ddp::test::fake_gpu {
namespace {

int64_t size_of(const Spec& spec) { return dtype_size(static_cast<ddp_dtype>(spec.dtype)); }

/// Where `receive` must be if the operation is in place; NCCL's rules.
uintptr_t place_in(const Request& request) {
  const uintptr_t send = address_of(request.send);
  const auto own = static_cast<uintptr_t>(request.comm->rank * request.spec.count * size_of(request.spec));
  const std::string name = request.spec.name;
  if (name == "nccl.reduce_scatter") return send + own;
  if (name == "nccl.all_gather") return send - own;
  return send;
}

std::string problem_of(const Request& request) {
  const Spec& spec = request.spec;
  const auto dtype = static_cast<ddp_dtype>(spec.dtype);
  if (spec.count < 0) return "a count below 0";
  if (!is_dtype(dtype) || is_complex(dtype)) return "a dtype that NCCL does not have";
  if (spec.reduce != DDP_GPU_SUM && spec.reduce != DDP_GPU_MIN && spec.reduce != DDP_GPU_MAX &&
      spec.reduce != DDP_GPU_PRODUCT)
    return "a reduction that is none";
  if (spec.root < 0 || spec.root >= request.comm->world->size) return "a root that is no rank";
  if (spec.count > 0 && (request.send == nullptr || request.receive == nullptr)) return "a NULL buffer";
  if (request.stream->device != request.comm->device) return "a stream of another device";
  return {};
}

bool overlaps_wrongly(const Request& request) {
  const Extent extent = extent_of(request.spec, request.comm->world->size);
  const uintptr_t send = address_of(request.send), receive = address_of(request.receive);
  const bool apart =
      send + static_cast<uintptr_t>(extent.send) <= receive || receive + static_cast<uintptr_t>(extent.receive) <= send;
  return !apart && receive != place_in(request);
}

int32_t check(Runtime& r, const Request& request) {
  Comm& comm = *request.comm;
  if (comm.aborted || comm.state != CommState::kReady) return fail(comm, kNcclInvalidUsage, "the communicator is not ready");
  if (const int32_t code = async_result(r, comm); code != kNcclOk) return fail(comm, code, nccl_code_text(code));
  const std::string problem = problem_of(request);
  if (!problem.empty()) {
    r.violate(std::string(request.spec.name) + " on " + comm.name() + " gets " + problem);
    return fail(comm, kNcclInvalidArgument, problem);
  }
  if (request.spec.count > 0 && overlaps_wrongly(request))
    r.violate(std::string(request.spec.name) + " on " + comm.name() + " gets buffers that overlap and are not in place");
  return kNcclOk;
}

int32_t check_transfer(Runtime& r, const Request& request, const char* name) {
  Comm& comm = *request.comm;
  const Transfer& transfer = request.transfers.front();
  if (comm.aborted || comm.state != CommState::kReady) return fail(comm, kNcclInvalidUsage, "the communicator is not ready");
  if (const int32_t code = async_result(r, comm); code != kNcclOk) return fail(comm, code, nccl_code_text(code));
  const bool wrong = request.stream == nullptr || request.stream->device != comm.device || transfer.peer < 0 ||
                     transfer.peer >= comm.world->size || transfer.peer == comm.rank || transfer.bytes <= 0 ||
                     transfer.data == nullptr;
  if (!wrong) return kNcclOk;
  r.violate(std::string(name) + " on " + comm.name() + " gets a peer, count, buffer or stream that is none");
  return fail(comm, kNcclInvalidArgument, "wrong arguments");
}

bool is_registered(const Runtime& r, const Comm& comm, const void* memory) {
  const Block* const block = r.state->space.find(address_of(memory));
  for (const auto& [handle, registration] : r.state->registrations)
    if (registration.first.get() == &comm && block != nullptr && r.state->space.find(registration.second) == block)
      return true;
  return false;
}

/// With NVLS, the hosts of all ranks meet in a collective on registered memory, and in one that is captured, whose memory
/// NCCL registers by itself. They check nothing else, and do not see an abort.
void meet_on_host(Runtime& r, Lock& lock, const Request& request) {
  Comm& comm = *request.comm;
  const uint64_t number = comm.calls++;
  if (request.stream->capture == nullptr && !is_registered(r, comm, request.send) &&
      !is_registered(r, comm, request.receive))
    return;
  ++comm.world->met[number];
  comm.meeting = number;
  r.changed.notify_all();
  if (r.state->options.nccl_looks == 0) static_cast<void>(r.wait(lock, [&] { return !comm.is_meeting(); }));
}

int32_t start(Spec spec, const void* send, void* receive, void* handle, void* stream) {
  Call call{spec.name, stream};
  call.has_stream = call.enqueues = true;
  call.bytes = spec.count * size_of(spec);
  call.is_nccl = true;
  return entered(call, [&](Runtime& r, Lock& lock) -> int32_t {
    const CommPtr comm = comm_of(r, handle);
    if (comm == nullptr) return kNcclInvalidArgument;
    begin_use(r, lock, *comm, spec.name);
    Request request{spec, comm, r.stream_of(stream), send, receive, {}};
    int32_t code = kNcclInvalidArgument;
    if (request.stream != nullptr) code = check(r, request);
    if (request.stream != nullptr && code == kNcclOk) meet_on_host(r, lock, request);
    if (request.stream != nullptr && code == kNcclOk) code = connect_for(r, lock, request);
    const bool goes_on = code == kNcclOk || code == kNcclInProgress;
    if (request.stream != nullptr && goes_on) code = submit(r, std::move(request));
    end_use(*comm);
    return spec.count == 0 || in_group(r) ? code : go_on(r, *comm, code);
  });
}

/// `transfer`: with elements in the place of bytes.
int32_t transfer(const char* name, Transfer transfer, int32_t dtype, void* handle, void* stream) {
  Call call{name, stream};
  call.has_stream = true;
  call.is_nccl = true;
  call.bytes = transfer.bytes *= dtype_size(static_cast<ddp_dtype>(dtype));
  return entered(call, [&](Runtime& r, Lock& lock) -> int32_t {
    const CommPtr comm = comm_of(r, handle);
    if (comm == nullptr) return kNcclInvalidArgument;
    begin_use(r, lock, *comm, name);
    Request request{Spec{kTransfers, 1, DDP_U8, DDP_GPU_SUM, 0}, comm, r.stream_of(stream), nullptr, nullptr, {transfer}};
    int32_t code = check_transfer(r, request, name);
    if (code == kNcclOk && !in_group(r)) code = connect_for(r, lock, request);
    if (code == kNcclOk || code == kNcclInProgress) code = submit(r, std::move(request));
    end_use(*comm);
    return in_group(r) ? code : go_on(r, *comm, code);
  });
}

}  // namespace

Extent extent_of(const Spec& spec, int32_t size) {
  const int64_t bytes = spec.count * size_of(spec);
  const std::string name = spec.name;
  return {name == "nccl.reduce_scatter" ? bytes * size : bytes, name == "nccl.all_gather" ? bytes * size : bytes};
}

namespace nccl_entry {

int32_t all_reduce(const void* send, void* receive, int64_t count, int32_t dtype, int32_t reduce, void* comm, void* stream) {
  return start(Spec{"nccl.all_reduce", count, dtype, reduce, 0}, send, receive, comm, stream);
}

int32_t reduce_scatter(const void* send, void* receive, int64_t receive_count, int32_t dtype, int32_t reduce, void* comm,
                       void* stream) {
  return start(Spec{"nccl.reduce_scatter", receive_count, dtype, reduce, 0}, send, receive, comm, stream);
}

int32_t all_gather(const void* send, void* receive, int64_t send_count, int32_t dtype, void* comm, void* stream) {
  return start(Spec{"nccl.all_gather", send_count, dtype, DDP_GPU_SUM, 0}, send, receive, comm, stream);
}

int32_t broadcast(const void* send, void* receive, int64_t count, int32_t dtype, int32_t root, void* comm, void* stream) {
  return start(Spec{"nccl.broadcast", count, dtype, DDP_GPU_SUM, root}, send, receive, comm, stream);
}

int32_t send(const void* data, int64_t count, int32_t dtype, int32_t peer, void* comm, void* stream) {
  return transfer("nccl.send", {peer, true, const_cast<void*>(data), count}, dtype, comm, stream);
}

int32_t receive(void* data, int64_t count, int32_t dtype, int32_t peer, void* comm, void* stream) {
  return transfer("nccl.receive", {peer, false, data, count}, dtype, comm, stream);
}

}  // namespace nccl_entry
}  // namespace ddp::test::fake_gpu
