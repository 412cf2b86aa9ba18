// SPDX-License-Identifier: Apache-2.0
#include "support/fake_gpu/launch.hpp"

#include <cstdio>

namespace ddp::test::fake_gpu {
namespace {

std::string hex(uintptr_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

}  // namespace

bool Touches::check(uintptr_t begin, int64_t bytes, const char* verb) {
  const AddressSpace& space = runtime_.state->space;
  const Block* const block = space.find(begin);
  std::string problem;
  if (!space.is_device_address(begin))
    problem = "is no device address";
  else if (block == nullptr)
    problem = "is not allocated, or was freed";
  else if (begin - block->begin + static_cast<uintptr_t>(bytes) > static_cast<uintptr_t>(block->bytes))
    problem = "leaves its block of " + std::to_string(block->bytes) + " bytes at " + hex(block->begin);
  else if (block->kind != BlockKind::kPinned && block->device != stream_.device)
    problem = "is memory of device " + std::to_string(block->device);
  if (problem.empty()) return true;
  runtime_.violate(std::string(name_) + " on stream " + std::to_string(stream_.number) + " of device " +
                   std::to_string(stream_.device) + " " + verb + " " + std::to_string(bytes) + " bytes at " + hex(begin) +
                   ", which " + problem);
  ok_ = false;
  return false;
}

void* Touches::range(const void* memory, int64_t bytes, bool writes) {
  const uintptr_t begin = address_of(memory);
  if (bytes <= 0 || !check(begin, bytes, writes ? "writes" : "reads")) return nullptr;
  accesses_.push_back(Access{begin, bytes, writes});
  return runtime_.state->space.bytes_at(begin);
}

const uint32_t* Touches::stop_word(ddp_gpu_stop stop) {
  if (stop == nullptr || !check(address_of(stop), sizeof *stop, "looks at")) return nullptr;
  return static_cast<const uint32_t*>(runtime_.state->space.bytes_at(address_of(stop)));
}

int32_t stream_for_launch(Runtime& r, const char* name, void* handle, StreamPtr& out) {
  out = r.stream_of(handle);
  if (out == nullptr) return kInvalidHandle;
  if (out->device == current_device()) return kOk;
  r.violate(std::string(name) + " is launched on stream " + std::to_string(out->number) + " of device " +
            std::to_string(out->device) + " while device " + std::to_string(current_device()) + " is current");
  return kInvalidHandle;
}

}  // namespace ddp::test::fake_gpu
