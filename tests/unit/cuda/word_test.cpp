// SPDX-License-Identifier: Apache-2.0
// The word that stops kernels, by the kernel on the host.
#include "modules/cuda/kernels/launchers.hpp"
#include "support/check.hpp"

ddp_case(one_word_arrives_and_nothing_else_changes) {
  for (const uint32_t value : {0u, 1u, 0xffffffffu}) {
    uint32_t to[3] = {7, 8, 9};
    expect_equal(cuda::copy_word(&value, &to[1], nullptr), 0, "code");
    expect(to[0] == 7 && to[1] == value && to[2] == 9, "the word alone");
  }
}
