// SPDX-License-Identifier: Apache-2.0
// Arrays, and memory that runs out.
#include "os/memory.hpp"

#include "support/check.hpp"

int allowed = 0;
int live = 0;
size_t freed = 0;

void* limited(size_t bytes) noexcept {
  if (allowed-- <= 0) return nullptr;
  ++live;
  return std::calloc(bytes, 1);
}
void counted_free(void* memory, size_t bytes) noexcept {
  freed += bytes;
  --live;
  std::free(memory);
}
constexpr os::MemoryTable kLimited{&limited, &counted_free};

ddp_case(an_array_is_zeroed_and_aligned) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{1000}, size_t{1} << 20, size_t{9} << 20}) {
    const os::LargeArray array(bytes, "a test");
    expect(reinterpret_cast<uintptr_t>(array.data()) % 64 == 0, "alignment");
    for (size_t i = 0; i < bytes; ++i) expect(array.data()[i] == std::byte{0}, "zero");
  }
}

ddp_case(memory_that_runs_out_is_an_error_and_nothing_leaks) {
  os::set_memory_table(&kLimited);
  allowed = 2;
  {
    os::LargeArray a(100, "the first");
    os::LargeArray b(100, "the second");
    expect_error(DDP_ERROR_OUT_OF_MEMORY, [] { const os::LargeArray c(100, "the third"); }, {"100 bytes of the third"});
    os::LargeArray moved(std::move(a));
    b = std::move(moved);
    expect(b.data() != nullptr && a.data() == nullptr, "moved");
  }
  expect_equal(live, 0, "arrays left");
  expect(freed >= 200, "what is freed is told how long it was");
  os::set_memory_table(nullptr);
}
