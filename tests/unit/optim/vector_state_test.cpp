// SPDX-License-Identifier: Apache-2.0
// The loops leave the upper halves of the vector registers clean. Else the caller's own code, if it is built for plain SSE
// as most programs are, runs at a fraction of its speed after every step. The processor tells (XGETBV with 1); elsewhere
// this is skipped.

#include "device/cpu/update_kernels.hpp"
#include "support/check.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__x86_64__)
bool can_tell() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return false;
  return __get_cpuid_count(0xd, 1, &a, &b, &c, &d) != 0 && (a & 4) != 0;
}

// Upper halves of YMM (bit 2) and of ZMM 0 to 15 (bit 6) in use.
bool upper_halves_in_use() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return (low & 0x44U) != 0;
}
#else
bool can_tell() { return false; }
bool upper_halves_in_use() { return false; }
#endif

void updates_leave_the_vector_registers_clean(void** /*state*/) {
  if (!can_tell()) skip();
  const ddp_dtype dtypes[] = {DDP_F32, DDP_F64, DDP_F16, DDP_BF16};
  for (const ddp_dtype dtype : dtypes) {
    for (int64_t count = 1; count <= 67; ++count) {
      std::vector<double> value(128), grad(128), first(128), second(128);
      ddp::cpu::adam_update({}, dtype, value.data(), grad.data(), first.data(), second.data(), count);
      assert_false(upper_halves_in_use());
      for (const auto mode : {ddp::cpu::Momentum::kNone, ddp::cpu::Momentum::kFirst, ddp::cpu::Momentum::kRunning}) {
        ddp::cpu::SgdStep step;
        step.mode = mode;
        ddp::cpu::sgd_update(step, dtype, value.data(), grad.data(), first.data(), count);
        assert_false(upper_halves_in_use());
      }
      const double decay = 0.5;
      void* average = first.data();
      ddp::cpu::ema_update(&decay, 1, dtype, value.data(), &average, count);
      assert_false(upper_halves_in_use());
    }
  }
}

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(updates_leave_the_vector_registers_clean)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
