// SPDX-License-Identifier: Apache-2.0
// Memory of a device and page-locked memory.
#include "support/fake_gpu/calls.hpp"
#include "support/fake_gpu/capture.hpp"
#include "support/fake_gpu/nccl.hpp"

namespace ddp::test::fake_gpu {
namespace {

Call release_call(const char* name) {
  Call call{name};
  call.releases = true;
  return call;
}

int32_t allocate(Runtime& r, BlockKind kind, void** out, int64_t bytes) {
  if (out == nullptr || bytes < 0) return kInvalidValue;
  *out = nullptr;
  if (bytes == 0) return kOk;
  if (r.state->options.devices == 0) return kNoDevice;
  const uintptr_t begin = r.state->space.allocate(kind, current_device(), bytes);
  if (begin == 0) return kOutOfMemory;
  *out = reinterpret_cast<void*>(begin);
  return kOk;
}

/// What has been freed must not be registered any more, nor have been allocated by another function.
int32_t check_release(Runtime& r, const char* name, uintptr_t begin, BlockKind kind) {
  const Block* const block = r.state->space.find(begin);
  if (block == nullptr || block->begin != begin) {
    r.violate(std::string(name) + " gets an address at which no live block begins");
    return kInvalidValue;
  }
  if (block->kind != kind) {
    r.violate(std::string(name) + " gets memory that another function allocated");
    return kInvalidValue;
  }
  for (const auto& [handle, registration] : r.state->registrations)
    if (r.state->space.find(registration.second) == block)
      r.violate(std::string(name) + " gets memory that is registered with NCCL");
  return kOk;
}

/// Waits, as a runtime does, and gives the block back. A lost device is not waited for: its work is over.
int32_t release(Runtime& r, Lock& lock, uintptr_t begin, int32_t device) {
  const bool waits = r.state->options.frees_at_once == 0 && !r.state->device_lost[static_cast<size_t>(current_device())];
  if (waits && !r.wait_for(lock, r.streams_of(device))) return kUnknown;
  const Block* const block = r.state->space.find(begin);
  if (block == nullptr) {
    r.violate("a block is freed twice at the same time");
    return kInvalidValue;
  }
  r.state->races.forget(block->begin, block->bytes);
  r.state->space.release(begin);
  return kOk;
}

int32_t free_block(const char* name, void* memory, BlockKind kind, bool is_nccl) {
  if (memory == nullptr && !is_nccl) return entered(release_call(name), [](Runtime&, Lock&) -> int32_t { return kOk; });
  Call call = release_call(name);
  call.is_nccl = is_nccl;
  return entered(call, [&](Runtime& r, Lock& lock) -> int32_t {
    if (const int32_t code = check_unsafe(r, name); code != kOk)
      return is_nccl ? static_cast<int32_t>(kNcclUnhandledCuda) : code;
    const uintptr_t begin = address_of(memory);
    int32_t code = check_release(r, name, begin, kind);
    if (code == kOk) expect_current(r, r.state->space.find(begin)->device, name);
    if (code == kOk && (is_nccl || r.state->options.frees_at_once != 0)) expect_unused(r, name, *r.state->space.find(begin));
    if (code == kOk) code = release(r, lock, begin, r.state->space.find(begin)->device);
    return code == kOk || !is_nccl ? code : static_cast<int32_t>(kNcclInvalidArgument);
  });
}

}  // namespace

void expect_unused(Runtime& r, const char* name, const Block& block) {
  if (r.state->device_lost[static_cast<size_t>(block.device)]) return;
  for (const std::string& text :
       r.state->races.touch({Access{block.begin, block.bytes, true}}, r.state->actors++, r.known(), name))
    r.violate("memory may still be in use: " + text);
}

namespace entry {

int32_t alloc(void** out, int64_t bytes) {
  Call call{"alloc"};
  call.bytes = bytes;
  return entered(call, [&](Runtime& r, Lock&) -> int32_t {
    const int32_t code = check_unsafe(r, "alloc");
    return code != kOk ? code : allocate(r, BlockKind::kPlain, out, bytes);
  });
}

int32_t free(void* memory) { return free_block("free", memory, BlockKind::kPlain, false); }

int32_t host_alloc(void** out_host, void** out_device, int64_t bytes) {
  Call call{"host_alloc"};
  call.bytes = bytes;
  return entered(call, [&](Runtime& r, Lock&) -> int32_t {
    if (const int32_t code = check_unsafe(r, "host_alloc"); code != kOk) return code;
    if (out_host == nullptr || bytes <= 0) return kInvalidValue;
    void* device = nullptr;
    const int32_t code = allocate(r, BlockKind::kPinned, &device, bytes);
    if (code != kOk) return code;
    *out_host = r.state->space.bytes_at(address_of(device));
    if (out_device != nullptr) *out_device = device;
    return kOk;
  });
}

int32_t host_free(void* host) {
  return entered(release_call("host_free"), [&](Runtime& r, Lock& lock) -> int32_t {
    if (const int32_t code = check_unsafe(r, "host_free"); code != kOk) return code;
    if (host == nullptr) return kOk;
    const uintptr_t begin = r.state->space.device_address_of_pinned(address_of(host));
    const int32_t code = check_release(r, "host_free", begin, BlockKind::kPinned);
    if (code == kOk) expect_current(r, r.state->space.find(begin)->device, "host_free");
    if (code == kOk && r.state->options.frees_at_once != 0) expect_unused(r, "host_free", *r.state->space.find(begin));
    return code != kOk ? code : release(r, lock, begin, current_device());
  });
}

int32_t pointer_device(const void* memory, int32_t* out_device, int32_t* out_host_reads) {
  return entered(Call{"pointer_device"}, [&](Runtime& r, Lock&) -> int32_t {
    if (out_device == nullptr || out_host_reads == nullptr) return kInvalidValue;
    const Block* const block = r.state->space.find(address_of(memory));
    *out_device = block != nullptr && block->kind != BlockKind::kPinned ? block->device : -1;
    *out_host_reads = *out_device < 0 ? 1 : 0;
    return kOk;
  });
}

}  // namespace entry

namespace nccl_entry {

int32_t mem_alloc(void** out, int64_t bytes) {
  Call call{"nccl.mem_alloc"};
  call.bytes = bytes;
  call.is_nccl = true;
  return entered(call, [&](Runtime& r, Lock& lock) -> int32_t {
    if (check_unsafe(r, "nccl.mem_alloc") != kOk) return kNcclUnhandledCuda;
    linger(r, lock, current_device());
    const int32_t code = allocate(r, BlockKind::kNccl, out, bytes);
    return code == kOk ? kNcclOk : code == kInvalidValue ? kNcclInvalidArgument : kNcclUnhandledCuda;
  });
}

int32_t mem_free(void* memory) { return free_block("nccl.mem_free", memory, BlockKind::kNccl, true); }

}  // namespace nccl_entry
}  // namespace ddp::test::fake_gpu
