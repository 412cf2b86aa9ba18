// SPDX-License-Identifier: Apache-2.0
// How such kernels meet. As NCCL's barrier for kernels, it looks at no abort of a communicator: only the host's word ends a
// wait for a rank that does not come.
#include "support/fake_gpu/fused.hpp"

#include <algorithm>
#include <cstring>

#include "device/cpu/reduce.hpp"
#include "support/fake_gpu/nccl.hpp"

namespace ddp::test::fake_gpu {
namespace {

constexpr auto kLook = std::chrono::milliseconds(1);

/// One rank's kernel.
struct Kernel {
  CommPtr comm;
  uint64_t number = 0;
  ddp_gpu_multicast over{};
  FusedWork work;
  const uint32_t* stop = nullptr;  // real addresses
  const uint32_t* live = nullptr;
  uint64_t grads = 0, values = 0;  // numbers of the windows
};

std::string spec_of(const Kernel& kernel) {
  const auto offset = [](const void* begin, const void* at) { return std::to_string(address_of(at) - address_of(begin)); };
  return "windows " + std::to_string(kernel.grads) + " and " + std::to_string(kernel.values) + ", blocks of " +
         std::to_string(kernel.over.bytes) + " bytes at " + offset(kernel.over.grads_begin, kernel.over.grad_block) +
         " and " + offset(kernel.over.values_begin, kernel.over.value_block) + ", dtype " +
         std::to_string(kernel.over.dtype) + ", " + std::to_string(kernel.over.blocks) + " blocks of threads";
}

/// The same place in the window of another rank; NULL: it has none.
std::byte* place_of(Runtime& r, const World& world, int32_t rank, uint64_t window, uintptr_t offset) {
  for (const auto& [handle, each] : r.state->windows)
    if (each.comm->world.get() == &world && each.comm->rank == rank && each.number == window)
      return static_cast<std::byte*>(r.state->space.bytes_at(each.begin + offset));
  return nullptr;
}

/// False: the host's word ended it.
template <class Ready>
bool await(Runtime& r, Lock& lock, const Kernel& kernel, Ready&& ready) {
  while (!r.stopping && !ready()) {
    if (is_stopped(kernel.live)) return false;
    r.changed.wait_for(lock, kLook);
  }
  return !r.stopping;
}

/// Sums of the own slices, in an order that is not the CPU's; into the own gradients.
void add_ranks(Runtime& r, const Kernel& kernel) {
  const World& world = *kernel.comm->world;
  cpu::ReduceRule rule;
  rule.dtype = static_cast<ddp_dtype>(kernel.over.dtype);
  rule.op = DDP_SUM;
  for (const FusedWork::Slice& slice : kernel.work.slices) {
    std::vector<const void*> in;
    for (int32_t k = 1; k <= world.size; ++k)
      in.push_back(
          place_of(r, world, k % world.size, kernel.grads, address_of(slice.grad) - address_of(kernel.over.grads_begin)));
    if (std::find(in.begin(), in.end(), nullptr) != in.end())
      return r.violate("a kernel of " + kernel.comm->name() + " reads a window that a rank does not have");
    void* out = r.state->space.bytes_at(address_of(slice.grad));
    cpu::reduce(rule, in.data(), world.size, &out, 1, slice.bytes / dtype_size(rule.dtype));
  }
}

void give_values(Runtime& r, const Kernel& kernel) {
  const World& world = *kernel.comm->world;
  for (const FusedWork::Slice& slice : kernel.work.slices)
    for (int32_t rank = 0; rank < world.size; ++rank) {
      const uintptr_t offset = address_of(slice.value) - address_of(kernel.over.values_begin);
      std::byte* const to = place_of(r, world, rank, kernel.values, offset);
      if (to == nullptr)
        r.violate("a kernel of " + kernel.comm->name() + " writes to a window that a rank does not have");
      else if (rank != kernel.comm->rank)
        std::memcpy(to, r.state->space.bytes_at(address_of(slice.value)), static_cast<size_t>(slice.bytes));
    }
}

/// Waits for all ranks, works, waits for all again.
void meet_and_work(Runtime& r, Lock& lock, const Kernel& kernel) {
  World& world = *kernel.comm->world;
  FusedMeeting& meeting = world.kernels[kernel.number];
  if (meeting.arrived == 0) meeting.spec = spec_of(kernel);
  if (meeting.spec != spec_of(kernel))
    r.violate("ranks of " + world.name + " disagree about kernel " + std::to_string(kernel.number) + ": " + meeting.spec +
              ", and rank " + std::to_string(kernel.comm->rank) + ": " + spec_of(kernel));
  ++meeting.arrived;
  r.changed.notify_all();
  if (!await(r, lock, kernel, [&] { return meeting.arrived == world.size; })) return;
  add_ranks(r, kernel);
  kernel.work.apply();
  give_values(r, kernel);
  ++meeting.finished;
  r.changed.notify_all();
  static_cast<void>(await(r, lock, kernel, [&] { return meeting.finished == world.size; }));
}

/// Run by the stream's thread.
void run(const Kernel& kernel) {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  const int64_t most = r.state->options.nccl_at_once;
  int32_t& taken = r.state->nccl_on_device[kernel.comm->device];
  const bool has_place = await(r, lock, kernel, [&] { return most == 0 || taken < most; });
  if (has_place) ++taken;
  if (has_place && !is_stopped(kernel.stop)) meet_and_work(r, lock, kernel);
  if (has_place) --taken;
  --kernel.comm->kernels;
  ++r.state->collectives;
  r.changed.notify_all();
}

std::string problem_of(Runtime& r, const ddp_gpu_shape& shape, Kernel& kernel) {
  const auto team = r.state->teams.find(kernel.over.team);
  if (team == r.state->teams.end() || !team->second.made) return "a team that is none";
  const auto grads = r.state->windows.find(kernel.over.grads), values = r.state->windows.find(kernel.over.values);
  if (grads == r.state->windows.end() || values == r.state->windows.end()) return "a window that is none";
  kernel.comm = team->second.comm;
  if (grads->second.comm != kernel.comm || values->second.comm != kernel.comm) return "a window of another communicator";
  if (grads->second.begin != address_of(kernel.over.grads_begin) ||
      values->second.begin != address_of(kernel.over.values_begin))
    return "a window that begins elsewhere";
  if (kernel.over.blocks < 1 || kernel.over.blocks > team->second.barriers) return "more blocks than the team has barriers";
  if (shape.gate != nullptr || shape.divisor == 0) return "a gate, or no divisor";
  kernel.grads = grads->second.number;
  kernel.values = values->second.number;
  return {};
}

}  // namespace

int32_t launch_fused(const char* name, const ddp_gpu_shape& shape, ddp_gpu_stop stop, void* handle,
                     const std::function<FusedWork(Touches&)>& prepare) {
  Call call{name, handle};
  call.has_stream = call.enqueues = true;
  return entered(call, [&](Runtime& r, Lock&) -> int32_t {
    StreamPtr stream;
    if (const int32_t code = stream_for_launch(r, name, handle, stream); code != kOk) return code;
    Kernel kernel;
    kernel.over = *shape.multicast;
    if (const std::string problem = problem_of(r, shape, kernel); !problem.empty()) {
      r.violate(std::string(name) + " gets " + problem);
      return kInvalidValue;
    }
    Touches touches(r, *stream, name);
    static_cast<void>(touches.change(static_cast<std::byte*>(const_cast<void*>(kernel.over.grad_block)), kernel.over.bytes));
    static_cast<void>(touches.change(static_cast<std::byte*>(kernel.over.value_block), kernel.over.bytes));
    kernel.work = prepare(touches);
    kernel.stop = touches.stop_word(stop);
    kernel.live = touches.stop_word(kernel.over.live);
    if (!kernel.work.sound) return kInvalidValue;
    if (!touches.ok()) return kOk;
    const auto instantiate = [kernel]() -> Work {
      Kernel mine = kernel;
      mine.number = mine.comm->next_kernel++;
      ++mine.comm->kernels;
      return [mine] { run(mine); };
    };
    r.enqueue(stream, Operation{name, touches.take(), nullptr, instantiate});
    return kOk;
  });
}

}  // namespace ddp::test::fake_gpu
