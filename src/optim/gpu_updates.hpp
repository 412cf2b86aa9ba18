// Blocks of parameters on a GPU that a rule is to change: noted one by one, then launched together, one call for each type
// of parameter.
// A block that goes on where the last one of its type ended, under the same rule, becomes part of it, and equal rules are
// noted once; so a step over whole parameters and one in small blocks end as the same few launches.
//
// Threads: one at a time. Nothing is allocated once there was room for all parameters.
// Tested by gpu_host/gpu_updates_test.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/parameters.hpp"
#include "device/cpu/update_kernels.hpp"
#include "device/gpu/device.hpp"

namespace ddp::optim {

class GpuUpdates {
 public:
  GpuUpdates() = default;
  GpuUpdates(const GpuUpdates&) = delete;
  GpuUpdates& operator=(const GpuUpdates&) = delete;
  virtual ~GpuUpdates() = default;

  /// Room for all parameters.
  virtual void reserve(const Parameters& table) = 0;
  virtual void clear() noexcept = 0;
  [[nodiscard]] virtual bool empty() const noexcept = 0;
  /// Launch what was noted, in the order of the stream, and forget it. Throws what a GPU throws.
  virtual void launch(const gpu::Device& device, const ddp_gpu_shape& shape, ddp_gpu_stop stop, void* stream) = 0;
};

/// Rule: ddp_gpu_adam_rule or ddp_gpu_sgd_rule.
template <class Rule>
class RuleUpdates final : public GpuUpdates {
 public:
  void reserve(const Parameters& table) override;
  void clear() noexcept override;
  [[nodiscard]] bool empty() const noexcept override;
  void launch(const gpu::Device& device, const ddp_gpu_shape& shape, ddp_gpu_stop stop, void* stream) override;

  /// `update.rule` is set here. Nothing if there are no elements.
  void add(ddp_dtype dtype, const ddp_gpu_update& update, const Rule& rule);

 private:
  struct List {
    std::vector<ddp_gpu_update> updates;
    std::vector<Rule> rules;
  };
  static constexpr size_t kDtypes = 5;  // ddp_dtype is the index; floating ones alone come in
  std::array<List, kDtypes> lists_;
};

/// The scalars of a step as a kernel takes them; the shape goes beside them.
[[nodiscard]] ddp_gpu_adam_rule gpu_rule(const cpu::AdamStep& step) noexcept;
[[nodiscard]] ddp_gpu_sgd_rule gpu_rule(const cpu::SgdStep& step) noexcept;

extern template class RuleUpdates<ddp_gpu_adam_rule>;
extern template class RuleUpdates<ddp_gpu_sgd_rule>;

}  // namespace ddp::optim
