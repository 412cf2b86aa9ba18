// SPDX-License-Identifier: Apache-2.0
// Which instruction set runs: the widest that this machine and its operating system support, found at the first use.
// Tested by unit/device/reduce_test.cpp.
#include <atomic>
#include <cstring>

#include "device/cpu/kernels.hpp"
#include "device/cpu/reduce.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ddp::cpu {
namespace {

#if defined(__x86_64__)
bool has_f16c() noexcept {  // not every compiler knows it by name
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
const Kernels* candidate(int rank) noexcept {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  const Kernels* const tables[] = {avx512 ? &kAvx512Kernels : nullptr, avx2 ? &kAvx2Kernels : nullptr, &kPortableKernels};
  return tables[rank];
}
#elif defined(__aarch64__)
const Kernels* candidate(int rank) noexcept {
  const Kernels* const tables[] = {nullptr, &kNeonKernels, &kPortableKernels};
  return tables[rank];
}
#else
const Kernels* candidate(int rank) noexcept { return rank == 2 ? &kPortableKernels : nullptr; }
#endif

constexpr int kCandidates = 3;  // widest first; the last one always exists

const Kernels* widest() noexcept {
  int rank = 0;
  while (candidate(rank) == nullptr) ++rank;
  return candidate(rank);
}

// A fact about the machine, not a setting: every thread that finds it empty writes the same value.
std::atomic<const Kernels*> chosen{nullptr};

}  // namespace

const Kernels& kernels() noexcept {
  const Kernels* table = chosen.load(std::memory_order_relaxed);
  if (table == nullptr) {
    table = widest();
    chosen.store(table, std::memory_order_relaxed);
  }
  return *table;
}

const char* instruction_set() noexcept { return kernels().name; }

bool set_instruction_set(const char* name) noexcept {
  for (int rank = 0; rank < kCandidates; ++rank) {
    const Kernels* const table = candidate(rank);
    if (table == nullptr || std::strcmp(table->name, name) != 0) continue;
    chosen.store(table, std::memory_order_relaxed);
    return true;
  }
  return false;
}

}  // namespace ddp::cpu
