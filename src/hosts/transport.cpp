// SPDX-License-Identifier: Apache-2.0
#include "hosts/transport.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "hosts/bucket.hpp"
#include "shm/mailboxes.hpp"
#include "shm/reach.hpp"
#include "socket/address.hpp"
#include "socket/message_links.hpp"

namespace ddp::hierarchy {
namespace {

// Streams of a rank on one of several hosts: mailboxes to the ranks of its own host, connections to the others. Its threads
// sleep in one place.
class HostStreams final : public messages::Streams {
 public:
  /// `here`: the ranks of this host, in the mesh's order. `address`: where this rank listens for those of other hosts.
  HostStreams(const collective::TransportContext& context, const shm::Mesh& mesh, const std::vector<int32_t>& here,
              const ddp_socket_table& table, const std::string& address)
      : mailboxes_(mesh, here, context.control->size()),
        links_(context, table, address, mailboxes_.bell()),
        size_(context.control->size()) {}

  void open(int32_t peer) override { to(peer).open(peer); }
  [[nodiscard]] size_t write(int32_t peer, messages::Bytes first, messages::Bytes second) override {
    return to(peer).write(peer, first, second);
  }
  [[nodiscard]] size_t read(int32_t peer, std::byte* data, size_t count) override {
    return to(peer).read(peer, data, count);
  }
  [[nodiscard]] const std::vector<int32_t>& sources() override {
    const std::vector<int32_t>&here = mailboxes_.sources(), &others = links_.sources();
    if (here.size() + others.size() != sources_.size()) {
      sources_ = here;
      sources_.insert(sources_.end(), others.begin(), others.end());
    }
    return sources_;
  }
  [[nodiscard]] bool has_ended(int32_t peer) override { return to(peer).has_ended(peer); }
  [[nodiscard]] bool is_on_its_way(int32_t peer) override { return to(peer).is_on_its_way(peer); }
  [[nodiscard]] bool is_out_of_reach(int32_t peer) override { return to(peer).is_out_of_reach(peer); }
  [[nodiscard]] const messages::Bell& bell() const noexcept override { return mailboxes_.bell(); }
  [[nodiscard]] bool is_quick() const noexcept override { return false; }
  void open_all(os::Deadline deadline) override {
    std::vector<int32_t> others;
    for (int32_t rank = 0; rank < size_; ++rank)
      if (!mailboxes_.reaches(rank)) others.push_back(rank);
    links_.open_all(deadline, others);
  }
  void finish() noexcept override {
    mailboxes_.finish();
    links_.finish();
  }

 private:
  [[nodiscard]] messages::Streams& to(int32_t peer) noexcept {
    if (mailboxes_.reaches(peer)) return mailboxes_;
    return links_;
  }

  shm::Mailboxes mailboxes_;
  socket::MessageLinks links_;
  const int32_t size_;
  std::vector<int32_t> sources_;
};

class HierarchyTransport final : public collective::Transport {
 public:
  HierarchyTransport(const collective::TransportContext& context, const Layout& layout, const Carrier& carrier,
                     HostMemory memory)
      : context_(context),
        carrier_(carrier),
        exchange_(memory.exchange),
        host_(context, layout, std::move(memory), carrier) {}

  [[nodiscard]] ddp_backend backend() const noexcept override { return static_cast<ddp_backend>(carrier_.table.backend); }
  [[nodiscard]] bool pollable() const noexcept override { return false; }
  [[nodiscard]] std::shared_ptr<collective::Arena> arena() const noexcept override { return host_.arena(); }

  [[nodiscard]] int64_t place_of(const void* data, int64_t bytes) const noexcept override {
    return shm::place_in(host_.mesh(), data, bytes);
  }
  /// Of ranks of this host.
  [[nodiscard]] std::shared_ptr<std::byte> reach(int32_t rank, int64_t place) const noexcept override {
    const std::vector<int32_t>& here = host_.layout().local_ranks();
    const auto found = std::find(here.begin(), here.end(), rank);
    return found == here.end() ? nullptr : shm::reach(host_.mesh(), static_cast<int32_t>(found - here.begin()), place);
  }

