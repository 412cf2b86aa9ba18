// SPDX-License-Identifier: Apache-2.0
// Launching a kernel whose parameters are one struct by value, and choosing the kernel of a dtype. Host code of the .cu
// files.
// Any thread.
// Tested by unit/cuda/module_test.cpp (arguments); launches need a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "ddp/types.h"
#include "modules/cuda/errors.hpp"
#include "modules/cuda/kernels/launchers.hpp"
#include "modules/cuda/kernels/tile_loop.cuh"

namespace ddp::cuda {

inline constexpr int32_t kBadArgument = cudaErrorInvalidValue;
inline constexpr uint32_t kBlocksPerProcessor = 8;

/// Bytes of all parameters of a kernel. Small ones are copied sooner.
inline constexpr size_t kSmall = 4000;
inline constexpr size_t kLarge = 32764;
static_assert(CUDART_VERSION >= kOldestCuda, "kernels have no more than 4,096 bytes of parameters before CUDA 12.1");
/// Pieces that fit in addition to a header of some bytes.
template <class Entry>
constexpr int capacity(size_t bytes, size_t header) {
  return static_cast<int>((bytes - header - 2 * sizeof(uint64_t)) / sizeof(Entry));
}

/// *out: blocks that fill the current device a few times over, at most `most`.
inline int32_t grid_for(uint32_t most, uint32_t& out) noexcept {
  int device = 0;
  int processors = 0;
  if (const cudaError_t code = cudaGetDevice(&device); code != cudaSuccess) return settled(code);
  if (const cudaError_t code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
      code != cudaSuccess)
    return settled(code);
  out = std::min(most, static_cast<uint32_t>(processors) * kBlocksPerProcessor);
  return 0;
}

/// A kernel as cudaLaunchKernel takes it: by its address, which CUDA 12 needs, or by its type (tests/support/host_cuda).
template <class Parameters>
auto launchable(void (*kernel)(Parameters)) noexcept {
#ifdef __CUDACC__
  return reinterpret_cast<const void*>(kernel);
#else
  return kernel;
#endif
}

template <class Parameters>
int32_t launch(void (*kernel)(Parameters), const Parameters& parameters, dim3 grid, dim3 block, void* stream) noexcept {
  void* arguments[] = {const_cast<void*>(static_cast<const void*>(&parameters))};
  return settled(cudaLaunchKernel(launchable(kernel), grid, block, arguments, 0, static_cast<cudaStream_t>(stream)));
}

/// kTile: a block for each tile, so that the GPU gives out the work as it gets done. Measured on an H200 that is 5 to 16 %
/// faster than blocks that go through many tiles. kProcessor: few blocks, for kernels that join a result at a block's end.
enum class BlockFor : uint8_t { kTile, kProcessor };

/// A kernel over the tiles of parameters.table.
template <class Parameters>
int32_t launch_tiles(void (*kernel)(Parameters), const Parameters& parameters, void* stream,
                     BlockFor block_for = BlockFor::kTile) noexcept {
  uint32_t blocks = parameters.table.tiles;
  if (blocks == 0) return 0;
  if (block_for == BlockFor::kProcessor)
    if (const int32_t code = grid_for(parameters.table.tiles, blocks); code != 0) return code;
  return launch(kernel, parameters, dim3(blocks), dim3(kThreads), stream);
}

/// Collects pieces in the table of a kernel's parameters, and launches the kernel whenever the table is full, and at the
/// end.
template <class Parameters>
class Batches {
 public:
  Batches(void (*kernel)(Parameters), Parameters& parameters, uint32_t tile, void* stream,
          BlockFor block_for = BlockFor::kTile) noexcept
      : kernel_(kernel), parameters_(parameters), planner_(parameters.table, tile), stream_(stream), block_for_(block_for) {}

  template <class Piece>
  void add(const Piece& piece) noexcept {
    if (planner_.full()) flush();
    planner_.add(piece);
  }
  void flush() noexcept {
    if (code_ == 0) code_ = launch_tiles(kernel_, parameters_, stream_, block_for_);
    planner_.clear();
  }
  /// Launches what is left. The first code that was not 0.
  [[nodiscard]] int32_t finish() noexcept {
    flush();
    return code_;
  }

 private:
  void (*kernel_)(Parameters);
  Parameters& parameters_;
  Planner<decltype(Parameters::table)> planner_;
  void* stream_;
  BlockFor block_for_;
  int32_t code_ = 0;
};

/// body(E{}) with the element type of a floating dtype.
template <class Body>
int32_t with_element(int32_t dtype, Body body) {
  switch (dtype) {
    case DDP_F32: return body(float{});
    case DDP_F64: return body(double{});
    case DDP_F16: return body(Half{});
    case DDP_BF16: return body(Bfloat{});
    default: return kBadArgument;
  }
}

template <class Kernel>
const void* address_of(Kernel* kernel) noexcept {
  return reinterpret_cast<const void*>(kernel);
}

}  // namespace ddp::cuda
