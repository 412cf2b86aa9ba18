// SPDX-License-Identifier: Apache-2.0
#include "gpu/bench/network.hpp"

namespace ddp::bench {
namespace {

constexpr int kTile = 64, kDepth = 16, kThreads = 256; /* a thread computes 4 x 4 numbers of a tile */

/// c[m][n] = sum over k of a and b, each read as it is or transposed. All sizes are multiples of the tile.
template <bool kTransposedA, bool kTransposedB>
__global__ void multiply(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float part_a[kDepth][kTile + 4], part_b[kDepth][kTile + 4];
  const int row = static_cast<int>(blockIdx.y) * kTile, column = static_cast<int>(blockIdx.x) * kTile,
            t = static_cast<int>(threadIdx.x);
  float sum[4][4] = {};
  for (int from = 0; from < k; from += kDepth) {
    for (int e = t; e < kTile * kDepth; e += kThreads) {
      const int across = kTransposedA ? e % kTile : e / kDepth, deep = kTransposedA ? e / kTile : e % kDepth;
      part_a[deep][across] = kTransposedA ? a[(from + deep) * m + row + across] : a[(row + across) * k + from + deep];
    }
    for (int e = t; e < kTile * kDepth; e += kThreads) {
      const int across = kTransposedB ? e / kDepth : e % kTile, deep = kTransposedB ? e % kDepth : e / kTile;
      part_b[deep][across] = kTransposedB ? b[(column + across) * k + from + deep] : b[(from + deep) * n + column + across];
    }
    __syncthreads();
    for (int d = 0; d < kDepth; ++d)
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) sum[i][j] += part_a[d][t / 16 * 4 + i] * part_b[d][t % 16 * 4 + j];
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      c[(row + t / 16 * 4 + i) * n + column + t % 16 * 4 + j] = sum[i][j] * 0.03F; /* so that numbers stay small */
}

__global__ void sum_rows(const float* delta, float* bias, int rows, int columns) {
  const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  float sum = 0;
  for (int r = 0; r < rows; ++r) sum += delta[r * columns + c];
  if (c < columns) bias[c] = sum;
}

dim3 tiles(int m, int n) { return {static_cast<unsigned>(n / kTile), static_cast<unsigned>(m / kTile)}; }

constexpr int64_t kMatrix = int64_t{Network::kWidth} * Network::kWidth;
constexpr int64_t kLayer = kMatrix + Network::kWidth;

}  // namespace

Network::Network(int layers, int batch)
    : layers_(layers),
      batch_(batch),
      values_(layers * kLayer * 4),
      grads_(layers * kLayer * 4),
      activations_(int64_t{layers + 1} * batch * kWidth * 4),
      deltas_(int64_t{2} * batch * kWidth * 4) {}

std::vector<int64_t> Network::counts() const {
  std::vector<int64_t> all;
  for (int l = 0; l < layers_; ++l) all.insert(all.end(), {kMatrix, kWidth});
  return all;
}

namespace {
float* element(const Buffer& buffer, int64_t offset) { return reinterpret_cast<float*>(buffer.data()) + offset; }
}  // namespace

float* Network::value(int32_t index) const { return element(values_, index / 2 * kLayer + index % 2 * kMatrix); }
float* Network::own_grad(int32_t index) const { return element(grads_, index / 2 * kLayer + index % 2 * kMatrix); }

void Network::forward(cudaStream_t stream) const {
  const int64_t step = int64_t{batch_} * kWidth;
  for (int l = 0; l < layers_; ++l)
    multiply<false, true><<<tiles(batch_, kWidth), kThreads, 0, stream>>>(
        element(activations_, l * step), value(2 * l), element(activations_, (l + 1) * step), batch_, kWidth, kWidth);
  MUST(cudaGetLastError());
}

void Network::backward(cudaStream_t stream, const std::vector<float*>& grads,
                       const std::function<void(int32_t)>& done) const {
  const int64_t step = int64_t{batch_} * kWidth;
  for (int l = layers_; l-- > 0;) {
    const float* const delta = element(deltas_, l % 2 * step);
    const auto at = static_cast<size_t>(2 * l);
    sum_rows<<<kWidth / 128, 128, 0, stream>>>(delta, grads[at + 1], batch_, kWidth);
    done(2 * l + 1);
    multiply<true, false><<<tiles(kWidth, kWidth), kThreads, 0, stream>>>(delta, element(activations_, l * step), grads[at],
                                                                          kWidth, kWidth, batch_);
    multiply<false, false><<<tiles(batch_, kWidth), kThreads, 0, stream>>>(
        delta, value(2 * l), element(deltas_, (l + 1) % 2 * step), batch_, kWidth, kWidth);
    done(2 * l); /* after the last kernel that reads the matrix, for updates within the pass */
  }
  MUST(cudaGetLastError());
}

Lent::Lent(ddp_group* group, const Network& network, Way how, cudaStream_t on, int64_t bucket_bytes, ddp_reduce reduce)
    : net(network), way(how), stream(on) {
  const std::vector<int64_t> counts = net.counts();
  ddp_model_options options;
  MUST(ddp_model_options_init(&options, sizeof options));
  options.bucket_bytes = bucket_bytes;
  options.reduce = reduce;
  if (way != Way::kNone) MUST(ddp_model_create(group, &options, &model));
  for (int32_t p = 0; p < static_cast<int32_t>(counts.size()); ++p) {
    grads.push_back(net.own_grad(p));
    if (model == nullptr) continue;
    const ddp_tensor value = on_gpu(net.value(p), counts[static_cast<size_t>(p)]),
                     grad = on_gpu(net.own_grad(p), counts[static_cast<size_t>(p)]);
    MUST(ddp_model_add_parameter(model, ("p" + std::to_string(p)).c_str(), &value, way == Way::kCopy ? &grad : nullptr,
                                 nullptr));
  }
  if (model == nullptr) return;
  MUST(ddp_model_commit(model, stream));
  for (int32_t p = 0; p < static_cast<int32_t>(counts.size()); ++p) {
    ddp_tensor grad;
    MUST(ddp_model_get_grad(model, p, &grad));
    grads[static_cast<size_t>(p)] = static_cast<float*>(grad.data);
  }
}

Lent::~Lent() {
  ddp_optimizer_destroy(optimizer);
  ddp_model_destroy(model);
}

void Lent::use_adam(bool in_backward) {
  ddp_adam_options options;
  MUST(ddp_adam_options_init(&options, sizeof options));
  ddp_optimizer_options shared;
  MUST(ddp_optimizer_options_init(&shared, sizeof shared));
  options.rate = 1e-6;
  shared.in_backward = in_backward ? 1 : 0;
  shared.undo = 0;
  MUST(ddp_optimizer_create_adam(model, &options, &shared, &optimizer));
}

void Lent::backward_only(const std::function<void()>& middle) {
  if (model != nullptr) MUST(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
  net.backward(stream, grads, [&](int32_t index) {
    if (model != nullptr) MUST(ddp_model_mark_ready(model, index, stream));
  });
  middle();
  if (model != nullptr) MUST(ddp_model_end_backward(model, stream));
}

void Lent::step() {
  net.forward(stream);
  backward_only();
  if (optimizer != nullptr) MUST(ddp_optimizer_step(optimizer, stream));
}

}  // namespace ddp::bench