  [[nodiscard]] std::vector<collective::KeepRound> keep_rounds() const override {
    const Layout& layout = host_.layout();
    if (layout.host_count() == 1) return {};
    return collective::keep_over_rails(layout.hosts, {layout.host, layout.local}, layout.rails);
  }
  void keep(const collective::KeepRound&, const Tensor& sent, const Tensor& received) override {
    collective::Stamp stamp;
    stamp.kind = collective::Collective::kAllGather;
    stamp.root = -1;
    collective::sign(stamp, context_.control->calls(), context_.channel);
    host_.or_break([&] {
      const uint64_t sequence = host_.engine().meet(stamp, 0, [](shm::Slot&) {});
      host_.cross(sequence, stamp);
      if (host_.layout().owns_rail()) host_.pass_on(sequence, stamp, sent, received);
    });
  }

  [[nodiscard]] bool can(collective::Collective kind, bool) const noexcept override {
    return kind != collective::Collective::kFusedStep;
  }
  [[nodiscard]] std::unique_ptr<collective::Transport> open_channel(int32_t number) override {
    const collective::TransportContext context = collective::of_channel(context_, number);
    const os::Deadline deadline = os::Deadline::in_ms(context.options.rendezvous_timeout_ms);
    return make_transport(context, host_.layout(), carrier_,
                          add_channel(context, host_.layout(), carrier_, host_.engine().mesh(), deadline));
  }
  [[nodiscard]] std::unique_ptr<collective::BucketOperation> prepare(const collective::ExchangeSpec& spec) override {
    return std::make_unique<Bucket>(host_, spec, limit());
  }

  void meet(const collective::Stamp& stamp) override { meet_all(stamp); }

  void reduce(const Tensor& tensor, ddp_reduce op, int32_t root, void*) override {
    const int64_t step = kExchangeBytes / dtype_size(tensor.dtype);
    const collective::Stamp stamp = collective::stamp_of_reduce(tensor, op, root);
    int64_t done = 0;
    do {  // once for an empty tensor too: all ranks must have made the same call
      const int64_t count = std::min(step, tensor.count - done);
      host_.or_break([&] { reduce_some(stamp, tensor.data + done * dtype_size(tensor.dtype), count); });
      done += count;
    } while (done < tensor.count);
  }

  void all_gather(const Tensor& input, const Tensor& output, void*) override {
    const int64_t size = dtype_size(input.dtype);
    each_window(input.count, size, [&](int64_t done, int64_t part) {
      const int64_t rank = context_.control->rank(), ranks = host_.world_size();
      copy(exchange_ + rank * part * size, input.data + done * size, part * size);
      exchange_parts(collective::stamp_of(collective::Collective::kAllGather, input), part,
                     cpu::ReduceRule{input.dtype, DDP_SUM, 1}, socket::Phases{false, true});
      for (int64_t r = 0; r < ranks; ++r)
        copy(output.data + (r * input.count + done) * size, exchange_ + r * part * size, part * size);
    });
  }

  void reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op, void*) override {
    const int64_t size = dtype_size(input.dtype);
    const int64_t rank = context_.control->rank(), ranks = host_.world_size();
    each_window(output.count, size, [&](int64_t done, int64_t part) {
      for (int64_t r = 0; r < ranks; ++r)
        copy(exchange_ + r * part * size, input.data + (r * output.count + done) * size, part * size);
      exchange_parts(collective::stamp_of(collective::Collective::kReduceScatter, output, op), part,
                     cpu::ReduceRule{input.dtype, op, host_.world_size()}, socket::Phases{true, false});
      copy(output.data + done * size, exchange_ + rank * part * size, part * size);
    });
  }

  void broadcast(const Tensor& tensor, int32_t root, void*) override {
    const int64_t size = dtype_size(tensor.dtype), most = kExchangeBytes / size;
    int64_t done = 0;
    do {
      const int64_t count = std::min(most, tensor.count - done);
      if (context_.control->rank() == root) copy(exchange_, tensor.data + done * size, count * size);
      const collective::Stamp stamp = collective::stamp_of(collective::Collective::kBroadcast, tensor, DDP_SUM, root);
      exchange_some(stamp, count, cpu::ReduceRule{tensor.dtype, DDP_SUM, 1}, socket::all_of(count, root, host_.world_size()),
                    socket::Phases{false, true});
      copy(tensor.data + done * size, exchange_, count * size);
      done += count;
    } while (done < tensor.count);
  }

  [[nodiscard]] std::unique_ptr<messages::Streams> make_streams() override {
    return std::make_unique<HostStreams>(context_, host_.mesh(), host_.layout().local_ranks(), carrier_.table,
                                         carrier_.address);
  }
  [[nodiscard]] int64_t sent_bytes() const noexcept override { return host_.sent_bytes(); }
  void shutdown() noexcept override { host_.shutdown(); }
  void wake() noexcept override { host_.wake(); }

