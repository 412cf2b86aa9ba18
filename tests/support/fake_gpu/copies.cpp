// SPDX-License-Identifier: Apache-2.0
// copy and fill. Pageable host memory: what comes from it is taken before the call returns; a copy to it blocks, as a
// runtime's does on most machines. With Options::late_ms both are asynchronous, as on machines whose GPU reaches all of the
// host's memory.
#include <cstddef>
#include <cstring>

#include "support/fake_gpu/calls.hpp"
#include "support/fake_gpu/capture.hpp"
#include "support/fake_gpu/launch.hpp"

namespace ddp::test::fake_gpu::entry {
namespace {

/// Device and pinned memory by its device address; 0: pageable.
uintptr_t reachable(const Runtime& r, const void* memory) {
  const uintptr_t address = address_of(memory);
  return r.state->space.is_device_address(address) ? address : r.state->space.device_address_of_pinned(address);
}

struct Ends {
  uintptr_t to, from;  // 0: pageable
};

/// May be run several times (a graph). A word is read at once, as a GPU does: the host may set it meanwhile.
Work copying(void* to, const void* from, int64_t bytes, bool keeps_source) {
  const auto size = static_cast<size_t>(bytes);
  if (!keeps_source && size == sizeof(uint32_t) && (address_of(to) | address_of(from)) % sizeof(uint32_t) == 0)
    return [=] {
      const uint32_t word = __atomic_load_n(static_cast<const uint32_t*>(from), __ATOMIC_SEQ_CST);
      std::memcpy(to, &word, sizeof word);
    };
  if (!keeps_source) return [=] { std::memmove(to, from, size); };
  const auto* const first = static_cast<const std::byte*>(from);
  return [to, source = std::vector<std::byte>(first, first + size)] { std::memcpy(to, source.data(), source.size()); };
}

int32_t queue_copy(Runtime& r, Lock& lock, const StreamPtr& stream, void* to, const void* from, int64_t bytes) {
  const Ends ends{reachable(r, to), reachable(r, from)};
  const bool pageable = ends.to == 0 || ends.from == 0;
  if (pageable && stream->capture != nullptr)
    return refuse(*stream->capture, "copy with pageable memory", kCaptureUnsupported);
  if (pageable) ++r.state->pageable_copies;
  Touches touches(r, *stream, "copy");
  if (ends.from != 0) from = touches.read(reinterpret_cast<const std::byte*>(ends.from), bytes);
  if (ends.to != 0) to = touches.write(reinterpret_cast<std::byte*>(ends.to), bytes);
  if (!touches.ok()) return kOk;
  const bool is_late = r.state->options.late_ms > 0;
  r.enqueue(stream, Operation{"copy", touches.take(), copying(to, from, bytes, ends.from == 0 && !is_late), nullptr});
  return ends.to != 0 || is_late || r.wait_for(lock, {stream}) ? kOk : kUnknown;
}

}  // namespace

int32_t copy(void* to, const void* from, int64_t bytes, void* handle) {
  Call call{"copy", handle};
  call.has_stream = call.enqueues = true;
  call.bytes = bytes;
  return entered(call, [&](Runtime& r, Lock& lock) -> int32_t {
    const StreamPtr stream = r.stream_of(handle);
    if (stream == nullptr) return kInvalidHandle;
    if (bytes < 0 || (bytes > 0 && (to == nullptr || from == nullptr))) return kInvalidValue;
    return bytes == 0 ? static_cast<int32_t>(kOk) : queue_copy(r, lock, stream, to, from, bytes);
  });
}

int32_t fill(void* memory, int32_t byte, int64_t bytes, void* handle) {
  if (bytes == 0) return launch("fill", handle, [](Touches&) -> Work { return [] {}; });
  return launch("fill", handle, [&](Touches& touches) -> Work {
    if (bytes < 0) return nullptr;
    void* const to = touches.write(static_cast<std::byte*>(memory), bytes);
    return [=] { std::memset(to, byte, static_cast<size_t>(bytes)); };
  });
}

}  // namespace ddp::test::fake_gpu::entry
