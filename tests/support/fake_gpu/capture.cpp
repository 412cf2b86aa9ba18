// SPDX-License-Identifier: Apache-2.0
#include "support/fake_gpu/capture.hpp"

#include <utility>

namespace ddp::test::fake_gpu {
namespace {

void leave(Capture& capture) {
  capture.active = false;
  for (const StreamPtr& stream : capture.members) stream->capture = nullptr;
  capture.members.clear();
  capture.origin = nullptr;
}

/// A sentence about what spoiled it; empty: nothing.
std::string verdict(const Capture& capture) {
  if (!capture.spoiled.empty()) return capture.spoiled;
  for (const StreamPtr& stream : capture.members)
    if (capture.origin->capture_clock.at(stream->actor) < stream->capture_clock.at(stream->actor))
      return "the capture ends with work on stream " + std::to_string(stream->number) +
             " that its first stream does not wait for";
  return {};
}

}  // namespace

void record(Runtime& r, Stream& stream, Operation operation) {
  Capture& capture = *stream.capture;
  stream.capture_clock.tick(stream.actor);
  const std::string name = r.describe(stream, "captured " + operation.name);
  for (std::string& text : capture.races.touch(operation.accesses, stream.actor, stream.capture_clock, name))
    r.violate(std::move(text));
  capture.graph->operations.push_back(std::move(operation));
}

int32_t wait_in_capture(const StreamPtr& stream, const Mark& mark) {
  if (mark.capture == nullptr)
    return refuse(*stream->capture, "stream_wait for work outside of the capture", kCaptureIsolation);
  if (!mark.capture->active) return kCapturedEvent;
  if (stream->capture == nullptr) {
    stream->capture = mark.capture;
    stream->capture_clock = mark.clock;
    mark.capture->members.push_back(stream);
    return kOk;
  }
  if (stream->capture != mark.capture) return refuse(*stream->capture, "stream_wait for another capture", kCaptureMerge);
  stream->capture_clock.join(mark.clock);
  return kOk;
}

int32_t refuse(Capture& capture, const char* name, int32_t code) {
  capture.spoil(std::string(name) + " was called in the capture");
  return code;
}

int32_t check_unsafe(Runtime& r, const char* name) {
  int32_t code = kOk;
  for (const CapturePtr& capture : r.state->captures) {
    const bool own = capture->owner == std::this_thread::get_id();
    const bool forbids =
        !is_relaxed() && (capture->mode == CaptureMode::kGlobal || (own && capture->mode == CaptureMode::kThreadLocal));
    if (forbids) code = refuse(*capture, name, kCaptureUnsupported);
  }
  return code;
}

void end_captures(State& state) {
  for (const CapturePtr& capture : state.captures) leave(*capture);
  state.captures.clear();
}

bool begin_capture(void* handle, CaptureMode mode) {
  Runtime& r = runtime();
  const Lock lock(r.mutex);
  const StreamPtr stream = handle == nullptr ? nullptr : r.stream_of(handle);
  if (stream == nullptr || stream->capture != nullptr) return false;
  auto capture = std::make_shared<Capture>();
  capture->number = ++r.state->captures_made;
  capture->origin = stream;
  capture->mode = mode;
  capture->owner = std::this_thread::get_id();
  capture->members.push_back(stream);
  stream->capture = capture;
  stream->capture_clock = Clock{};
  r.state->captures.push_back(std::move(capture));
  return true;
}

GraphPtr end_capture(void* handle, std::string* why) {
  Runtime& r = runtime();
  const Lock lock(r.mutex);
  const StreamPtr stream = r.stream_of(handle);
  std::string problem = "the stream does not begin a capture";
  GraphPtr graph;
  if (stream != nullptr && stream->capture != nullptr && stream->capture->origin == stream) {
    const CapturePtr capture = stream->capture;
    problem = verdict(*capture);
    if (problem.empty()) graph = capture->graph;
    leave(*capture);
    std::erase(r.state->captures, capture);
  }
  if (why != nullptr) *why = problem;
  return graph;
}

void launch_graph(const GraphPtr& graph, void* handle) {
  Runtime& r = runtime();
  const Lock lock(r.mutex);
  const StreamPtr stream = r.stream_of(handle);
  if (stream == nullptr || graph == nullptr) return;
  Operation all{"graph", {}, nullptr, nullptr};
  for (const Operation& one : graph->operations)
    all.accesses.insert(all.accesses.end(), one.accesses.begin(), one.accesses.end());
  all.instantiate = [graph]() -> Work {
    std::vector<Work> works;
    for (const Operation& one : graph->operations) works.push_back(one.instantiate ? one.instantiate() : one.work);
    return [works = std::move(works)] {
      for (const Work& work : works) work();
    };
  };
  r.enqueue(stream, std::move(all));
}

std::vector<std::string> graph_operations(const GraphPtr& graph) {
  std::vector<std::string> names;
  if (graph != nullptr)
    for (const Operation& one : graph->operations) names.push_back(one.name);
  return names;
}

}  // namespace ddp::test::fake_gpu
