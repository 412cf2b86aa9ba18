// SPDX-License-Identifier: Apache-2.0
// Communicators: meeting by an id, ending, being aborted.
#include <cstring>
#include <utility>

#include "support/fake_gpu/calls.hpp"
#include "support/fake_gpu/nccl.hpp"

namespace ddp::test::fake_gpu {
namespace {

thread_local std::string thread_error;  // of a call that has no communicator

constexpr char kIdMark[] = "fake_gpu unique id";

Call nccl_call(const char* name, int32_t device = -1) {
  Call call{name};
  call.is_nccl = true;
  call.device = device;
  return call;
}

/// The device of a handle, for the log and for faults; -1: no communicator.
int32_t device_of(void* handle) {
  if (is_fork()) return -1;
  Runtime& r = runtime();
  const Lock lock(r.mutex);
  const auto found = r.state->comms.find(handle);
  return found == r.state->comms.end() ? -1 : found->second->device;
}

void drop(Runtime& r, const CommPtr& comm) {
  if (comm->lookers > 0) r.violate(comm->name() + " is freed while a thread is inside comm_async_error");
  if (comm->is_setting_up() && !comm->world->is_anyone_aborted())
    r.violate(comm->name() + " is freed while only some ranks have come to " +
              (comm->setting_up ? comm->world->setups[*comm->setting_up].what : "its links"));
  comm->state = CommState::kGone;
  r.state->comms.erase(comm->handle);
  r.state->dead_handles[comm->handle] = comm->name();
  std::erase_if(r.state->registrations, [&](const auto& entry) { return entry.second.first == comm; });
  r.changed.notify_all();
}

/// Takes the rank's place in the world. A code.
int32_t join_world(const CommPtr& comm, int32_t size) {
  World& world = *comm->world;
  if (world.size == 0) {
    world.size = size;
    world.ranks.resize(static_cast<size_t>(size));
  }
  if (world.size != size || comm->rank < 0 || comm->rank >= size) return kNcclInvalidArgument;
  Member& place = world.ranks[static_cast<size_t>(comm->rank)];
  if (place.device >= 0) return kNcclInvalidUsage;
  for (const Member& other : world.ranks)
    if (other.device == comm->device) world.failure = kNcclInvalidUsage;
  place.device = comm->device;
  ++world.joined;
  return kNcclOk;
}

/// The handle is there for abort before all ranks have come.
CommPtr make_comm(Runtime& r, std::shared_ptr<World> world, int32_t rank, void** out) {
  auto comm = std::make_shared<Comm>();
  comm->handle = reinterpret_cast<void*>(r.state->space.new_handle());
  comm->number = ++r.state->comms_made;
  comm->world = std::move(world);
  comm->rank = rank;
  comm->device = current_device();
  r.state->comms[comm->handle] = comm;
  __atomic_store_n(out, comm->handle, __ATOMIC_RELEASE);
  return comm;
}

int32_t met(Comm& comm) {
  World& world = *comm.world;
  if (world.failure != kNcclOk) return fail(comm, world.failure, "Duplicate GPU detected: two ranks are on one device");
  if (world.joined < world.size) return kNcclInProgress;
  comm.state = CommState::kReady;
  return kNcclOk;
}

int32_t meet(Runtime& r, Lock& lock, const CommPtr& comm, int32_t size) {
  if (!delay(r, lock, NcclCall::kInit, comm)) return fail(*comm, kNcclInternal, "comm_init was aborted");
  if (const int32_t code = join_world(comm, size); code != kNcclOk)
    return fail(*comm, code, "this rank does not fit to the others");
  r.changed.notify_all();
  World& world = *comm->world;
  const bool over = r.wait(lock, [&] { return comm->aborted || world.failure != kNcclOk || world.joined == world.size; });
  if (!over || comm->aborted) return fail(*comm, kNcclInternal, "comm_init was aborted");
  return met(*comm);
}

/// Of a communicator that does not block: how far it has come.
int32_t connect(Runtime& r, const CommPtr& comm) {
  if (comm->joins_at_ms < 0 || std::chrono::steady_clock::now() < comm->made + std::chrono::milliseconds(comm->joins_at_ms))
    return kNcclInProgress;
  if (comm->size_to_join > 0) {
    const int32_t code = join_world(comm, std::exchange(comm->size_to_join, 0));
    if (code != kNcclOk) return comm->world->failure = fail(*comm, code, "this rank does not fit to the others");
    r.changed.notify_all();
  }
  return met(*comm);
}

int32_t end_comm(Runtime& r, Lock& lock, const CommPtr& comm, NcclCall call) {
  if (!delay(r, lock, call, comm)) return kNcclInternal;
  const bool over = r.wait(lock, [&] { return comm->aborted || comm->pending == 0; });
  return over && !comm->aborted ? kNcclOk : kNcclInternal;
}

}  // namespace

void set_thread_error(const std::string& text) { thread_error = text; }

int32_t fail(Comm& comm, int32_t code, const std::string& text) {
  comm.last_error = thread_error = text;
  return code;
}

CommPtr comm_of(Runtime& r, void* handle) {
  const auto found = r.state->comms.find(handle);
  if (found != r.state->comms.end()) return found->second;
  const auto dead = r.state->dead_handles.find(handle);
  if (dead != r.state->dead_handles.end()) r.violate("use of " + dead->second + ", which is gone");
  thread_error = "this is no communicator";
  return nullptr;
}

void begin_use(Runtime& r, Lock& lock, Comm& comm, const char* name) {
  if (comm.uses > 0 && comm.user != std::this_thread::get_id())
    r.violate(comm.name() + " is used by two threads at once; one of them calls " + name);
  if (comm.looks > 0) r.violate(comm.name() + " gets " + name + " while its last call is in progress");
  comm.user = std::this_thread::get_id();
  ++comm.uses;
  lock.unlock();  // so that others can be seen
  std::this_thread::yield();
  lock.lock();
}

void end_use(Comm& comm) {
  if (--comm.uses == 0) comm.user = {};
}

/// 0: none.
int64_t delay_of(const Runtime& r, NcclCall call, int32_t device) {
  auto found = r.state->delays.find({call, device});
  if (found == r.state->delays.end()) found = r.state->delays.find({call, -1});
  return found == r.state->delays.end() ? 0 : found->second;
}

bool delay(Runtime& r, Lock& lock, NcclCall call, const CommPtr& comm) {
  const bool is_look = call == NcclCall::kAsyncError;
  if (!is_look) linger(r, lock, comm->device);
  const bool ends_by_abort = call != NcclCall::kAbort && !is_look;
  const int64_t delay_ms = delay_of(r, call, comm->device);
  if (delay_ms == 0) return !(ends_by_abort && comm->aborted);
  const auto over = [&] { return r.stopping || (ends_by_abort && comm->aborted); };
  ++r.host_waiters;
  if (delay_ms < 0)
    r.changed.wait(lock, over);
  else
    r.changed.wait_for(lock, std::chrono::milliseconds(delay_ms), over);
  --r.host_waiters;
  r.changed.notify_all();
  return !over();
}

int32_t go_on(Runtime& r, Comm& comm, int32_t code) {
  if (code != kNcclOk || r.state->options.nccl_looks == 0) return code;
  comm.looks = r.state->options.nccl_looks;
  return kNcclInProgress;
}

int32_t async_result(const Runtime& r, const Comm& comm) { return r.state->async_errors[static_cast<size_t>(comm.device)]; }

/// One fact about a communicator.
template <class Fact>
int32_t ask(void* handle, const char* name, int32_t* out, Fact&& fact) {
  return entered(nccl_call(name, device_of(handle)), [&](Runtime& r, Lock&) -> int32_t {
    const CommPtr comm = comm_of(r, handle);
    if (comm == nullptr || out == nullptr) return kNcclInvalidArgument;
    *out = fact(*comm);
    return kNcclOk;
  });
}

namespace nccl_entry {

const char* last_error(void* handle) {
  if (is_fork()) return "this process is a fork";
  Runtime& r = runtime();
  const Lock lock(r.mutex);
  const auto found = r.state->comms.find(handle);
  if (found != r.state->comms.end()) thread_error = found->second->last_error;
  return thread_error.c_str();
}

int32_t get_unique_id(void* id) {
  return entered(nccl_call("nccl.get_unique_id"), [&](Runtime& r, Lock&) -> int32_t {
    if (id == nullptr) return kNcclInvalidArgument;
    std::string text =
        std::string(kIdMark) + " " + std::to_string(r.generation) + "." + std::to_string(r.state->worlds.size() + 1);
    auto world = std::make_shared<World>();
    world->name = "world " + std::to_string(r.state->worlds.size() + 1);
    text.resize(DDP_NCCL_ID_BYTES, '\x7F');
    std::memcpy(id, text.data(), text.size());
    r.state->worlds[text] = std::move(world);
    return kNcclOk;
  });
}

int32_t comm_init(void** out, int32_t size, const void* id, int32_t rank, const char*, int32_t max_ctas) {
  return entered(nccl_call("nccl.comm_init"), [&](Runtime& r, Lock& lock) -> int32_t {
    if (out == nullptr || id == nullptr || size < 1 || rank < 0 || rank >= size) return kNcclInvalidArgument;
    const auto world = r.state->worlds.find(std::string(static_cast<const char*>(id), DDP_NCCL_ID_BYTES));
    if (world == r.state->worlds.end()) {
      set_thread_error("the id was not made in this process: the ranks of this NCCL are threads of one process");
      return kNcclSystem;
    }
    const CommPtr comm = make_comm(r, world->second, rank, out);
    comm->max_ctas = max_ctas;
    if (r.state->options.nccl_looks > 0) {
      linger(r, lock, comm->device);
      comm->joins_at_ms = delay_of(r, NcclCall::kInit, comm->device);
      comm->size_to_join = size;
      return kNcclInProgress;
    }
    begin_use(r, lock, *comm, "comm_init");
    const int32_t code = meet(r, lock, comm, size);
    end_use(*comm);
    if (code != kNcclOk && comm->state != CommState::kGone) drop(r, comm);
    return code;
  });
}

int32_t comm_abort(void* handle) {
  Call call = nccl_call("nccl.comm_abort", device_of(handle));
  call.releases = true;
  return entered(call, [&](Runtime& r, Lock& lock) -> int32_t {
    const CommPtr comm = comm_of(r, handle);
    if (comm == nullptr) return kNcclInvalidArgument;
    if (comm->state == CommState::kInitializing && comm->uses > 0)
      r.violate(comm->name() + " is aborted while a thread is inside comm_init");
    comm->aborted = true;
    const auto rank = static_cast<size_t>(comm->rank);
    if (rank < comm->world->ranks.size()) comm->world->ranks[rank].aborted = true;
    r.changed.notify_all();
    if (!delay(r, lock, NcclCall::kAbort, comm)) return kNcclInternal;
    if (!r.wait(lock, [&] { return !comm->is_meeting(); })) return kNcclInternal;  // whose thread looks at no abort
    if (comm->state != CommState::kGone) drop(r, comm);
    return kNcclOk;
  });
}

int32_t comm_finalize(void* handle) {
  return entered(nccl_call("nccl.comm_finalize", device_of(handle)), [&](Runtime& r, Lock& lock) -> int32_t {
    const CommPtr comm = comm_of(r, handle);
    if (comm == nullptr) return kNcclInvalidArgument;
    begin_use(r, lock, *comm, "comm_finalize");
    const bool ready = comm->state == CommState::kReady;
    const int32_t code = ready ? end_comm(r, lock, comm, NcclCall::kFinalize) : static_cast<int32_t>(kNcclInvalidUsage);
    if (code == kNcclOk) comm->state = CommState::kFinalized;
    end_use(*comm);
    return go_on(r, *comm, code);
  });
}

int32_t comm_destroy(void* handle) {
  Call call = nccl_call("nccl.comm_destroy", device_of(handle));
  call.releases = true;
  return entered(call, [&](Runtime& r, Lock& lock) -> int32_t {
    const CommPtr comm = comm_of(r, handle);
    if (comm == nullptr) return kNcclInvalidArgument;
    begin_use(r, lock, *comm, "comm_destroy");
    const int32_t code = end_comm(r, lock, comm, NcclCall::kDestroy);
    end_use(*comm);
    if (comm->state != CommState::kGone) drop(r, comm);
    return code;
  });
}

int32_t comm_async_error(void* handle, int32_t* out_result) {
  return entered(nccl_call("nccl.comm_async_error", device_of(handle)), [&](Runtime& r, Lock& lock) -> int32_t {
    const CommPtr comm = comm_of(r, handle);
    if (comm == nullptr || out_result == nullptr) return kNcclInvalidArgument;
    ++comm->lookers;
    const bool is_back = delay(r, lock, NcclCall::kAsyncError, comm);
    --comm->lookers;
    if (!is_back) return kNcclInternal;
    if (comm->state == CommState::kInitializing && r.state->options.nccl_looks > 0)
      *out_result = connect(r, comm);
    else if (comm->is_setting_up() && comm->world->is_anyone_aborted())
      *out_result = fail(*comm, kNcclRemote, "another rank is gone");
    else if (comm->is_setting_up() || comm->is_meeting() || (comm->looks > 0 && --comm->looks > 0))
      *out_result = kNcclInProgress;
    else
      *out_result = async_result(r, *comm);
    return kNcclOk;
  });
}

int32_t comm_count(void* handle, int32_t* out) {
  return ask(handle, "nccl.comm_count", out, [](const Comm& comm) { return comm.world->size; });
}
int32_t comm_user_rank(void* handle, int32_t* out) {
  return ask(handle, "nccl.comm_user_rank", out, [](const Comm& comm) { return comm.rank; });
}
int32_t comm_device(void* handle, int32_t* out) {
  return ask(handle, "nccl.comm_device", out, [](const Comm& comm) { return comm.device; });
}

int32_t comm_register(void* handle, void* memory, int64_t bytes, void** out_handle) {
  return entered(nccl_call("nccl.comm_register", device_of(handle)), [&](Runtime& r, Lock&) -> int32_t {
    const CommPtr comm = comm_of(r, handle);
    const Block* const block = r.state->space.find(address_of(memory));
    if (comm == nullptr || out_handle == nullptr || block == nullptr || bytes <= 0 || block->device != comm->device)
      return kNcclInvalidArgument;
    if (address_of(memory) - block->begin + static_cast<uintptr_t>(bytes) > static_cast<uintptr_t>(block->bytes))
      return kNcclInvalidArgument;
    *out_handle = reinterpret_cast<void*>(r.state->space.new_handle());
    r.state->registrations[*out_handle] = {comm, address_of(memory)};
    return kNcclOk;
  });
}

int32_t comm_deregister(void* handle, void* registration) {
  return entered(nccl_call("nccl.comm_deregister", device_of(handle)), [&](Runtime& r, Lock&) -> int32_t {
    const CommPtr comm = comm_of(r, handle);
    const auto found = r.state->registrations.find(registration);
    if (comm == nullptr || found == r.state->registrations.end() || found->second.first != comm) return kNcclInvalidArgument;
    if (const Block* const block = r.state->space.find(found->second.second); block != nullptr)
      expect_unused(r, "nccl.comm_deregister", *block);
    r.state->registrations.erase(found);
    return kNcclOk;
  });
}

}  // namespace nccl_entry
}  // namespace ddp::test::fake_gpu
