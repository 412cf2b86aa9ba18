// SPDX-License-Identifier: Apache-2.0
#include "nccl/transport.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include "control/consensus.hpp"
#include "exchange/transport.hpp"
#include "nccl/bucket.hpp"
#include "nccl/capture_bits.hpp"
#include "nccl/launch_order.hpp"

namespace ddp::nccl {
namespace {

// What ranks are about to do on their GPUs, compared over the host transport first: NCCL itself would wait for ever, or add
// what does not belong together.
/// `order_word`: of Engine; `captured`: into a graph. Collective. Throws DIFFERENT_CALLS on all ranks.
void compare_stamps(collective::Transport& transport, const bootstrap::Control& control, const collective::Stamp& mine,
                    uint64_t order_word, bool captured) {
  const auto size = static_cast<size_t>(control.size());
  if (size == 1) return;
  struct Sent {
    collective::Stamp stamp;
    uint64_t order_word = 0;
    uint64_t captured = 0;
  };
  std::vector<Sent> all(size);
  Sent sent{mine, order_word, captured ? 1u : 0u};
  transport.all_gather(flat_tensor(&sent, DDP_U8, sizeof sent),
                       flat_tensor(all.data(), DDP_U8, static_cast<int64_t>(size * sizeof sent)));
  uint64_t words = 0;
  std::vector<uint64_t> captures(capture_words(control.size()));
  for (size_t rank = 0; rank < size; ++rank) {
    words |= all[rank].order_word;
    captures[rank / 64] |= all[rank].captured << (rank % 64);
    if (!(all[rank].stamp == all[0].stamp))
      throw collective::stamp_mismatch(control, 0, all[0].stamp, static_cast<int32_t>(rank), all[rank].stamp);
  }
  if (const auto unlike = unlike_ranks(captures.data(), control.size()))
    throw capture_mismatch(control, *unlike, mine.describe());
  if (LaunchOrder::differs(words)) throw order_mismatch(mine.describe().c_str());
}

using collective::Collective;

}  // namespace

GpuTransport::GpuTransport(const collective::TransportContext& context, std::unique_ptr<collective::Transport> host,
                           std::shared_ptr<SharedEngine> shared)
    : context_(context), host_(std::move(host)), shared_(std::move(shared)), gpu_(shared_) {}

std::unique_ptr<collective::Transport> GpuTransport::open_channel(int32_t number) {
  return std::make_unique<GpuTransport>(collective::of_channel(context_, number), host_->open_channel(number), shared_);
}

/// A rank that leaves ends NCCL, or what has been enqueued keeps the device.
std::unique_ptr<collective::BucketOperation> GpuTransport::prepare(const collective::ExchangeSpec& spec) {
  if (!spec.on_gpu) return host_->prepare(spec);
  Engine& engine = shared_->engine();
  auto metadata = host_->prepare(metadata_of(spec, engine.size()));
  std::unique_ptr<Operation> made;
  const os::Deadline deadline = os::Deadline::in_ms(context_.options.timeout_ms);
  bootstrap::all_or_none(*context_.control, "GPU memory", deadline, [&] {
    made = std::make_unique<Operation>(engine, std::move(metadata), spec);
    made->prepare_use();
  });
  shared_->or_give_up([&] { made->use_once(); });
  return made;
}

/// The ranks compare their calls before any rank waits inside NCCL; the host waits for no more than that.
template <class Body>
void GpuTransport::run(const collective::Stamp& stamp, void* stream, const Body& body) {
  const Engine* const before = shared_->existing();
  compare_stamps(*host_, *context_.control, stamp, before != nullptr ? before->order_word() : 0,
                 before != nullptr && shared_->is_capturing(stream));
  Engine& engine = shared_->engine();
  shared_->or_give_up([&] { body(engine); });
}

/// All ranks get the result.
void GpuTransport::reduce(const Tensor& tensor, ddp_reduce op, int32_t root, void* stream) {
  if (!tensor.is_on_gpu()) return host_->reduce(tensor, op, root, stream);
  run(collective::stamp_of_reduce(tensor, op, root), stream, [&](Engine& engine) { engine.all_reduce(tensor, op, stream); });
}

void GpuTransport::all_gather(const Tensor& input, const Tensor& output, void* stream) {
  if (!input.is_on_gpu()) return host_->all_gather(input, output, stream);
  run(collective::stamp_of(Collective::kAllGather, input), stream,
      [&](Engine& engine) { engine.all_gather(input, output, stream); });
}

void GpuTransport::reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op, void* stream) {
  if (!input.is_on_gpu()) return host_->reduce_scatter(input, output, op, stream);
  run(collective::stamp_of(Collective::kReduceScatter, output, op), stream,
      [&](Engine& engine) { engine.reduce_scatter(input, output, op, stream); });
}

void GpuTransport::broadcast(const Tensor& tensor, int32_t root, void* stream) {
  if (!tensor.is_on_gpu()) return host_->broadcast(tensor, root, stream);
  run(collective::stamp_of(Collective::kBroadcast, tensor, DDP_SUM, root), stream,
      [&](Engine& engine) { engine.broadcast(tensor, root, stream); });
}

std::unique_ptr<collective::Transport> make_transport(const collective::TransportContext& context,
                                                      std::unique_ptr<collective::Transport> host,
                                                      std::shared_ptr<gpu::OwnGpu> own, std::function<void()> require) {
  auto shared = std::make_shared<SharedEngine>(context, std::move(own), std::move(require));
  return std::make_unique<GpuTransport>(context, std::move(host), std::move(shared));
}

}  // namespace ddp::nccl
