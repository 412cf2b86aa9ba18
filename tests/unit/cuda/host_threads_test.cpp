// SPDX-License-Identifier: Apache-2.0
// A block of GPU threads on the host does what kernels rely on: barriers, exchanges in a warp, and an end when threads wait
// in vain.

#include "cuda_runtime_api.h"
#include "support/check.hpp"
#include "support/procs.hpp"

struct Work {
  std::vector<unsigned>* out;
  unsigned* shared;
};

template <void (*kernel)(Work)>
void launch(unsigned blocks, unsigned threads, Work work) {
  void* arguments[] = {&work};
  cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), arguments, 0, nullptr);
}

void count_at_barriers(Work work) {
  for (unsigned round = 0; round < 3; ++round) {
    ++*work.shared;
    __syncthreads();
    work.out->at((blockIdx.x * 3 + round) * 96 + threadIdx.x) = *work.shared;
    __syncthreads();
  }
}

ddp_case(nobody_passes_a_barrier_before_all_have_come) {
  std::vector<unsigned> seen(2 * 3 * 96);
  unsigned shared = 0;
  launch<count_at_barriers>(2, 96, {&seen, &shared});
  for (size_t i = 0; i < seen.size(); ++i)
    expect_equal(seen[i], static_cast<unsigned>((i / 96 + 1) * 96), "thread " + std::to_string(i));
}

void shift(Work work) { work.out->at(threadIdx.x) = __shfl_down_sync(0xffffffff, threadIdx.x * 10, 5); }

ddp_case(a_lane_gets_the_number_of_a_later_lane) {
  std::vector<unsigned> got(64);
  launch<shift>(1, 64, {&got, nullptr});
  for (unsigned i = 0; i < 64; ++i) expect_equal(got[i], (i % 32 < 27 ? i + 5 : i) * 10, "lane " + std::to_string(i));
}

/// One warp waits for the block, the other for its own first lane, which waits for the block.
void wait_in_a_circle(Work work) {
  if (threadIdx.x <= 32) __syncthreads();
  work.out->at(0) = __shfl_down_sync(0xffffffff, 1U, 1);
  if (threadIdx.x > 32) __syncthreads();
}
void exchange_in_half_a_warp(Work work) {
  if (threadIdx.x < 16) return;
  work.out->at(0) = __shfl_down_sync(0xffffffff, 1U, 1);
}

template <void (*kernel)(Work)>
ProcResult ended() {
  Procs procs(1, [](int, Reporter&) {
    std::vector<unsigned> out(1);
    launch<kernel>(1, 64, {&out, nullptr});
  });
  return procs.wait().front();
}

ddp_case(threads_that_wait_in_vain_end_the_program) {
#if defined(__SANITIZE_THREAD__)
  skip();  // it does not follow fibers into the child of a fork, and reports their own memory as shared
#endif
  expect(ended<exchange_in_half_a_warp>().signal != 0, "an exchange in half a warp");
  expect(ended<wait_in_a_circle>().signal != 0, "a circle");
}
