// SPDX-License-Identifier: Apache-2.0
// Steps that a GPU decides and counts. Whether a step is made, the loss scale and the step counts are in page-locked memory
// that a small kernel changes in the order of the step's stream; it also writes what the update kernels read. So the host
// waits for nothing, and a step may be captured into a graph and launched again.
//
// The counts that hold are in one place: in the host (Progress), or, behind hand_over(), on the GPU until get(). Once a step
// has been captured they stay on the GPU, because launches of the graph change them at any time; the host then changes them
// by put(), which waits for the device. The host changes its own only behind await().
// Threads: one at a time, and in one order of streams.
// Tested by gpu_host/capture_test.cpp and gpu_host/optimizer_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "device/gpu/device.hpp"
#include "device/gpu/norms.hpp"
#include "device/updates.hpp"
#include "optim/policy.hpp"
#include "optim/progress.hpp"

namespace ddp::optim {

/// How a step takes gradients on a GPU. Their squares are added up there. If the only question is by how much they are too
/// long, the device answers that itself and the host waits for nothing; what the norm was comes to the host behind it.
class GpuDecision {
 public:
  explicit GpuDecision(const gpu::Device& device)
      : device_(device),
        norms_(device),
        gate_(device, sizeof(ddp_gpu_gate), "the norm of the gradients"),
        copy_(device, sizeof(ddp_gpu_gate), "the norm of the gradients"),
        decided_(device) {}

  /// Note the gradients here, then ask either.
  [[nodiscard]] gpu::Norms& norms() noexcept { return norms_; }
  /// The sum of the squares of what was noted, limited to max_norm; update kernels in the order of the stream read the
  /// answer.
  [[nodiscard]] const ddp_gpu_gate* decide(double loss_scale, double max_norm, void* stream);
  /// What decide found last, once the stream has come so far: the host waits for that.
  [[nodiscard]] double norm() const;

 private:
  const gpu::Device& device_;
  gpu::Norms norms_;
  gpu::Array gate_;
  gpu::Pinned copy_;
  gpu::Event decided_;
};

class GpuSteps {
 public:
  /// For a model with this number of parameters. Throws OUT_OF_MEMORY.
  GpuSteps(const gpu::Device& device, int32_t parameters);

  [[nodiscard]] bool has_counts() const noexcept { return has_counts_; }
  [[nodiscard]] bool is_captured() const noexcept { return is_captured_; }

  /// The counts of the host hold on the GPU from the next step on. They are in the host, or nothing is under way.
  void hand_over(const Progress& progress) noexcept;
  /// What steps have changed, once they are done: the host waits for the last one, or if any was captured for the device.
  void get(Progress& progress);
  /// If a step was captured: later launches continue from these numbers. Waits for the device.
  void put(const Progress& progress);
  void put_rate(double rate);

  /// What one step is decided from.
  struct Step {
    const Policy& policy;
    ddp_gpu_rule_options rule;
    double rate;           // a captured step takes the one that holds when it is launched
    const int64_t* words;  // of the sum of the gradients' squares; NULL: it does not look at them
    ddp_gpu_stop stop;
  };
  /// Which parameters take part in the next step; none do at first.
  void take_part(int32_t index) noexcept { used_[static_cast<size_t>(index) / 64] |= uint64_t{1} << (index % 64); }
  /// Decides about the step and counts it, in the order of the stream. Update kernels behind it read the gate and planned().
  [[nodiscard]] const ddp_gpu_gate* plan(const Step& step, void* stream);
  [[nodiscard]] device::PlannedRules planned() const noexcept;
  /// The loss scale into one element, F32 or F64, in the order of the stream; `progress` has it unless the GPU has.
  void copy_loss_scale(const Progress& progress, const Tensor& to, void* stream);
  /// Until nothing that was enqueued uses the counts any more.
  void await() const;

 private:
  [[nodiscard]] bool begin_capture(void* stream, double rate);
  [[nodiscard]] ddp_gpu_progress* progress() const noexcept { return reinterpret_cast<ddp_gpu_progress*>(counts_.host()); }
  [[nodiscard]] ddp_gpu_parameter* parameters() const noexcept {
    return reinterpret_cast<ddp_gpu_parameter*>(counts_.host() + sizeof(ddp_gpu_progress));
  }

  const gpu::Device& device_;
  const int32_t count_;
  gpu::Pinned counts_;  // a ddp_gpu_progress, then a ddp_gpu_parameter for each parameter
  gpu::Array rules_;
  gpu::Array gate_;
  gpu::Event used_last_;  // behind the last use of the counts that was not captured
  std::vector<uint64_t> used_;
  bool has_counts_ = false;
  bool is_captured_ = false;
};

}  // namespace ddp::optim
