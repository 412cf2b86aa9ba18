// SPDX-License-Identifier: Apache-2.0
// The opaque handles. A handle is not an address but a number (kind, slot, generation) encoded as a pointer, so that
// a destroyed, foreign or garbage handle is recognised without touching memory it might point to.
// A fork inherits the handles of its parent and must use none: threads that the objects count on are not there, and memory
// and connections are the parent's. Here that is decided for the whole library: a lookup in a fork finds only what was made
// there, so no object of the parent is called or destroyed. They stay where they are.
// The tables are process-wide state, as the log sink and exchange/memory_holds.hpp: C handles have no other home to be
// checked against.
// Any thread; looking up is lock-free.
// Tested by unit/capi/handles_test.cpp, capi/group_test.c and capi/fork_test.cpp.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "ddp/types.h"
#include "os/process.hpp"

namespace ddp::capi {

template <class Object, class Handle, uint64_t kKind>
class HandleTable {
 public:
  static HandleTable& instance() noexcept {
    // In memory of its own, so that no call fails here, and never destroyed: handles may be used while the process ends.
    alignas(HandleTable) static std::byte memory[sizeof(HandleTable)];
    static HandleTable& table = *new (memory) HandleTable;
    table.process_.enter([] { table.begin_anew(); });
    return table;
  }

  /// Is it, or was it ever, a handle of this kind, independent of its type?
  [[nodiscard]] static bool is_kind(const void* handle) noexcept {
    return (reinterpret_cast<uint64_t>(handle) & ((uint64_t{1} << kKindBits) - 1)) == kKind;
  }

  Handle* add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    uint64_t index = first_free_;
    if (index != kNone) {
      first_free_ = find(index)->next_free;
    } else {
      index = used_.load();
      if (index >= kChunks * kChunkSlots) throw Error(DDP_ERROR_OUT_OF_MEMORY, "more than a million live handles");
      auto& chunk = chunks_[index / kChunkSlots];
      if (chunk.load() == nullptr) chunk.store(new Chunk);
      used_.store(index + 1);  // before anything is written there
    }
    Slot& slot = *find(index);
    slot.object = std::move(object);
    uint64_t generation = slot.state.load() >> kGenerationShift;
    if (generation < inherited_generation_) generation = inherited_generation_;
    ++generation;  // odd: live
    if (last_generation_.load() < generation) last_generation_.store(generation);
    slot.state.store(generation << kGenerationShift, std::memory_order_release);
    return encode(index, generation);
  }

  /// The object, or NULL for anything that is not a live handle of this kind.
  std::shared_ptr<Object> get(const Handle* handle) noexcept {
    uint64_t generation = 0;
    Slot* slot = decode(handle, &generation);
    if (slot == nullptr || generation <= inherited_generation_) return nullptr;
    std::shared_ptr<Object> object;
    if (slot->state.fetch_add(1) >> kGenerationShift == generation) object = slot->object;
    slot->state.fetch_sub(1);
    return object;
  }

  /// Take the object out; NULL if it is not a live handle.
  std::shared_ptr<Object> remove(const Handle* handle) noexcept {
    uint64_t generation = 0;
    Slot* slot = decode(handle, &generation);
    if (slot == nullptr || generation <= inherited_generation_) return nullptr;
    const std::lock_guard lock(mutex_);
    if (slot->state.load() >> kGenerationShift != generation) return nullptr;
    slot->state.fetch_add(uint64_t{1} << kGenerationShift);                   // even: free; no new reader takes the object
    while ((slot->state.load() & kUserMask) != 0) std::this_thread::yield();  // readers only copy a pointer
    std::shared_ptr<Object> object = std::move(slot->object);
    slot->object.reset();
    slot->next_free = first_free_;
    first_free_ = index_of(handle);
    return object;
  }

  /// What lives in this process, the oldest slots first.
  [[nodiscard]] std::vector<std::shared_ptr<Object>> all() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Object>> objects;
    for (uint64_t index = 0; index < used_.load(); ++index) {
      const Slot* const slot = find(index);
      if (slot != nullptr && slot->object != nullptr && slot->state.load() >> kGenerationShift > inherited_generation_)
        objects.push_back(slot->object);
    }
    return objects;
  }

  /// Was this a handle of a process that this one is a fork of?
  [[nodiscard]] bool is_inherited(const Handle* handle) noexcept {
    uint64_t generation = 0;
    return decode(handle, &generation) != nullptr && generation <= inherited_generation_ &&
           index_of(handle) < inherited_slots_;
  }

 private:
  // handle bits: generation 36 | slot 20 | kind 8
  static constexpr uint64_t kKindBits = 8;
  static constexpr uint64_t kIndexBits = 20;
  static constexpr uint64_t kGenerationShift = 24;  // in Slot::state; below it: readers at the moment
  static constexpr uint64_t kUserMask = (uint64_t{1} << kGenerationShift) - 1;
  static constexpr uint64_t kChunkSlots = 256;
  static constexpr uint64_t kChunks = (uint64_t{1} << kIndexBits) / kChunkSlots;

  static constexpr uint64_t kNone = UINT64_MAX;

  struct Slot {
    std::atomic<uint64_t> state{0};
    uint64_t next_free = kNone;
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

  /// In a fork: a thread of the parent may have held the lock and left half a change behind. New handles take new slots and
  /// generations that the parent has not reached.
  void begin_anew() noexcept {
    new (static_cast<void*>(&mutex_)) std::mutex;
    first_free_ = kNone;
    inherited_slots_ = used_.load();
    inherited_generation_ = (last_generation_.load() + 1) & ~uint64_t{1};
  }

  os::PerProcess process_;
  std::mutex mutex_;  // guards all below, and the order of add and remove
  uint64_t first_free_ = kNone;
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> last_generation_{0};
  uint64_t inherited_slots_ = 0;  // these two are fixed while handles are in use
  uint64_t inherited_generation_ = 0;
  std::array<std::atomic<Chunk*>, kChunks> chunks_{};
};

/// The object of a handle, or INVALID_ARGUMENT: "ddp_group_barrier: group is NULL: ..." / "... is not a live handle";
/// INVALID_STATE in a fork of the process that made it.
template <class Table, class Handle>
auto resolve(Table& table, const Handle* handle, const char* function, const char* argument) {
  if (handle == nullptr)  // as bindings give it for an object that the program has closed
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: %s is NULL: the %s is closed, or was never made", function, argument,
                     argument);
  auto object = table.get(handle);
  if (object == nullptr && table.is_inherited(handle))
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: the %s was made before fork(), and a forked child cannot use what its parent made; create a group "
                     "in the child, or exec",
                     function, argument);
  if (object == nullptr)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: %s is not a live handle (destroyed already, or of another kind)",
                     function, argument);
  return object;
}

}  // namespace ddp::capi
