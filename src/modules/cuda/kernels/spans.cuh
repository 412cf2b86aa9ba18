// SPDX-License-Identifier: Apache-2.0
// Kernels over spans (device/gpu/gpu_abi.h): the piece, the parameters, and launching with a table of the size that is
// needed.
// Host and device code.
// Tested by unit/cuda/tiles_test.cpp (the cutting).
#pragma once

#include "modules/cuda/kernels/launch.cuh"

namespace ddp::cuda {

struct SpanPiece {
  void* from;
  void* to;
  uint32_t count;
  uint32_t first_tile;
};

/// Extra: further arguments of the kernel.
template <class Extra, int pieces>
struct SpanParameters {
  Extra extra;
  Table<SpanPiece, pieces> table;
};

template <class Extra>
constexpr int kFewSpans = capacity<SpanPiece>(kSmall, sizeof(Extra));
template <class Extra>
constexpr int kManySpans = capacity<SpanPiece>(kLarge, sizeof(Extra));
template <class Extra>
using FewSpans = SpanParameters<Extra, kFewSpans<Extra>>;
template <class Extra>
using ManySpans = SpanParameters<Extra, kManySpans<Extra>>;

template <class Parameters, class Extra>
int32_t launch_spans_with(void (*kernel)(Parameters), const Extra& extra, const ddp_gpu_span* spans, int64_t count,
                          uint32_t tile, int64_t from_size, int64_t to_size, void* stream,
                          BlockFor block_for = BlockFor::kTile) noexcept {
  static_assert(sizeof(Parameters) <= kLarge);
  Parameters p;
  p.extra = extra;
  Batches batches(kernel, p, tile, stream, block_for);
  for (int64_t i = 0; i < count; ++i)
    each_part(spans[i].count, [&](int64_t first, uint32_t length) {
      batches.add(SpanPiece{moved(spans[i].from, first * from_size), moved(spans[i].to, first * to_size), length, 0});
    });
  return batches.finish();
}

/// `few` and `many` are one kernel with two sizes of table.
template <class Extra>
int32_t launch_spans(void (*few)(FewSpans<Extra>), void (*many)(ManySpans<Extra>), const Extra& extra,
                     const ddp_gpu_span* spans, int64_t count, uint32_t tile, int64_t from_size, int64_t to_size,
                     void* stream) noexcept {
  if (count <= kFewSpans<Extra>) return launch_spans_with(few, extra, spans, count, tile, from_size, to_size, stream);
  return launch_spans_with(many, extra, spans, count, tile, from_size, to_size, stream);
}

}  // namespace ddp::cuda
