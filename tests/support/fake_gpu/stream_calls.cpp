// SPDX-License-Identifier: Apache-2.0
// Streams and events.
#include "support/fake_gpu/calls.hpp"
#include "support/fake_gpu/capture.hpp"

namespace ddp::test::fake_gpu::entry {
namespace {

Call stream_call(const char* name, void* stream, void* event = nullptr) {
  Call call{name, stream, event};
  call.has_stream = true;
  return call;
}

Call enqueuing(const char* name, void* stream, void* event) {
  Call call = stream_call(name, stream, event);
  call.enqueues = true;
  return call;
}

Call event_call(const char* name, void* event) { return Call{name, nullptr, event}; }

/// Runs when the stream gets there.
Work finishing(const MarkPtr& mark) {
  return [mark] {
    Runtime& r = runtime();
    const Lock lock(r.mutex);
    mark->done = true;
    mark->time = std::chrono::steady_clock::now();
    r.changed.notify_all();
  };
}

Work waiting(const MarkPtr& mark) {
  return [mark] {
    Runtime& r = runtime();
    Lock lock(r.mutex);
    r.changed.wait(lock, [&] { return r.stopping || mark->done; });
  };
}

/// Is it done, and may a query say so already?
bool is_seen_done(const Runtime& r, Mark& mark) {
  constexpr int64_t kLate = 2;
  return mark.done && (r.state->options.late_ms == 0 || r.known().covers(mark.clock) || mark.asked++ >= kLate);
}

/// kOk if the host may ask about the event's last recording.
int32_t check_host_use(Runtime& r, const Event& event, const char* name) {
  const int32_t code = check_unsafe(r, name);
  if (event.last == nullptr || event.last->capture == nullptr) return code;
  return event.last->capture->active ? refuse(*event.last->capture, name, kCapturedEvent)
                                     : static_cast<int32_t>(kCapturedEvent);
}

}  // namespace

int32_t stream_create(void** out, int32_t high_priority) {
  return entered(Call{"stream_create"}, [&](Runtime& r, Lock&) -> int32_t {
    if (out == nullptr) return kInvalidValue;
    if (r.state->options.devices == 0) return kNoDevice;
    *out = r.make_stream(current_device(), high_priority != 0, false)->handle;
    return kOk;
  });
}

int32_t stream_destroy(void* handle) {
  Call call = stream_call("stream_destroy", handle);
  call.releases = true;
  return entered(call, [&](Runtime& r, Lock&) -> int32_t {
    const StreamPtr stream = r.stream_of(handle);
    if (stream == nullptr || stream->handle == nullptr) return kInvalidHandle;
    expect_current(r, stream->device, "stream_destroy");
    if (stream->capture != nullptr) return refuse(*stream->capture, "stream_destroy", kCaptureUnsupported);
    r.close_stream(stream);
    return kOk;
  });
}

int32_t stream_synchronize(void* handle) {
  return entered(stream_call("stream_synchronize", handle), [&](Runtime& r, Lock& lock) -> int32_t {
    const StreamPtr stream = r.stream_of(handle);
    if (stream == nullptr) return kInvalidHandle;
    expect_current(r, stream->device, "stream_synchronize");
    if (stream->capture != nullptr) return refuse(*stream->capture, "stream_synchronize", kCaptureUnsupported);
    if (const int32_t code = check_unsafe(r, "stream_synchronize"); code != kOk) return code;
    return r.wait_for(lock, {stream}) ? kOk : kUnknown;
  });
}

int32_t stream_is_capturing(void* handle, int32_t* out_capturing) {
  return entered(stream_call("stream_is_capturing", handle), [&](Runtime& r, Lock&) -> int32_t {
    const StreamPtr stream = r.stream_of(handle);
    if (stream == nullptr) return kInvalidHandle;
    if (out_capturing == nullptr) return kInvalidValue;
    *out_capturing = stream->capture != nullptr;
    return kOk;
  });
}

int32_t stream_capture(void* handle, uint64_t* out_capture) {
  return entered(stream_call("stream_capture", handle), [&](Runtime& r, Lock&) -> int32_t {
    const StreamPtr stream = r.stream_of(handle);
    if (stream == nullptr) return kInvalidHandle;
    if (out_capture == nullptr) return kInvalidValue;
    *out_capture = stream->capture != nullptr ? stream->capture->number : 0;
    return kOk;
  });
}

int32_t event_create(void** out, int32_t timing) {
  return entered(Call{"event_create"}, [&](Runtime& r, Lock&) -> int32_t {
    if (out == nullptr) return kInvalidValue;
    if (r.state->options.devices == 0) return kNoDevice;
    *out = reinterpret_cast<void*>(r.state->space.new_handle());
    r.state->events[*out] = std::make_shared<Event>(Event{++r.state->events_made, current_device(), timing != 0, nullptr});
    return kOk;
  });
}

int32_t event_destroy(void* handle) {
  Call call = event_call("event_destroy", handle);
  call.releases = true;
  return entered(call, [&](Runtime& r, Lock&) -> int32_t {
    const EventPtr event = r.event_of(handle);
    if (event == nullptr) return kInvalidHandle;
    expect_current(r, event->device, "event_destroy");
    r.state->dead_handles[handle] = "event " + std::to_string(event->number);
    r.state->events.erase(handle);
    return kOk;
  });
}

int32_t event_record(void* event_handle, void* handle) {
  return entered(enqueuing("event_record", handle, event_handle), [&](Runtime& r, Lock&) -> int32_t {
    const StreamPtr stream = r.stream_of(handle);
    const EventPtr event = r.event_of(event_handle);
    if (stream == nullptr || event == nullptr) return kInvalidHandle;
    if (stream->device != event->device) {
      r.violate("event " + std::to_string(event->number) + " of device " + std::to_string(event->device) +
                " is recorded on stream " + std::to_string(stream->number) + " of device " + std::to_string(stream->device));
      return kInvalidHandle;
    }
    auto mark = std::make_shared<Mark>();
    mark->stream = stream;
    event->last = mark;
    mark->capture = stream->capture;
    if (mark->capture != nullptr) {
      mark->clock = stream->capture_clock;
      return kOk;
    }
    r.enqueue(stream, Operation{"event_record", {}, finishing(mark), nullptr});
    mark->clock = stream->clock;
    return kOk;
  });
}

int32_t event_synchronize(void* handle) {
  return entered(event_call("event_synchronize", handle), [&](Runtime& r, Lock& lock) -> int32_t {
    const EventPtr event = r.event_of(handle);
    if (event == nullptr) return kInvalidHandle;
    expect_current(r, event->device, "event_synchronize");
    if (const int32_t code = check_host_use(r, *event, "event_synchronize"); code != kOk) return code;
    const MarkPtr mark = event->last;
    if (mark == nullptr) return kOk;
    if (const StreamPtr stream = mark->stream.lock()) r.await(*stream);
    if (!r.wait(lock, [&] { return mark->done; })) return kUnknown;
    r.learn(mark->clock, true);
    return kOk;
  });
}

int32_t event_query(void* handle, int32_t* out_done) {
  return entered(event_call("event_query", handle), [&](Runtime& r, Lock&) -> int32_t {
    const EventPtr event = r.event_of(handle);
    if (event == nullptr) return kInvalidHandle;
    expect_current(r, event->device, "event_query");
    if (out_done == nullptr) return kInvalidValue;
    if (const int32_t code = check_host_use(r, *event, "event_query"); code != kOk) return code;
    *out_done = event->last == nullptr || is_seen_done(r, *event->last);
    if (*out_done != 0 && event->last != nullptr) r.learn(event->last->clock, false);
    return kOk;
  });
}

int32_t event_elapsed(void* from_handle, void* to_handle, double* out_ms) {
  return entered(event_call("event_elapsed", from_handle), [&](Runtime& r, Lock&) -> int32_t {
    const EventPtr from = r.event_of(from_handle), to = r.event_of(to_handle);
    if (from == nullptr || to == nullptr || !from->timing || !to->timing || !from->last || !to->last) return kInvalidHandle;
    if (out_ms == nullptr) return kInvalidValue;
    if (from->last->capture != nullptr || to->last->capture != nullptr) return kCapturedEvent;
    if (!from->last->done || !to->last->done) return kNotReady;
    *out_ms = std::chrono::duration<double, std::milli>(to->last->time - from->last->time).count();
    return kOk;
  });
}

int32_t stream_wait(void* handle, void* event_handle) {
  return entered(enqueuing("stream_wait", handle, event_handle), [&](Runtime& r, Lock&) -> int32_t {
    const StreamPtr stream = r.stream_of(handle);
    const EventPtr event = r.event_of(event_handle);
    if (stream == nullptr || event == nullptr) return kInvalidHandle;
    const MarkPtr mark = event->last;
    if (mark == nullptr) return kOk;
    if (stream->capture != nullptr || mark->capture != nullptr) return wait_in_capture(stream, *mark);
    r.enqueue(stream, Operation{"stream_wait", {}, waiting(mark), nullptr});
    stream->clock.join(mark->clock);
    return kOk;
  });
}

}  // namespace ddp::test::fake_gpu::entry
