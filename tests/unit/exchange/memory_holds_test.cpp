// SPDX-License-Identifier: Apache-2.0
// Blocks stay until their owner and all holds are done, and arenas as long as their blocks.
#include "exchange/memory_holds.hpp"

#include "exchange/host_allocator.hpp"
#include "shm/region.hpp"
#include "support/check.hpp"

collective::MemoryHolds& holds() { return collective::MemoryHolds::instance(); }

ddp_case(a_block_ends_with_its_last_user) {
  const std::shared_ptr<collective::Arena> arena = std::make_shared<collective::HostAllocator>();
  auto* const data = static_cast<std::byte*>(holds().alloc(arena, 100));
  auto* const other = static_cast<std::byte*>(holds().alloc(arena, 100));
  expect(!holds().release(data), "nobody holds it yet");
  expect(holds().retain(data + 99) && holds().retain(data), "by any address");
  expect(!holds().retain(data + 100) || data + 100 == other, "not behind its end");
  holds().free({arena}, data);
  (void)expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { holds().free({arena}, data); });
  std::memset(data, 7, 100);
  expect(holds().release(data) && data[99] == std::byte{7}, "still held once");
  expect(holds().retain(data) && holds().release(data), "what is held may be held once more");
  expect(holds().release(data + 50), "the last");
  expect(!holds().release(data) && !holds().retain(data), "gone");
  expect(!arena->free(data), "it went back to its arena");
  holds().free({arena}, other);
}

ddp_case(an_arena_lives_as_long_as_its_blocks) {
  std::shared_ptr<collective::Arena> arena = std::make_shared<shm::Region>(int64_t{256} << 20);
  const std::weak_ptr<collective::Arena> alive = arena;
  auto* const kept = static_cast<std::byte*>(holds().alloc(arena, 3 << 20));
  auto* const dropped = static_cast<std::byte*>(holds().alloc(arena, 3 << 20));
  std::memset(kept, 5, 3 << 20);
  expect(holds().retain(kept + 1000), "held");
  holds().end(*arena);
  arena.reset();
  expect(!alive.expired() && kept[(3 << 20) - 1] == std::byte{5}, "mapped");
  expect(!holds().retain(dropped), "nobody held this one");
  expect(holds().release(kept), "let go of");
  expect(alive.expired(), "unmapped");
}

ddp_case(without_holds_an_arena_ends_at_once) {
  std::shared_ptr<collective::Arena> arena = std::make_shared<shm::Region>(int64_t{256} << 20);
  const std::weak_ptr<collective::Arena> alive = arena;
  void* const data = holds().alloc(arena, 1000);
  expect(holds().retain(data) && holds().release(data), "held for a while");
  holds().end(*arena);
  arena.reset();
  expect(alive.expired(), "unmapped");
}

ddp_case(another_groups_memory_is_refused) {
  const std::shared_ptr<collective::Arena> mine = std::make_shared<collective::HostAllocator>();
  const std::shared_ptr<collective::Arena> theirs = std::make_shared<collective::HostAllocator>();
  void* const data = holds().alloc(theirs, 8);
  (void)expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { holds().free({mine}, data); });
  holds().free({theirs}, data);
}

ddp_case(threads_hold_and_let_go) {
  const std::shared_ptr<collective::Arena> arena = std::make_shared<collective::HostAllocator>();
  void* const data = holds().alloc(arena, 64);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        if (!holds().retain(data)) return;
        holds().free({arena}, holds().alloc(arena, 32));
        expect(holds().release(data), "its own hold");
      }
    });
  for (std::thread& thread : threads) thread.join();
  expect(!holds().release(data), "all let go");
  holds().free({arena}, data);
}
