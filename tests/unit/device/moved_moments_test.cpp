// SPDX-License-Identifier: Apache-2.0
// The loops whose new moments go to other memory, past the caches: the bits of the loops in place.
#include "device/cpu/reduce.hpp"
#include "optim/rules.hpp"
#include "support/check.hpp"
#include "unit/device/update_state.hpp"

/// A rule whose new moments go to other arrays, which begin `begin` elements after a line and are `apart`, in slices,
/// against the same rule in place.
void expect_moving(const cpu::AdamStep* adam, const cpu::SgdStep* sgd, ddp_dtype dtype, size_t begin, size_t apart,
                   const std::string& what) {
  UpdateState wanted = wild_state(dtype), got = wanted;
  const Array first = got.first, second = got.second;
  const auto size = static_cast<size_t>(dtype_size(first.dtype));
  std::vector<std::byte> room((2 * kCount + begin + apart) * size + 64);
  const uintptr_t line = (reinterpret_cast<uintptr_t>(room.data()) + 63) / 64 * 64;
  auto* const new_first = reinterpret_cast<std::byte*>(line) + begin * size;
  std::byte* const new_second = new_first + apart * size;
  const auto move = [&](size_t from, size_t count) {
    const cpu::Moved mean{got.first.at(from), new_first + from * size},
        square{got.second.at(from), new_second + from * size};
    if (adam != nullptr)
      cpu::adam_update(*adam, dtype, got.value.at(from), got.grad.at(from), mean, square, static_cast<int64_t>(count));
    else
      cpu::sgd_update(*sgd, dtype, got.value.at(from), got.grad.at(from), mean, static_cast<int64_t>(count));
  };
  adam != nullptr ? adam_rule (*adam)(wanted, 0, kCount) : sgd_rule (*sgd)(wanted, 0, kCount);
  move(0, begin);
  move(begin, 90);
  move(begin + 90, kCount - begin - 90);
  expect_same_array(got.first, first, what + ", the first state of before");
  expect_same_array(got.second, second, what + ", the second state of before");
  std::memcpy(got.first.data(), new_first, kCount * size);
  if (adam != nullptr) std::memcpy(got.second.data(), new_second, kCount * size);
  expect_same(got, wanted, what);
}

ddp_case(moments_go_elsewhere_with_the_same_bits) {
  const std::string widest = cpu::instruction_set();
  ddp_sgd_options options = optim::default_sgd_options();
  options.momentum = 0.9;
  const cpu::AdamStep adam = optim::adam_step(optim::default_adam_options(), 0.1, 0.01, 7);
  for (const char* set : {"portable", "avx2", "avx512", "neon"}) {
    if (!cpu::set_instruction_set(set)) continue;
    for (const ddp_dtype dtype : kFloats)
      for (const auto& [begin, apart] :
           {std::pair<size_t, size_t>{0, 256}, {1, 256}, {7, 256}, {16, 256}, {0, 203}, {4, 204}}) {
        const std::string what =
            std::string(set) + " from " + std::to_string(begin) + ", " + std::to_string(apart) + " apart";
        expect_moving(&adam, nullptr, dtype, begin, apart, "AdamW, " + what);
        for (const int nesterov : {0, 1})
          for (const int64_t steps : {0, 3}) {
            options.nesterov = nesterov;
            const cpu::SgdStep sgd = optim::sgd_step(options, 0.1, 0.01, steps);
            expect_moving(nullptr, &sgd, dtype, begin, apart, "SGD, " + what);
          }
      }
  }
  expect(cpu::set_instruction_set(widest.c_str()), "back to the widest");
}