 private:
  void meet_all(collective::Stamp stamp) {
    collective::sign(stamp, context_.control->calls(), context_.channel);
    host_.or_break([&] { host_.cross(host_.engine().meet(stamp, 0, [](shm::Slot&) {}), stamp); });
  }

  [[nodiscard]] os::Deadline limit() const noexcept { return os::Deadline::in_ms(context_.options.timeout_ms); }
  static void copy(std::byte* to, const std::byte* from, int64_t bytes) noexcept {
    if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  /// fn(first element, elements) for as much of each rank's part as fits into the exchange memory; once for an empty part
  /// too.
  template <class Fn>
  void each_window(int64_t count, int64_t size, const Fn& fn) {
    const int64_t most = std::max<int64_t>(1, kExchangeBytes / (size * host_.world_size()));
    int64_t done = 0;
    do {
      const int64_t part = std::min(most, count - done);
      fn(done, part);
      done += part;
    } while (done < count);
  }

  /// One window in which rank r owns part r.
  void exchange_parts(const collective::Stamp& stamp, int64_t part, const cpu::ReduceRule& rule, socket::Phases phases) {
    exchange_some(stamp, part * host_.world_size(), rule, socket::parts_of(part, host_.world_size()), phases);
  }

  /// `count` elements in the exchange memory of each rank. The stamp is that of the whole tensor.
  void exchange_some(collective::Stamp stamp, int64_t count, const cpu::ReduceRule& rule,
                     const socket::FlatOwnership& by_rank, socket::Phases phases) {
    collective::sign(stamp, context_.control->calls(), context_.channel);
    host_.or_break([&] {
      const Crossing crossing = host_.exchange(by_rank, count, rule, 0, phases);
      const int64_t offset = host_.region().offset_of(exchange_, kExchangeBytes);
      const uint64_t sequence = host_.engine().meet(stamp, 0, [&](shm::Slot& slot) { slot.offset = offset; });
      HostReduceInput mine(rule, array_of(sequence, count), host_.layout().map, host_.layout().local_ranks());
      mine.set_owned(crossing.owned, !phases.give);
      collective::BucketHeader header;
      host_.run(sequence, stamp, mine, crossing, header);
    });
  }

  /// The announced positions of the local ranks' elements.
  [[nodiscard]] HostArray array_of(uint64_t sequence, int64_t count) {
    shm::Engine& engine = host_.engine();
    HostArray array;
    array.ranks = engine.size();
    array.pieces.push_back(HostArray::Piece{0, count});
    for (int32_t rank = 0; rank < array.ranks; ++rank)
      array.bases.push_back(engine.mesh().base(rank) + engine.slot(rank, sequence).offset);
    return array;
  }

  // The stamp is that of the whole tensor. Memory that only this process sees goes through the exchange buffer.
  void reduce_some(collective::Stamp stamp, std::byte* data, int64_t count) {
    collective::sign(stamp, context_.control->calls(), context_.channel);
    const int64_t bytes = count * dtype_size(stamp.dtype);
    int64_t offset = count == 0 ? shm::kNotInReach : host_.region().whole_place_of(data, bytes);
    const bool copied = offset == shm::kNotInReach;
    if (copied) offset = host_.region().offset_of(exchange_, kExchangeBytes);
    if (copied) copy(exchange_, data, bytes);
    const uint64_t sequence = host_.engine().meet(stamp, 0, [&](shm::Slot& slot) { slot.offset = offset; });
    cpu::ReduceRule rule{stamp.dtype, stamp.op, host_.world_size()};
    rule.wire = stamp.wire;
    HostReduceInput mine(rule, array_of(sequence, count), host_.layout().map, host_.layout().local_ranks());
    collective::BucketHeader header;
    host_.run(sequence, stamp, mine, host_.all_reduce(count, rule, 0), header);
    if (copied) copy(data, exchange_, bytes);
  }

  collective::TransportContext context_;
  const Carrier carrier_;
  std::byte* exchange_;
  Host host_;
};

}  // namespace

Carrier open_carrier(const collective::TransportContext& context) {
  return {socket::load_module(), socket::socket_address(*context.control, secure_getenv("DDP_SOCKET_IFNAME")),
          socket::SocketOptions{}};
}

std::unique_ptr<collective::Transport> make_transport(const collective::TransportContext& context, const Layout& layout,
                                                      const Carrier& carrier, HostMemory memory) {
  return std::make_unique<HierarchyTransport>(context, layout, carrier, std::move(memory));
}

}  // namespace ddp::hierarchy
