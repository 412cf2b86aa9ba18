#include "comm/hierarchy/transport.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "comm/gathered.hpp"
#include "comm/hierarchy/bucket.hpp"
#include "comm/rail/address.hpp"
#include "comm/rail/module.hpp"
#include "comm/rail/transport.hpp"

namespace ddp::hierarchy {
namespace {

Stamp stamp_of(Collective kind, const Tensor& tensor, ddp_reduce op = DDP_SUM, int32_t root = 0) noexcept {
  Stamp stamp;
  stamp.kind = kind;
  stamp.dtype = tensor.dtype;
  stamp.op = op;
  stamp.root = root;
  stamp.count = tensor.count;
  return stamp;
}

// What travels flat is not for every step, and ranks of one host should not talk through sockets to all others.
ChainOptions along_the_chain(ChainOptions options) noexcept {
  options.route = Route::kChain;
  options.counts = false;
  return options;
}

class HierarchyTransport final : public Transport {
 public:
  HierarchyTransport(const TransportContext& context, const Layout& layout, HostMemory memory, const ddp_rail_table& table,
                     const std::string& address, const ChainOptions& options)
      : context_(context), exchange_(memory.exchange), host_(context, layout, std::move(memory.mesh), table, address, options),
        flat_(make_rail_transport(context, table, address, along_the_chain(options))) {}

  [[nodiscard]] ddp_backend backend() const noexcept override { return DDP_BACKEND_GLOO; }
  [[nodiscard]] bool pollable() const noexcept override { return false; }
  [[nodiscard]] std::shared_ptr<Arena> arena() const noexcept override { return host_.arena(); }

  [[nodiscard]] std::unique_ptr<BucketOperation> prepare(const BucketSpec& spec) override {
    return std::make_unique<Bucket>(host_, spec, Deadline::in_ms(context_.options.timeout_ms));
  }

  [[nodiscard]] std::unique_ptr<BucketOperation> prepare_scatter(const BucketSpec&, const Slices&, SliceWork*) override { return nullptr; }
  [[nodiscard]] std::unique_ptr<BucketOperation> prepare_publish(const PublishSpec& spec) override {
    return make_gathered_publication(*this, context_.control->rank(), spec);
  }

  void barrier() override { meet_all(Stamp{}); }

  void all_reduce(const Tensor& tensor, ddp_reduce op, Rounding rounding) override {
    const int64_t step = kExchangeBytes / dtype_size(tensor.dtype);
    Stamp stamp = stamp_of(Collective::kAllReduce, tensor, op);
    if (rounding == Rounding::kEveryStep) stamp.wire = tensor.dtype;
    int64_t done = 0;
    do {  // once for an empty tensor too: all ranks must have made the same call
      const int64_t count = std::min(step, tensor.count - done);
      host_.guarded([&] { reduce_some(stamp, tensor.data + done * dtype_size(tensor.dtype), count); });
      done += count;
    } while (done < tensor.count);
  }

  // The rest travels on one chain over all ranks. Before that all ranks have met, so a different call on another rank is found.
  void all_gather(const Tensor& input, const Tensor& output) override {
    meet_all(stamp_of(Collective::kAllGather, input));
    flat_->all_gather(input, output);
  }
  void reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op) override {
    meet_all(stamp_of(Collective::kReduceScatter, output, op));
    flat_->reduce_scatter(input, output, op);
  }
  void broadcast(const Tensor& tensor, int32_t root) override {
    meet_all(stamp_of(Collective::kBroadcast, tensor, DDP_SUM, root));
    flat_->broadcast(tensor, root);
  }

  [[nodiscard]] int64_t sent_bytes() const noexcept override { return host_.sent_bytes() + flat_->sent_bytes(); }
  void farewell() noexcept override {
    flat_->farewell();  // after it every rank has finished every collective
    host_.farewell();
  }
  void wake() noexcept override {
    host_.wake();
    flat_->wake();
  }

 private:
  void meet_all(Stamp stamp) {
    sign(stamp, context_.control->calls());
    host_.guarded([&] { host_.cross(host_.engine().meet(stamp, 0, [](shm::Slot&) {}), stamp); });
  }

  // The stamp is that of the whole tensor. Memory that only this process sees goes through the exchange buffer.
  void reduce_some(Stamp stamp, std::byte* data, int64_t count) {
    sign(stamp, context_.control->calls());
    shm::Engine& engine = host_.engine();
    const auto bytes = static_cast<size_t>(count * dtype_size(stamp.dtype));
    int64_t offset = count == 0 ? shm::kNotInReach : host_.region().offset_of(data, static_cast<int64_t>(bytes));
    const bool copied = offset == shm::kNotInReach;
    if (copied) offset = host_.region().offset_of(exchange_, kExchangeBytes);
    if (copied && count > 0) std::memcpy(exchange_, data, bytes);
    const uint64_t sequence = engine.meet(stamp, 0, [&](shm::Slot& slot) { slot.offset = offset; });
    HostArray array;
    array.ranks = engine.size();
    array.pieces.push_back(HostArray::Piece{0, count});
    for (int32_t rank = 0; rank < array.ranks; ++rank)
      array.bases.push_back(engine.mesh().base(rank) + engine.slot(rank, sequence).offset);
    cpu::ReduceRule rule{stamp.dtype, stamp.op, host_.world_size()};
    rule.wire = stamp.wire;
    HostContribution mine(rule, std::move(array),
                          host_.slice(count, dtype_size(stamp.dtype)));
    Note note;
    host_.reduce(sequence, stamp, mine, note);
    if (copied && count > 0) std::memcpy(data, exchange_, bytes);
  }

  TransportContext context_;
  std::byte* exchange_;
  Host host_;
  std::unique_ptr<Transport> flat_;  // over all ranks
};

}  // namespace

std::unique_ptr<Transport> make_transport(const TransportContext& context, const Layout& layout, HostMemory memory,
                                          const ddp_rail_table& table, const std::string& address, const ChainOptions& options) {
  return std::make_unique<HierarchyTransport>(context, layout, std::move(memory), table, address, options);
}

std::unique_ptr<Transport> make_transport(const TransportContext& context, const Layout& layout, HostMemory memory) {
  const ddp_rail_table& table = load_gloo_module();
  return make_transport(context, layout, std::move(memory), table, rail_address(*context.control, secure_getenv("DDP_SOCKET_IFNAME")),
                        ChainOptions{});
}

}  // namespace ddp::hierarchy
