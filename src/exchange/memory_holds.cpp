// SPDX-License-Identifier: Apache-2.0
#include "exchange/memory_holds.hpp"

#include <algorithm>
#include <new>

#include "core/error.hpp"

namespace ddp::collective {

MemoryHolds& MemoryHolds::instance() noexcept {
  // In memory of its own, so that no call fails here, and never destroyed: languages release memory while the process ends.
  alignas(MemoryHolds) static std::byte memory[sizeof(MemoryHolds)];
  static MemoryHolds& holds = *new (memory) MemoryHolds;
  holds.process_.enter([] { holds.begin_anew(); });
  return holds;
}

void MemoryHolds::begin_anew() noexcept {
  is_fork_ = !blocks_.empty() || is_fork_;
  new (&mutex_) std::mutex;
  new (&blocks_) Blocks;
}

void* MemoryHolds::alloc(const std::shared_ptr<Arena>& arena, int64_t bytes) {
  Blocks made;  // before the memory, so that nothing can fail after it
  const auto node = made.try_emplace(nullptr).first;
  auto* const data = static_cast<std::byte*>(arena->alloc(bytes));
  node->second = Block{data + bytes, arena};
  auto entry = made.extract(node);
  entry.key() = data;
  const std::lock_guard lock(mutex_);
  blocks_.insert(std::move(entry));
  return data;
}

void MemoryHolds::free(const std::vector<std::shared_ptr<Arena>>& arenas, void* data) {
  std::shared_ptr<Arena> last;  // ends without the lock
  const std::lock_guard lock(mutex_);
  const auto entry = blocks_.find(static_cast<std::byte*>(data));
  if (entry == blocks_.end() || !entry->second.owned ||
      std::find(arenas.begin(), arenas.end(), entry->second.arena) == arenas.end())
    throw Error(DDP_ERROR_INVALID_ARGUMENT,
                "ddp_group_free: this memory does not come from ddp_group_alloc of this group, or was freed already");
  entry->second.owned = false;
  last = erase_unused(entry);
}

void MemoryHolds::end(const Arena& arena) noexcept {
  const auto is_of_it = [&](const auto& block) { return block.second.arena.get() == &arena; };
  std::shared_ptr<Arena> last;
  const std::lock_guard lock(mutex_);
  const bool stays = std::any_of(blocks_.begin(), blocks_.end(),
                                 [&](const auto& block) { return is_of_it(block) && block.second.holds > 0; });
  for (auto entry = blocks_.begin(); entry != blocks_.end();) {
    const auto here = entry++;
    if (!is_of_it(*here)) continue;
    here->second.owned = false;
    if (here->second.holds > 0) continue;
    last = here->second.arena;
    if (stays)
      static_cast<void>(erase_unused(here));
    else
      blocks_.erase(here);  // the whole arena ends now
  }
}

bool MemoryHolds::retain(const void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto entry = find(data);
  if (entry == blocks_.end()) return false;
  ++entry->second.holds;
  return true;
}

bool MemoryHolds::release(const void* data) noexcept {
  std::shared_ptr<Arena> last;
  const std::lock_guard lock(mutex_);
  const auto entry = find(data);
  if (entry == blocks_.end() || entry->second.holds == 0) return is_fork_;
  --entry->second.holds;
  last = erase_unused(entry);
  return true;
}

/// The block that contains an address.
MemoryHolds::Blocks::iterator MemoryHolds::find(const void* data) noexcept {
  auto* const address = static_cast<std::byte*>(const_cast<void*>(data));
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return blocks_.end();
  const auto entry = std::prev(after);
  return address < entry->second.end ? entry : blocks_.end();
}

/// Returns a block to its arena if it has no user, and returns the arena, of which this may have been the last block.
std::shared_ptr<Arena> MemoryHolds::erase_unused(Blocks::iterator entry) noexcept {
  if (entry->second.owned || entry->second.holds > 0) return nullptr;
  std::shared_ptr<Arena> arena = std::move(entry->second.arena);
  static_cast<void>(arena->free(entry->first));
  blocks_.erase(entry);
  return arena;
}

}  // namespace ddp::collective
