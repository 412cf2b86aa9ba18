// SPDX-License-Identifier: Apache-2.0
// What tests ask and tell.
#include <algorithm>
#include <cstring>

#include "support/fake_gpu/nccl.hpp"

namespace ddp::test::fake_gpu {
namespace {

/// What it returns is made under the lock.
template <class Body>
auto locked(Body&& body) {
  Runtime& r = runtime();
  const Lock lock(r.mutex);
  return body(r);
}

template <class Map, class Of>
int64_t count_of(const Map& map, int32_t device, Of&& device_of) {
  return std::count_if(map.begin(), map.end(),
                       [&](const auto& entry) { return device < 0 || device_of(entry.second) == device; });
}

int64_t sum_of(const Runtime& r, std::initializer_list<const char*> names) {
  int64_t sum = 0;
  for (const char* const name : names)
    if (const auto found = r.state->counts.find(name); found != r.state->counts.end())
      for (const auto& [device, count] : found->second) sum += count;
  return sum;
}

void wake_all(Runtime& r) {
  for (const StreamPtr& stream : r.streams_of(-1)) stream->wake.notify_all();
}

void* real_range(const Runtime& r, const void* memory, int64_t bytes) {
  const uintptr_t begin = address_of(memory);
  const Block* const block = r.state->space.find(begin);
  if (block == nullptr || bytes < 0) return nullptr;
  const auto room = static_cast<int64_t>(block->begin + static_cast<uintptr_t>(block->bytes) - begin);
  return bytes <= room ? r.state->space.bytes_at(begin) : nullptr;
}

void set_paused(void* handle, bool paused) {
  locked([&](Runtime& r) {
    const StreamPtr stream = r.stream_of(handle);
    if (stream == nullptr) return;
    stream->paused = paused;
    stream->wake.notify_all();
  });
}

void set_device_paused(int32_t device, bool paused) {
  locked([&](Runtime& r) {
    r.state->device_paused.at(static_cast<size_t>(device)) = paused;
    wake_all(r);
  });
}

}  // namespace

void reset(const Options& options) { runtime().reset(options); }

std::vector<std::string> violations() {
  std::vector<std::string> all = violations_of_forks();
  if (is_fork()) return all;
  return locked([&](Runtime& r) {
    all.insert(all.begin(), r.state->violations.begin(), r.state->violations.end());
    return all;
  });
}
void clear_violations() {
  clear_violations_of_forks();
  locked([](Runtime& r) { r.state->violations.clear(); });
}

Live live(int32_t device) {
  return locked([&](Runtime& r) {
    const State& s = *r.state;
    Live live;
    for (const auto& [begin, block] : s.space.blocks()) {
      if (device >= 0 && block.device != device) continue;
      ++(block.kind == BlockKind::kPinned ? live.pinned : live.allocations);
      if (block.kind != BlockKind::kPinned) live.bytes += block.bytes;
    }
    const auto own_device = [](const auto& object) { return object->device; };
    live.streams = count_of(s.streams, device, own_device);
    live.events = count_of(s.events, device, own_device);
    live.communicators = count_of(s.comms, device, own_device);
    live.registrations =
        count_of(s.registrations, device, [](const auto& registration) { return registration.first->device; });
    return live;
  });
}
Live live() { return live(-1); }

std::vector<std::string> log() {
  return locked([](Runtime& r) { return std::vector<std::string>(r.state->log.begin(), r.state->log.end()); });
}
void clear_log() {
  locked([](Runtime& r) {
    r.state->log.clear();
    r.state->counts.clear();
    r.state->enqueued.clear();
    r.state->pageable_copies = 0;
  });
}
int64_t calls(const std::string& name) {
  return locked([&](Runtime& r) { return sum_of(r, {name.c_str()}); });
}
int64_t calls(const std::string& name, int32_t device) {
  return locked([&](Runtime& r) { return r.state->counts[name][device]; });
}
int64_t enqueued(int32_t device) {
  return locked([&](Runtime& r) { return r.state->enqueued[device]; });
}
int64_t host_waits() {
  return locked([](Runtime& r) {
    return r.state->pageable_copies +
           sum_of(r, {"synchronize", "stream_synchronize", "event_synchronize", "free", "host_free", "nccl.mem_free"});
  });
}
int64_t allocations() {
  return locked([](Runtime& r) { return sum_of(r, {"alloc", "host_alloc", "nccl.mem_alloc"}); });
}

bool peek(void* to, const void* device_memory, int64_t bytes) {
  return locked([&](Runtime& r) {
    const void* const from = real_range(r, device_memory, bytes);
    if (from != nullptr) std::memcpy(to, from, static_cast<size_t>(bytes));
    return from != nullptr;
  });
}
bool poke(void* device_memory, const void* from, int64_t bytes) {
  return locked([&](Runtime& r) {
    void* const to = real_range(r, device_memory, bytes);
    if (to != nullptr) std::memcpy(to, from, static_cast<size_t>(bytes));
    return to != nullptr;
  });
}

void pause(void* stream) { set_paused(stream, true); }
void resume(void* stream) { set_paused(stream, false); }
void pause_device(int32_t device) { set_device_paused(device, true); }
void resume_device(int32_t device) { set_device_paused(device, false); }

int64_t pending(void* handle) {
  return locked([&](Runtime& r) {
    const StreamPtr stream = r.stream_of(handle);
    return stream == nullptr ? 0 : stream->queued - stream->done;
  });
}
int64_t pending_on_device(int32_t device) {
  return locked([&](Runtime& r) {
    int64_t sum = 0;
    for (const StreamPtr& stream : r.streams_of(device)) sum += stream->queued - stream->done;
    return sum;
  });
}
bool wait_idle(int64_t limit_ms) {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  ++r.host_waiters;
  const bool idle = r.changed.wait_for(lock, std::chrono::milliseconds(limit_ms), [&] {
    if (r.stopping) return true;
    for (const StreamPtr& stream : r.streams_of(-1))
      if (stream->queued != stream->done) return false;
    return true;
  });
  --r.host_waiters;
  r.changed.notify_all();
  return idle && !r.stopping;
}

std::vector<StreamInfo> streams() {
  return locked([](Runtime& r) {
    std::vector<StreamInfo> all;
    for (const auto& [handle, stream] : r.state->streams)
      all.push_back({handle, stream->number, stream->device, stream->high_priority, stream->capture != nullptr});
    std::sort(all.begin(), all.end(), [](const StreamInfo& a, const StreamInfo& b) { return a.number < b.number; });
    return all;
  });
}
int64_t stream_number(void* stream) {
  return locked([&](Runtime& r) { return r.number_of_stream(stream); });
}
int64_t event_number(void* event) {
  return locked([&](Runtime& r) { return r.number_of_event(event); });
}

void inject(const Fault& fault) {
  locked([&](Runtime& r) { r.state->faults.push_back({fault, 0}); });
}
void clear_faults() {
  locked([](Runtime& r) { r.state->faults.clear(); });
}
void lose_device(int32_t device) {
  locked([&](Runtime& r) {
    for (size_t k = 0; k < r.state->device_lost.size(); ++k)
      if (device < 0 || k == static_cast<size_t>(device)) r.state->device_lost[k] = true;
  });
}
void set_device_count(int32_t count) {
  locked([&](Runtime& r) { r.state->options.devices = std::min(count, static_cast<int32_t>(r.state->device_lost.size())); });
}
void set_driver_version(int32_t version) {
  locked([&](Runtime& r) { r.state->options.driver_version = version; });
}

void set_open_nccl_error(const std::string& text) {
  locked([&](Runtime& r) { r.state->open_nccl_error = text; });
}
void set_async_error(int32_t device, int32_t kind) {
  locked([&](Runtime& r) {
    for (size_t k = 0; k < r.state->async_errors.size(); ++k)
      if (device < 0 || k == static_cast<size_t>(device)) r.state->async_errors[k] = nccl_code_of_kind(kind);
  });
}
void delay_nccl(NcclCall call, int32_t device, int64_t delay_ms) {
  locked([&](Runtime& r) { r.state->delays[{call, device}] = delay_ms; });
}
void let_die(Death death) {
  locked([&](Runtime& r) {
    r.state->calls_before_death = death.nth - 1;
    r.state->death = std::move(death);
  });
}
bool is_dead() {
  return locked([](Runtime& r) { return r.state->dead; });
}
void end_death() {
  locked([](Runtime& r) {
    const int32_t device = r.state->death.device;
    if (r.state->dead) r.state->device_paused[static_cast<size_t>(device)] = false;
    for (const auto& [handle, comm] : r.state->comms)
      if (r.state->dead && comm->device == device) comm->aborted = true;  // what a process had on a GPU ends with it
    r.state->death.tell = nullptr;
    r.state->dead = false;
    wake_all(r);
    r.changed.notify_all();
  });
}

std::vector<int32_t> max_ctas() {
  return locked([](Runtime& r) {
    std::map<int64_t, int32_t> by_number;
    for (const auto& [handle, comm] : r.state->comms) by_number[comm->number] = comm->max_ctas;
    std::vector<int32_t> all;
    for (const auto& [number, most] : by_number) all.push_back(most);
    return all;
  });
}
int64_t running_collectives(int32_t device) {
  return locked([&](Runtime& r) { return int64_t{r.state->nccl_on_device[device]}; });
}
int64_t collectives() {
  return locked([](Runtime& r) { return r.state->collectives; });
}

}  // namespace ddp::test::fake_gpu
