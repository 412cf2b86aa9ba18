// SPDX-License-Identifier: Apache-2.0
// What every kernel and copy has in common: which bytes it touches, checked when it is queued, and its place in a stream.
#pragma once

#include <utility>

#include "core/dtype.hpp"
#include "support/fake_gpu/runtime.hpp"

namespace ddp::test::fake_gpu {

/// Collects the ranges of an operation. A range that is not live memory of the stream's device (or pinned) is a violation,
/// and the operation is left out.
class Touches {
 public:
  Touches(Runtime& runtime, const Stream& stream, const char* name) : runtime_(runtime), stream_(stream), name_(name) {}

  /// Where the bytes really are; NULL if they are none.
  template <class T>
  [[nodiscard]] const T* read(const T* memory, int64_t bytes) {
    return static_cast<const T*>(range(memory, bytes, false));
  }
  template <class T>
  [[nodiscard]] T* write(T* memory, int64_t bytes) {
    return static_cast<T*>(range(memory, bytes, true));
  }
  template <class T>
  [[nodiscard]] T* change(T* memory, int64_t bytes) {
    return (void)read(memory, bytes), write(memory, bytes);
  }
  /// A word that the host may set at any time: no race. NULL stays NULL.
  [[nodiscard]] const uint32_t* stop_word(ddp_gpu_stop stop);

  [[nodiscard]] int64_t bytes() const noexcept {
    int64_t sum = 0;
    for (const Access& access : accesses_) sum += access.bytes;
    return sum;
  }
  [[nodiscard]] bool ok() const noexcept { return ok_; }
  [[nodiscard]] std::vector<Access> take() noexcept { return std::move(accesses_); }

 private:
  [[nodiscard]] void* range(const void* memory, int64_t bytes, bool writes);
  /// Notes the violation.
  [[nodiscard]] bool check(uintptr_t begin, int64_t bytes, const char* verb);

  Runtime& runtime_;
  const Stream& stream_;
  const char* name_;
  std::vector<Access> accesses_;
  bool ok_ = true;
};

[[nodiscard]] inline bool is_stopped(const uint32_t* word) noexcept {
  return word != nullptr && __atomic_load_n(word, __ATOMIC_ACQUIRE) != 0;
}

[[nodiscard]] inline bool is_floating_dtype(int32_t dtype) noexcept { return is_floating(static_cast<ddp_dtype>(dtype)); }

/// The stream of a launch. A code, and a violation where the stream belongs to another device than the thread's.
int32_t stream_for_launch(Runtime& r, const char* name, void* handle, StreamPtr& out);

/// prepare(touches) returns the work.
template <class Prepare>
int32_t launch(const char* name, void* handle, Prepare&& prepare) {
  Call call{name, handle};
  call.has_stream = call.enqueues = true;
  return entered(call, [&](Runtime& r, Lock&) -> int32_t {
    StreamPtr stream;
    if (const int32_t code = stream_for_launch(r, name, handle, stream); code != kOk) return code;
    Touches touches(r, *stream, name);
    Work work = prepare(touches);
    if (work == nullptr) return kInvalidValue;
    r.state->log.back() += " bytes=" + std::to_string(touches.bytes());
    if (touches.ok()) r.enqueue(stream, Operation{name, touches.take(), std::move(work), nullptr});
    return kOk;
  });
}

}  // namespace ddp::test::fake_gpu
