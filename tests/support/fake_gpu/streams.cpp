// SPDX-License-Identifier: Apache-2.0
// Streams as queues, each run by a thread.
#include <algorithm>
#include <utility>

#include "os/thread.hpp"
#include "support/fake_gpu/capture.hpp"
#include "support/fake_gpu/runtime.hpp"

namespace ddp::test::fake_gpu {

StreamPtr Runtime::make_stream(int32_t device, bool high_priority, bool is_default) {
  State& s = *state;
  auto stream = std::make_shared<Stream>();
  stream->actor = s.actors++;
  stream->device = device;
  stream->high_priority = high_priority;
  stream->random = s.options.seed + stream->actor;
  if (!is_default) {
    stream->handle = reinterpret_cast<void*>(s.space.new_handle());
    stream->number = ++s.streams_made;
    s.streams[stream->handle] = stream;
  }
  const os::BlockSignals block;
  std::thread([this, stream] { run(*stream); }).detach();
  ++threads;
  return stream;
}

StreamPtr Runtime::default_stream(int32_t device) {
  StreamPtr& stream = state->default_streams[static_cast<size_t>(device)];
  if (stream == nullptr) stream = make_stream(device, false, true);
  return stream;
}

StreamPtr Runtime::stream_of(void* handle) {
  if (address_of(handle) <= 2) return default_stream(current_device());  // CUDA's names for the default streams
  const auto found = state->streams.find(handle);
  if (found != state->streams.end()) return found->second;
  const auto dead = state->dead_handles.find(handle);
  if (dead != state->dead_handles.end()) violate("use of " + dead->second + ", which was destroyed");
  return nullptr;
}

EventPtr Runtime::event_of(void* handle) {
  const auto found = state->events.find(handle);
  if (found != state->events.end()) return found->second;
  const auto dead = state->dead_handles.find(handle);
  if (dead != state->dead_handles.end()) violate("use of " + dead->second + ", which was destroyed");
  return nullptr;
}

void Runtime::close_stream(const StreamPtr& stream) {
  State& s = *state;
  s.dead_handles[stream->handle] = "stream " + std::to_string(stream->number);
  s.streams.erase(stream->handle);
  s.retired.push_back(stream);
  stream->closing = true;
  stream->wake.notify_all();
}

bool Runtime::is_held(const Stream& stream) const {
  return state->options.late_ms > 0 && !stream.awaited && std::chrono::steady_clock::now() < stream.begins;
}

void Runtime::await(Stream& stream) {
  stream.awaited = true;
  stream.wake.notify_all();
}

bool Runtime::may_run(const Stream& stream) const {
  return !stream.queue.empty() && !stream.paused && !state->device_paused[static_cast<size_t>(stream.device)];
}

void Runtime::run(Stream& stream) {
  Lock lock(mutex);
  for (;;) {
    while (!stopping && !(stream.queue.empty() && stream.closing)) {
      const bool held = is_held(stream);  // asked once: it ends by itself
      if (!held && may_run(stream)) break;
      if (held && !stream.queue.empty())
        stream.wake.wait_until(lock, stream.begins);
      else
        stream.wake.wait(lock);
    }
    if (stopping || stream.queue.empty()) break;
    take_next(stream, lock);
  }
  state->ended[static_cast<size_t>(stream.device)].join(stream.clock);
  std::erase_if(state->retired, [&](const StreamPtr& one) { return one.get() == &stream; });
  --threads;
  changed.notify_all();
}

void Runtime::take_next(Stream& stream, Lock& lock) {
  Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  const Options& options = state->options;
  const uint64_t delay =
      options.seed == 0 ? 0 : next_random(stream.random) % (static_cast<uint64_t>(options.max_delay_us) + 1);
  lock.unlock();
  if (delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
  work();
  work = nullptr;  // what it owns goes without the lock
  lock.lock();
  ++stream.done;
  changed.notify_all();
}

std::string Runtime::describe(const Stream& stream, const std::string& operation) {
  return operation + " #" + std::to_string(++state->operations_made) + " (" +
         (stream.handle == nullptr ? std::string("default stream") : "stream " + std::to_string(stream.number)) +
         " of device " + std::to_string(stream.device) + ")";
}

void Runtime::enqueue(const StreamPtr& stream, Operation operation) {
  if (stream->capture != nullptr) return record(*this, *stream, std::move(operation));
  stream->clock.join(known());
  if (!operation.accesses.empty()) {
    stream->clock.tick(stream->actor);
    const std::string name = describe(*stream, operation.name);
    for (std::string& text : state->races.touch(operation.accesses, stream->actor, stream->clock, name))
      violate(std::move(text));
  }
  if (state->options.late_ms > 0 && stream->queued == stream->done) {
    const auto late_us =
        static_cast<int64_t>(next_random(stream->random) % static_cast<uint64_t>(state->options.late_ms * 1000));
    stream->awaited = false;
    stream->begins = std::chrono::steady_clock::now() + std::chrono::microseconds(late_us);
  }
  stream->queue.push_back(operation.instantiate ? operation.instantiate() : std::move(operation.work));
  ++stream->queued;
  stream->wake.notify_all();
}

std::vector<StreamPtr> Runtime::streams_of(int32_t device) const {
  std::vector<StreamPtr> found;
  for (const auto& [handle, stream] : state->streams)
    if (device < 0 || stream->device == device) found.push_back(stream);
  for (const auto* list : {&state->default_streams, &state->retired})
    for (const StreamPtr& stream : *list)
      if (stream != nullptr && (device < 0 || stream->device == device)) found.push_back(stream);
  return found;
}

bool Runtime::wait_for(Lock& lock, const std::vector<StreamPtr>& streams) {
  std::vector<int64_t> queued;
  Clock clock;
  for (const StreamPtr& stream : streams) {
    queued.push_back(stream->queued);
    await(*stream);
    clock.join(stream->clock);
  }
  const bool all = wait(lock, [&] {
    for (size_t i = 0; i < streams.size(); ++i)
      if (streams[i]->done < queued[i]) return false;
    return true;
  });
  if (all) learn(clock, true);
  return all;
}

}  // namespace ddp::test::fake_gpu
