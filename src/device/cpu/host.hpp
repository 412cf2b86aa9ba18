// SPDX-License-Identifier: Apache-2.0
// Host memory behind the seam of device/device.hpp: every call is one of the loops of this folder, and done when it returns.
// Tested by unit/device/host_test.cpp.
#pragma once

#include "device/device.hpp"

namespace ddp::cpu {

class Host final : public device::Device {
 public:
  [[nodiscard]] bool is_immediate() const noexcept override { return true; }
  void synchronize() const override {}
  void synchronize(void*) const override {}
  [[nodiscard]] bool is_capturing(void*) const override { return false; }
  void refuse_capture(void*, const char*, const char*) const override {}

  void within(const std::function<void()>& body) const override { body(); }
  [[nodiscard]] device::Memory allocate(int64_t bytes, const char* what) const override;
  void free(void*) const noexcept override {}
  void copy(void* to, const void* from, int64_t bytes, void* stream) const override;

  void apply(const device::Operation& operation, const device::Span* spans, int64_t count, ddp_dtype from_dtype,
             ddp_dtype to_dtype, const device::Order& order) const override;
  void follow(const device::Span* spans, int64_t count, const double* decays, int32_t decay_count, ddp_dtype dtype,
              const device::Order& order) const override;
  /// XXH3.
  void hash(const device::Span* spans, int64_t count, void* scratch, uint64_t* out, void* stream) const override;
  void update(const device::UpdateSpan<device::AdamRule>& updates, const device::GradShape& shape,
              const device::Order& order) const override;
  void update(const device::UpdateSpan<device::SgdRule>& updates, const device::GradShape& shape,
              const device::Order& order) const override;
};

}  // namespace ddp::cpu
