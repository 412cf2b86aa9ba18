// SPDX-License-Identifier: Apache-2.0
// The GPU on which a rank works: opened at the first use, so a program without CUDA tensors never looks for one.
//
// Which: options.device_index, else the rank's number on its host (LOCAL_RANK), or the only GPU that the process sees.
// Threads: any.
// Tested by unit/exchange/own_gpu_test.cpp.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "device/gpu/device.hpp"
#include "device/gpu/given_memory.hpp"
#include "device/gpu/scratch.hpp"
#include "device/gpu/staging.hpp"

namespace ddp::gpu {

class OwnGpu {
 public:
  /// `wanted`: options.device_index; `owner` names the rank.
  OwnGpu(int32_t wanted, int32_t local_rank, std::string owner)
      : wanted_(wanted), local_rank_(local_rank), owner_(std::move(owner)) {}

  /// Throws NOT_SUPPORTED (module, driver or GPU missing), INVALID_ARGUMENT (no GPU of that number).
  [[nodiscard]] const Device& open();
  /// NULL before the first use.
  [[nodiscard]] const Device* opened() const noexcept { return device_.get(); }
  /// Memory for what goes through several calls' hands on that GPU. Throws as open().
  [[nodiscard]] Scratch& scratch();
  /// Host memory for tensors there whose bytes go between hosts. Any thread. Throws as open().
  [[nodiscard]] Staging& staging();
  /// What the group gives out of that GPU's memory. Throws as open().
  [[nodiscard]] GivenMemory& memory();
  /// NULL before the first use.
  [[nodiscard]] GivenMemory* existing_memory() const noexcept { return memory_.get(); }
  /// The rank has another number now.
  void rename(const std::string& owner);
  /// As group::Gpu::bind.
  void bind(Tensor& tensor, const char* what);
  /// As gpu::require_host, in a few nanoseconds for memory that was looked at lately.
  void require_host(const Tensor& tensor, const char* what, const char* instead);

 private:
  const int32_t wanted_;
  const int32_t local_rank_;
  std::string owner_;
  std::mutex opening_;  // guards owner_, and until they are there device_ and staging_
  std::shared_ptr<Device> device_;
  std::shared_ptr<Staging> staging_;
  std::unique_ptr<Scratch> scratch_;
  std::unique_ptr<GivenMemory> memory_;
  std::array<std::atomic<const std::byte*>, 8> seen_{};  // host memory that was looked at
};

}  // namespace ddp::gpu
