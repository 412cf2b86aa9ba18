// SPDX-License-Identifier: Apache-2.0
// Fetches the word that stops kernels from the host's memory: one thread reads it, in the order of the stream. A copy would
// queue behind copies of other streams in the copy engine, such as a program's prefetch of its next batch. Tested by
// unit/cuda/word_test.cpp and gpu/kernels_test.cpp.
#include "modules/cuda/kernels/launch.cuh"

namespace ddp::cuda {
namespace {

struct WordParameters {
  const uint32_t* from;
  uint32_t* to;
};

__global__ void word_kernel(const __grid_constant__ WordParameters p) {
  *p.to = *static_cast<const volatile uint32_t*>(p.from);
}

}  // namespace

KernelList word_kernels() noexcept {
  static const void* const kernels[] = {address_of(word_kernel)};
  return {kernels, 1};
}

int32_t copy_word(const uint32_t* from, uint32_t* to, void* stream) noexcept {
  return launch(word_kernel, WordParameters{from, to}, dim3(1), dim3(1), stream);
}

}  // namespace ddp::cuda
