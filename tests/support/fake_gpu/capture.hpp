// SPDX-License-Identifier: Apache-2.0
// Work that is recorded and not run. The streams of a capture have clocks and a race detector of their own, because a replay
// has no data about work outside of the capture.
// Tested by unit/fake_gpu/capture_test.cpp.
#pragma once

#include "support/fake_gpu/runtime.hpp"

namespace ddp::test::fake_gpu {

class Graph {
 public:
  std::vector<Operation> operations;  // in the order of the calls, which keeps every dependency
};

struct Capture {
  uint64_t number = 0;
  StreamPtr origin;
  CaptureMode mode = CaptureMode::kGlobal;
  std::thread::id owner;
  bool active = true;
  std::string spoiled;  // why; empty: it is not
  std::vector<StreamPtr> members;
  Races races;
  GraphPtr graph = std::make_shared<Graph>();

  void spoil(const std::string& why) {
    if (spoiled.empty()) spoiled = why;
  }
};

/// An operation of a capturing stream.
void record(Runtime& r, Stream& stream, Operation operation);

/// `stream` waits for `mark`, one of them belonging to a capture. A code.
int32_t wait_in_capture(const StreamPtr& stream, const Mark& mark);

/// A call that is unsafe in a capture: not kOk if one forbids it, which is then spoiled.
int32_t check_unsafe(Runtime& r, const char* name);
/// A call that waits for, or asks for, work of a captured stream or event.
int32_t refuse(Capture& capture, const char* name, int32_t code);

void end_captures(State& state);

}  // namespace ddp::test::fake_gpu
