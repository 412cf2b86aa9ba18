// SPDX-License-Identifier: Apache-2.0
#include "support/fake_gpu/runtime.hpp"

#include <utility>

#include "support/fake_gpu/capture.hpp"
#include "support/fake_gpu/nccl.hpp"

namespace ddp::test::fake_gpu {
namespace {

constexpr size_t kMaxViolations = 1000;
constexpr size_t kMaxLog = 65536;

struct ThreadState {
  int64_t generation = 0;
  int32_t device = 0;
  bool relaxed = false;
  Clock known;  // by this thread alone
};

/// Of the calling thread; begins anew after a reset.
ThreadState& thread_state(int64_t generation) {
  thread_local ThreadState state;
  if (state.generation != generation) state = ThreadState{generation, 0, false, {}};
  return state;
}

std::string written(const Runtime& r, const Call& call, int32_t device) {
  std::string line = "[" + std::to_string(device) + "] " + call.name;
  if (call.has_stream) line += " stream=" + std::to_string(r.number_of_stream(call.stream));
  if (call.event != nullptr) line += " event=" + std::to_string(r.number_of_event(call.event));
  if (call.bytes >= 0) line += " bytes=" + std::to_string(call.bytes);
  return line;
}

}  // namespace

Runtime& runtime() {
  static Runtime* const one = [] {
    auto* const made = new Runtime;
    Options options;
    options.nccl_connects = true;
    made->state = std::make_unique<State>(with_modes(options));
    return made;
  }();
  return *one;
}

int32_t& current_device() noexcept { return thread_state(runtime().generation).device; }
void expect_current(Runtime& r, int32_t device, const char* name) {
  if (current_device() != device)
    r.violate(std::string(name) + " is called for device " + std::to_string(device) + " while device " +
              std::to_string(current_device()) + " is current");
}
bool& is_relaxed() noexcept { return thread_state(runtime().generation).relaxed; }

void Runtime::reset(const Options& asked) {
  const Options options = with_modes(asked);
  clear_violations_of_forks();
  Lock lock(mutex);
  stopping = true;
  changed.notify_all();
  for (const StreamPtr& stream : streams_of(-1)) stream->wake.notify_all();
  changed.wait(lock, [&] { return host_waiters == 0 && threads == 0; });
  end_captures(*state);
  state = nullptr;
  state = std::make_unique<State>(options);
  set_nccl_version(options.nccl_version);
  ++generation;
  stopping = false;
}

int32_t Runtime::begin_call(const Call& call) {
  State& s = *state;
  const int32_t device = call.device >= 0 ? call.device : current_device();
  ++s.counts[call.name][device];
  if (call.enqueues) ++s.enqueued[device];
  if (s.log.size() == kMaxLog) s.log.pop_front();
  s.log.push_back(written(*this, call, device));
  for (ActiveFault& active : s.faults) {
    const Fault& fault = active.fault;
    const bool is_meant = fault.function == call.name || (fault.function == "nccl.*" && counts(call));
    if (!is_meant || (fault.device >= 0 && fault.device != device)) continue;
    ++active.seen;
    if (active.seen >= fault.nth && active.seen < fault.nth + fault.times)
      return call.is_nccl ? nccl_code_of_kind(fault.kind) : code_of_kind(fault.kind);
  }
  if (!call.needs_driver) return kOk;
  if (s.options.driver_version == 0) return call.is_nccl ? static_cast<int32_t>(kNcclUnhandledCuda) : kInsufficientDriver;
  const bool lost = s.device_lost[static_cast<size_t>(device)];
  if (lost) return call.is_nccl ? static_cast<int32_t>(kNcclUnhandledCuda) : kIllegalAddress;
  return kOk;
}

int64_t Runtime::number_of_stream(void* handle) const {
  const auto found = state->streams.find(handle);
  return found == state->streams.end() ? 0 : found->second->number;
}

int64_t Runtime::number_of_event(void* handle) const {
  const auto found = state->events.find(handle);
  return found == state->events.end() ? 0 : found->second->number;
}

void Runtime::violate(std::string text) {
  if (state->violations.size() < kMaxViolations) state->violations.push_back(std::move(text));
}

void Runtime::learn(const Clock& clock, bool by_blocking) {
  if (by_blocking || !is_relaxed())
    state->known.join(clock);
  else
    thread_state(generation).known.join(clock);
}

Clock Runtime::known() const {
  Clock clock = state->known;
  clock.join(thread_state(generation).known);
  return clock;
}

}  // namespace ddp::test::fake_gpu
