// SPDX-License-Identifier: Apache-2.0
#include "extra/batch_norm/moments.hpp"

#include <algorithm>
#include <cstddef>

#include "device/cpu/arrays.hpp"

namespace ddp::batch_norm {
namespace {

constexpr int64_t kChunk = 1024;         // elements, as F64 in the nearest cache
constexpr int64_t kShort = 32;           // inner sizes below it go through whole rows at a time
constexpr int64_t kBlock = 32 * kChunk;  // elements of the rows that are read twice
constexpr int kLanes = 8;                // partial sums

const std::byte* element(const void* data, ddp_dtype dtype, int64_t at) noexcept {
  return static_cast<const std::byte*>(data) + at * dtype_size(dtype);
}
std::byte* element(void* data, ddp_dtype dtype, int64_t at) noexcept {
  return static_cast<std::byte*>(data) + at * dtype_size(dtype);
}

/// A part of the array, in F64.
struct Chunk {
  alignas(64) double values[kChunk];
  void load(ddp_dtype dtype, const void* data, int64_t at, int64_t count) noexcept {
    cpu::convert(dtype, element(data, dtype, at), DDP_F64, values, count);
  }
  void store(ddp_dtype dtype, void* data, int64_t at, int64_t count) const noexcept {
    cpu::convert(DDP_F64, values, dtype, element(data, dtype, at), count);
  }
};

/// Calls load(at, n) for each chunk of the elements [from, to), and for each stretch in it that has one channel, or one
/// channel for each element (inner 1), body(channel, first in the chunk, length).
template <class Load, class Body, class Done>
void each_stretch(const Shape& shape, int64_t from, int64_t to, Load load, Body body, Done done) {
  for (int64_t at = from; at < to; at += kChunk) {
    const int64_t count = std::min(kChunk, to - at);
    load(at, count);
    for (int64_t i = 0; i < count;) {
      const int64_t channel = (at + i) / shape.inner % shape.channels;
      const int64_t left = shape.inner == 1 ? shape.channels - channel : shape.inner - (at + i) % shape.inner;
      const int64_t length = std::min(left, count - i);
      body(channel, i, length);
      i += length;
    }
    done(at, count);
  }
}

template <class Term>
double sum_of(int64_t count, Term term) noexcept {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  for (; i < count; ++i) lanes[0] += term(i);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

/// The mean and m2 of one channel, with `more_count` further values.
void join_one(double count, double& mean, double& m2, double more_count, double more_mean, double more_m2) noexcept {
  const double all = count + more_count;
  const double difference = more_mean - mean;
  mean += difference * (more_count / all);
  m2 += more_m2 + difference * difference * (count * (more_count / all));
}

/// Long stretches: each is a set of its own.
void measure_stretches(ddp_dtype dtype, const void* data, const Shape& shape, Moments& moments) {
  Chunk chunk;
  std::vector<double> counts(moments.mean.size());
  for (int64_t run = 0; run < shape.rows * shape.channels; ++run) {
    const auto c = static_cast<size_t>(run % shape.channels);
    for (int64_t at = 0; at < shape.inner; at += kChunk) {
      const int64_t n = std::min(kChunk, shape.inner - at);
      const auto length = static_cast<double>(n);
      chunk.load(dtype, data, run * shape.inner + at, n);
      const double mean = sum_of(n, [&](int64_t i) { return chunk.values[i]; }) / length;
      const double m2 = sum_of(n, [&](int64_t i) { return (chunk.values[i] - mean) * (chunk.values[i] - mean); });
      join_one(counts[c], moments.mean[c], moments.m2[c], length, mean, m2);
      counts[c] += length;
    }
  }
  moments.count = static_cast<double>(shape.per_channel());
}

/// Short stretches: blocks of rows, a set in each channel.
void measure_rows(ddp_dtype dtype, const void* data, const Shape& shape, Moments& moments) {
  Chunk chunk;
  const int64_t row = shape.channels * shape.inner;
  const int64_t rows = std::max<int64_t>(16, kBlock / row);
  Moments block(shape.channels);
  const auto load = [&](int64_t at, int64_t count) { chunk.load(dtype, data, at, count); };
  const auto nothing = [](int64_t, int64_t) {};
  for (int64_t first = 0; first < shape.rows; first += rows) {
    const int64_t last = std::min(first + rows, shape.rows);
    std::fill(block.mean.begin(), block.mean.end(), 0.0);
    std::fill(block.m2.begin(), block.m2.end(), 0.0);
    block.count = static_cast<double>((last - first) * shape.inner);
    each_stretch(
        shape, first * row, last * row, load,
        [&](int64_t c, int64_t at, int64_t n) {
          double* const sums = block.mean.data() + c;
          if (shape.inner == 1)
            for (int64_t i = 0; i < n; ++i) sums[i] += chunk.values[at + i];
          else
            for (int64_t i = 0; i < n; ++i) sums[0] += chunk.values[at + i];
        },
        nothing);
    for (double& mean : block.mean) mean /= block.count;
    each_stretch(
        shape, first * row, last * row, load,
        [&](int64_t c, int64_t at, int64_t n) {
          const double* const means = block.mean.data() + c;
          double* const m2 = block.m2.data() + c;
          const int64_t step = shape.inner == 1 ? 1 : 0;
          for (int64_t i = 0; i < n; ++i) {
            const double difference = chunk.values[at + i] - means[i * step];
            m2[i * step] += difference * difference;
          }
        },
        nothing);
    join(moments, block.count, block.mean.data(), block.m2.data());
  }
}

}  // namespace

Shape shape_of(const Tensor& tensor) noexcept {
  Shape shape{tensor.shape[0], tensor.shape[1], 1};
  for (int32_t d = 2; d < tensor.ndim; ++d) shape.inner *= tensor.shape[static_cast<size_t>(d)];
  return shape;
}

void join(Moments& moments, double count, const double* mean, const double* m2) noexcept {
  if (count == 0) return;
  for (size_t c = 0; c < moments.mean.size(); ++c)
    join_one(moments.count, moments.mean[c], moments.m2[c], count, mean[c], m2[c]);
  moments.count += count;
}

Moments measure(ddp_dtype dtype, const void* data, const Shape& shape) {
  Moments moments(shape.channels);
  if (shape.per_channel() * shape.channels == 0) return moments;
  (shape.inner < kShort ? measure_rows : measure_stretches)(dtype, data, shape, moments);
  return moments;
}

void gradient_sums(ddp_dtype dtype, const void* dy, const void* x, const Shape& shape, const double* mean, double* sums,
                   double* products) {
  Chunk dys, xs;
  each_stretch(
      shape, 0, shape.per_channel() * shape.channels,
      [&](int64_t at, int64_t count) {
        dys.load(dtype, dy, at, count);
        xs.load(dtype, x, at, count);
      },
      [&](int64_t c, int64_t at, int64_t n) {
        const double* const d = dys.values + at;
        const double* const v = xs.values + at;
        if (shape.inner != 1) {
          sums[c] += sum_of(n, [&](int64_t i) { return d[i]; });
          products[c] += sum_of(n, [&](int64_t i) { return d[i] * (v[i] - mean[c]); });
          return;
        }
        for (int64_t i = 0; i < n; ++i) sums[c + i] += d[i];
        for (int64_t i = 0; i < n; ++i) products[c + i] += d[i] * (v[i] - mean[c + i]);
      },
      [](int64_t, int64_t) {});
}

void apply_forward(ddp_dtype dtype, const void* x, const Shape& shape, const double* mean, const double* factor,
                   const double* shift, void* y) {
  Chunk chunk;
  each_stretch(
      shape, 0, shape.per_channel() * shape.channels, [&](int64_t at, int64_t count) { chunk.load(dtype, x, at, count); },
      [&](int64_t c, int64_t at, int64_t n) {
        double* const v = chunk.values + at;
        if (shape.inner != 1) {
          const double m = mean[c], f = factor[c], s = shift[c];
          for (int64_t i = 0; i < n; ++i) v[i] = (v[i] - m) * f + s;
          return;
        }
        for (int64_t i = 0; i < n; ++i) v[i] = (v[i] - mean[c + i]) * factor[c + i] + shift[c + i];
      },
      [&](int64_t at, int64_t count) { chunk.store(dtype, y, at, count); });
}

void apply_backward(ddp_dtype dtype, const void* dy, const void* x, const Shape& shape, const double* mean,
                    const double* factor, const double* slope, const double* shift, void* dx) {
  Chunk dys, xs;
  each_stretch(
      shape, 0, shape.per_channel() * shape.channels,
      [&](int64_t at, int64_t count) {
        dys.load(dtype, dy, at, count);
        xs.load(dtype, x, at, count);
      },
      [&](int64_t c, int64_t at, int64_t n) {
        double* const d = dys.values + at;
        const double* const v = xs.values + at;
        if (shape.inner != 1) {
          const double m = mean[c], f = factor[c], l = slope[c], s = shift[c];
          for (int64_t i = 0; i < n; ++i) d[i] = d[i] * f - (v[i] - m) * l - s;
          return;
        }
        for (int64_t i = 0; i < n; ++i) d[i] = d[i] * factor[c + i] - (v[i] - mean[c + i]) * slope[c + i] - shift[c + i];
      },
      [&](int64_t at, int64_t count) { dys.store(dtype, dx, at, count); });
}

}  // namespace ddp::batch_norm
