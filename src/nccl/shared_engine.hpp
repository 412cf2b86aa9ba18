// SPDX-License-Identifier: Apache-2.0
// What the channels of a group share on GPUs: this rank's own GPU, and one engine between those of all ranks, which is made
// when it is first asked for. Gradients on GPUs are reduced by one pass at a time: the communication stream has one order.
// Threads: as GpuSide; existing() from any.
// Tested by gpu_host/group_test.cpp, gpu_host/failure_test.cpp and gpu_host/sync_failure_test.cpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/attempt.hpp"
#include "device/gpu/own_gpu.hpp"
#include "exchange/gpu_side.hpp"
#include "exchange/transport.hpp"
#include "nccl/engine.hpp"

namespace ddp::nccl {

class SharedEngine final : public collective::GpuSide {
 public:
  /// `own`: this rank's GPU, which outlives recoveries. `require` throws, on all ranks alike, if the group may not connect
  /// GPUs. Of the context, what all channels have in common.
  SharedEngine(const collective::TransportContext& context, std::shared_ptr<gpu::OwnGpu> own, std::function<void()> require);
  ~SharedEngine() override;

  /// Collective the first time. Throws as connect().
  [[nodiscard]] Engine& engine();
  /// NULL before the first use.
  [[nodiscard]] Engine* existing() const noexcept { return published_.load(); }

  /// The other ranks wait inside NCCL for what comes of the body, so an error in it that they do not share breaks the group.
  template <class Body>
  auto or_give_up(const Body& body) {
    return on_error(body, [this](const Error& error) { give_up(error); });
  }

  void connect() override { static_cast<void>(engine()); }
  [[nodiscard]] bool is_connected() const noexcept override { return existing() != nullptr; }
  void check_reduction(const char* function, const Tensor& tensor, ddp_reduce op) const override {
    if (tensor.is_on_gpu()) nccl::check_reduction(function, tensor, op, context_.options.reproducible != 0);
  }
  [[nodiscard]] bool is_ordered_by_stream(const Tensor& tensor) const noexcept override { return tensor.is_on_gpu(); }
  [[nodiscard]] void* stream() override { return engine().stream(); }
  void order_after(void* stream) override { engine().order_after(stream); }
  void order_before(void* stream) override { engine().order_before(stream); }
  [[nodiscard]] void* fork() override { return engine().fork(); }
  void join() override { engine().join(); }
  [[nodiscard]] bool is_capturing(void* stream) const override { return own_->open().is_capturing(stream); }
  void settle(const char* function) override;
  [[nodiscard]] const uint32_t* stop_on(void* stream, collective::StopRead read) override;
  void open_pass() override;
  void close_pass() noexcept override { pass_is_open_.store(false); }
  [[nodiscard]] void* alloc(int64_t bytes) override { return engine().alloc(bytes); }
  [[nodiscard]] bool free(void* data) noexcept override;
  [[nodiscard]] bool gave(const std::byte* data, int64_t bytes) const noexcept override;
  void close(bool in_order, Leaves what) noexcept override;
  void end() noexcept override;

 private:
  void give_up(const Error& error) noexcept;

  const collective::TransportContext context_;
  const std::shared_ptr<gpu::OwnGpu> own_;
  const std::function<void()> require_;
  std::unique_ptr<Engine> engine_;
  std::atomic<Engine*> published_{nullptr};  // for those who must not wait
  std::unique_ptr<gpu::Event> settled_;      // NULL: no wait yet
  std::atomic<bool> pass_is_open_{false};
  const Error gave_up_;  // made in time, for when there is no memory
};

}  // namespace ddp::nccl
