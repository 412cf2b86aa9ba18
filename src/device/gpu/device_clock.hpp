// SPDX-License-Identifier: Apache-2.0
// Maps the clock of a GPU to the host's. They may run at different speeds, so the latest pair of times counts. Pure. One
// thread. Tested by unit/device/device_clock_test.cpp.
#pragma once

#include <cstdint>

namespace ddp::gpu {

class DeviceClock {
 public:
  /// The device's time 0 was between these two moments of the host.
  void begin(int64_t not_before_ns, int64_t not_after_ns) noexcept {
    shift_ns_ = not_before_ns + (not_after_ns - not_before_ns) / 2;
  }
  /// So was this moment of the device: its work was enqueued not before, and was known to be done not after.
  void learn(int64_t device_ns, int64_t not_before_ns, int64_t not_after_ns) noexcept {
    if (device_ns + shift_ns_ < not_before_ns)
      shift_ns_ = not_before_ns - device_ns;
    else if (device_ns + shift_ns_ > not_after_ns)
      shift_ns_ = not_after_ns - device_ns;
  }
  [[nodiscard]] int64_t host_ns(int64_t device_ns) const noexcept { return device_ns + shift_ns_; }

 private:
  int64_t shift_ns_ = 0;
};

}  // namespace ddp::gpu
