// SPDX-License-Identifier: Apache-2.0
// The computation that steps are measured with: layers of one matrix and a bias, forward and backward by kernels that are
// plain and use the whole GPU.
#pragma once

#include "gpu/bench/bench.hpp"

namespace ddp::bench {

/// How a step's gradients meet libddp.
enum class Way { kNone, kView, kCopy };

class Network {
 public:
  static constexpr int kWidth = 1024;
  Network(int layers, int batch);

  [[nodiscard]] int layers() const { return layers_; }
  /// Parameters in the order of forward: matrix 0, bias 0, matrix 1, ...
  [[nodiscard]] std::vector<int64_t> counts() const;
  [[nodiscard]] float* value(int32_t index) const;
  /// Memory of the program for a gradient.
  [[nodiscard]] float* own_grad(int32_t index) const;

  void forward(cudaStream_t stream) const;
  /// Calls done(index) when a gradient's kernel has been launched.
  void backward(cudaStream_t stream, const std::vector<float*>& grads, const std::function<void(int32_t)>& done) const;

 private:
  int layers_, batch_;
  Buffer values_, grads_, activations_, deltas_;
};

/// A model over a network, or none.
struct Lent {
  Lent(ddp_group* group, const Network& network, Way how, cudaStream_t stream, int64_t bucket_bytes = int64_t{25} << 20,
       ddp_reduce reduce = DDP_AVERAGE);
  ~Lent();
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  void use_adam(bool in_backward);
  /// One forward and backward, and the step if there is an optimizer.
  void step();
  /// The backward alone, with begin and end; `middle` is called when its last kernel has been launched.
  void backward_only(const std::function<void()>& middle = [] {});

  const Network& net;
  Way way;
  cudaStream_t stream;
  ddp_model* model = nullptr;
  ddp_optimizer* optimizer = nullptr;
  std::vector<float*> grads;
};

}  // namespace ddp::bench
