// The four opaque handles. A handle is not an address but a number (kind, slot, generation) in a pointer's clothes, so that a
// destroyed, foreign or garbage handle is recognised without touching memory it might point to.
// The tables are the library's second process-wide state besides the log sink: C handles have no other home to be checked against.
// Any thread; looking up is lock-free.
// Tested by unit/capi/handles_test.cpp and capi/group_test.c.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "ddp/types.h"

namespace ddp::capi {

template <class Object, class Handle, uint64_t kKind>
class HandleTable {
 public:
  static HandleTable& instance() noexcept {
    static HandleTable& table = *new HandleTable;  // never destroyed: handles may be used while the process ends
    return table;
  }

  Handle* add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    uint64_t index = 0;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else {
      index = used_++;
      if (index >= kChunks * kChunkSlots) throw Error(DDP_ERROR_OUT_OF_MEMORY, "more than a million live handles");
      auto& chunk = chunks_[index / kChunkSlots];
      if (chunk.load() == nullptr) chunk.store(new Chunk);
    }
    free_.reserve(used_);  // so that removing never allocates
    Slot& slot = *find(index);
    slot.object = std::move(object);
    const uint64_t generation = (slot.state.load() >> kGenerationShift) + 1;  // odd: live
    slot.state.store(generation << kGenerationShift, std::memory_order_release);
    return encode(index, generation);
  }

  /// The object, or NULL for anything that is not a live handle of this kind.
  std::shared_ptr<Object> get(const Handle* handle) noexcept {
    uint64_t generation = 0;
    Slot* slot = decode(handle, &generation);
    if (slot == nullptr) return nullptr;
    std::shared_ptr<Object> object;
    if (slot->state.fetch_add(1) >> kGenerationShift == generation) object = slot->object;
    slot->state.fetch_sub(1);
    return object;
  }

  /// Take the object out; NULL if it is not a live handle.
  std::shared_ptr<Object> remove(const Handle* handle) noexcept {
    uint64_t generation = 0;
    Slot* slot = decode(handle, &generation);
    if (slot == nullptr) return nullptr;
    const std::lock_guard lock(mutex_);
    if (slot->state.load() >> kGenerationShift != generation) return nullptr;
    slot->state.fetch_add(uint64_t{1} << kGenerationShift);  // even: free; no new reader takes the object
    while ((slot->state.load() & kUserMask) != 0) std::this_thread::yield();  // readers only copy a pointer
    std::shared_ptr<Object> object = std::move(slot->object);
    slot->object.reset();
    free_.push_back(index_of(handle));
    return object;
  }

 private:
  // handle bits: generation 36 | slot 20 | kind 8
  static constexpr uint64_t kKindBits = 8;
  static constexpr uint64_t kIndexBits = 20;
  static constexpr uint64_t kGenerationShift = 24;  // in Slot::state; below it: readers at the moment
  static constexpr uint64_t kUserMask = (uint64_t{1} << kGenerationShift) - 1;
  static constexpr uint64_t kChunkSlots = 256;
  static constexpr uint64_t kChunks = (uint64_t{1} << kIndexBits) / kChunkSlots;

  struct Slot {
    std::atomic<uint64_t> state{0};
    std::shared_ptr<Object> object;
  };
  struct Chunk {
    std::array<Slot, kChunkSlots> slots;
  };

  static Handle* encode(uint64_t index, uint64_t generation) noexcept {
    return reinterpret_cast<Handle*>(generation << (kKindBits + kIndexBits) | index << kKindBits | kKind);
  }
  static uint64_t index_of(const Handle* handle) noexcept {
    return reinterpret_cast<uint64_t>(handle) >> kKindBits & ((uint64_t{1} << kIndexBits) - 1);
  }
  Slot* find(uint64_t index) noexcept {
    Chunk* chunk = chunks_[index / kChunkSlots].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &chunk->slots[index % kChunkSlots];
  }
  Slot* decode(const Handle* handle, uint64_t* generation) noexcept {
    const auto bits = reinterpret_cast<uint64_t>(handle);
    *generation = bits >> (kKindBits + kIndexBits);
    if ((bits & ((uint64_t{1} << kKindBits) - 1)) != kKind || *generation % 2 == 0) return nullptr;
    return find(index_of(handle));
  }

  std::mutex mutex_;  // guards free_, used_ and the order of add and remove
  std::vector<uint64_t> free_;
  uint64_t used_ = 0;
  std::array<std::atomic<Chunk*>, kChunks> chunks_{};
};

/// The object of a handle, or INVALID_ARGUMENT: "ddp_group_barrier: group is NULL" / "... is not a live ddp_group".
template <class Table, class Handle>
auto resolve(Table& table, const Handle* handle, const char* function, const char* argument) {
  if (handle == nullptr) throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
  auto object = table.get(handle);
  if (object == nullptr)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: %s is not a live handle (destroyed already, or of another kind)", function,
                     argument);
  return object;
}

}  // namespace ddp::capi
