// SPDX-License-Identifier: Apache-2.0
// Seam 2 for ranks that have GPUs. It contains the transport of host memory: that has the tensors in host memory, and the
// stamps and headers of those on GPUs, whose data NCCL exchanges (README.md, "Two ways"). So nothing above it asks where
// tensors are. NCCL is made when it is first asked for; all channels share it.
//
// Promises: as the transport of host memory where no tensor is on a GPU, at the cost of one more call.
// Threads: as Transport. Tested by gpu_host/group_test.cpp and gpu_host/pass_test.cpp.
#pragma once

#include <functional>
#include <memory>

#include "exchange/transport.hpp"
#include "nccl/shared_engine.hpp"

namespace ddp::nccl {

class GpuTransport final : public collective::Transport {
 public:
  /// `context`: of this channel.
  GpuTransport(const collective::TransportContext& context, std::unique_ptr<collective::Transport> host,
               std::shared_ptr<SharedEngine> shared);

  [[nodiscard]] ddp_backend backend() const noexcept override { return host_->backend(); }
  [[nodiscard]] bool pollable() const noexcept override { return host_->pollable(); }
  [[nodiscard]] std::shared_ptr<collective::Arena> arena() const noexcept override { return host_->arena(); }
  [[nodiscard]] bool can(collective::Collective kind, bool on_gpu) const noexcept override {
    return on_gpu ? kind != collective::Collective::kFusedStep : host_->can(kind, false);
  }
  [[nodiscard]] std::unique_ptr<collective::Transport> open_channel(int32_t number) override;
  [[nodiscard]] std::unique_ptr<collective::BucketOperation> prepare(const collective::ExchangeSpec& spec) override;

  void meet(const collective::Stamp& stamp) override { host_->meet(stamp); }
  void reduce(const Tensor& tensor, ddp_reduce op, int32_t root, void* stream) override;
  void all_gather(const Tensor& input, const Tensor& output, void* stream) override;
  void reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op, void* stream) override;
  void broadcast(const Tensor& tensor, int32_t root, void* stream) override;
  [[nodiscard]] const std::shared_ptr<collective::GpuSide>& gpu() const noexcept override { return gpu_; }

  [[nodiscard]] int64_t sent_bytes() const noexcept override { return host_->sent_bytes(); }
  [[nodiscard]] std::unique_ptr<messages::Streams> make_streams() override { return host_->make_streams(); }
  [[nodiscard]] int64_t place_of(const void* data, int64_t bytes) const noexcept override {
    return host_->place_of(data, bytes);
  }
  [[nodiscard]] std::shared_ptr<std::byte> reach(int32_t rank, int64_t place) const noexcept override {
    return host_->reach(rank, place);
  }
  [[nodiscard]] std::vector<collective::KeepRound> keep_rounds() const override { return host_->keep_rounds(); }
  void keep(const collective::KeepRound& round, const Tensor& sent, const Tensor& received) override {
    host_->keep(round, sent, received);
  }
  void shutdown() noexcept override { host_->shutdown(); }
  void wake() noexcept override { host_->wake(); }

 private:
  template <class Body>
  void run(const collective::Stamp& stamp, void* stream, const Body& body);

  const collective::TransportContext context_;
  const std::unique_ptr<collective::Transport> host_;
  const std::shared_ptr<SharedEngine> shared_;
  const std::shared_ptr<collective::GpuSide> gpu_;  // the same
};

/// Around the transport of host memory of the first channel. The rest as SharedEngine.
[[nodiscard]] std::unique_ptr<collective::Transport> make_transport(const collective::TransportContext& context,
                                                                    std::unique_ptr<collective::Transport> host,
                                                                    std::shared_ptr<gpu::OwnGpu> own,
                                                                    std::function<void()> require);

}  // namespace ddp::nccl
