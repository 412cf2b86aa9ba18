// SPDX-License-Identifier: Apache-2.0
#include "socket/transport.hpp"

#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "exchange/host_allocator.hpp"
#include "socket/address.hpp"
#include "socket/member.hpp"
#include "socket/message_links.hpp"

namespace ddp::socket {
namespace {

std::vector<int32_t> all_ranks(int32_t size) {
  std::vector<int32_t> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Where all are on one host, each rank counts as one.
collective::RanksOfHosts hosts_of(const bootstrap::Control& control) {
  collective::RanksOfHosts hosts;
  std::map<std::string, size_t> known;
  for (int32_t rank = 0; rank < control.size(); ++rank) {
    const size_t host = known.emplace(control.member(rank).boot_id, hosts.size()).first->second;
    if (host == hosts.size()) hosts.emplace_back();
    hosts[host].push_back(rank);
  }
  if (hosts.size() > 1) return hosts;
  hosts.clear();
  for (int32_t rank = 0; rank < control.size(); ++rank) hosts.push_back({rank});
  return hosts;
}

std::vector<std::string> exchange_offers(const collective::TransportContext& context, const MemberOffer& mine) {
  return context.control->gather("endpoint addresses", mine.bytes(),
                                 os::Deadline::in_ms(context.options.rendezvous_timeout_ms));
}

/// The number of a collective in the group, from 1.
class SequenceNumbers {
 public:
  SequenceNumbers(bootstrap::CallState& calls, int32_t channel) : calls_(calls), channel_(channel) {}
  [[nodiscard]] uint64_t next() noexcept {
    calls_.join_collective(++last_, channel_);
    return last_;
  }

 private:
  bootstrap::CallState& calls_;
  const int32_t channel_;
  uint64_t last_ = 0;
};

/// A bucket that is reduced: to all ranks, or each rank's slice to its owner.
class BucketExchange final : public collective::BucketOperation {
 public:
  BucketExchange(SocketMember& member, SequenceNumbers& numbers, const collective::ExchangeSpec& spec)
      : BucketExchange(member, numbers, spec, contribution(member, spec), owned_by(member, spec)) {}

  void start(const collective::BucketHeader& mine) override {
    header_ = mine;
    mine_->participations().front() = mine.participation;
  }
  [[nodiscard]] collective::Progress advance(int64_t) override {
    throw make_error(DDP_ERROR_INTERNAL, "a bucket between hosts was polled; it is reduced by finish()");
  }
  void finish() override {
    stamp_.sequence = numbers_.next();
    member_.collectives().run(stamp_, *mine_, course_, header_);
    if (!header_.is_void()) mine_->work();
  }
  [[nodiscard]] const collective::BucketHeader& header() const noexcept override { return header_; }
  [[nodiscard]] bool local_done() const noexcept override { return true; }
  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept override {
    mine_->set_address(piece, data);
    return true;
  }
  [[nodiscard]] std::string describe() const override { return way_; }

 private:
  BucketExchange(SocketMember& member, SequenceNumbers& numbers, const collective::ExchangeSpec& spec,
                 std::unique_ptr<SliceInput> mine, const FlatOwnership& owned)
      : member_(member),
        numbers_(numbers),
        mine_(std::move(mine)),
        stamp_(collective::stamp_of(spec.kind(), spec)),
        course_(member.schedule(owned, spec.rule, Phases{spec.collects, spec.gives})) {
    const Algorithm algorithm = member.algorithm_of(course_, stamp_.count, spec.rule, spec.used_words());
    way_ = std::string(algorithm == Algorithm::kInline  ? "in the header over "
                       : algorithm == Algorithm::kShort ? "short exchange over "
                                                        : "direct exchange over ") +
           member.endpoint_name();
    header_.used.reserve(spec.used_words());
  }
  [[nodiscard]] static std::unique_ptr<SliceInput> contribution(const SocketMember& member,
                                                                const collective::ExchangeSpec& spec) {
    static const std::vector<OwnedSpan> nothing;
    const std::vector<OwnedSpan>& own = spec.ownership == nullptr ? nothing : spec.ownership->slice(member.position());
    return std::make_unique<SliceInput>(spec.rule, spec.pieces, own, spec.work);
  }
  /// Without an owner every rank adds up a slice of about the same size.
  [[nodiscard]] static FlatOwnership owned_by(const SocketMember& member, const collective::ExchangeSpec& spec) {
    if (spec.ownership != nullptr) return flat_slices(*spec.ownership, spec.pieces);
    return equal_slices(collective::stamp_of(spec.kind(), spec).count, member.shares().members());
  }

  SocketMember& member_;
  SequenceNumbers& numbers_;
  std::unique_ptr<SliceInput> mine_;
  collective::Stamp stamp_;
  Schedule course_;
  std::string way_;
  collective::BucketHeader header_;
};

/// Values that the owners of slices send to all ranks.
class BucketAllGather final : public collective::BucketOperation {
 public:
  BucketAllGather(SocketMember& member, SequenceNumbers& numbers, const collective::ExchangeSpec& spec)
      : member_(member),
        numbers_(numbers),
        mine_(cpu::ReduceRule{spec.rule.dtype, DDP_SUM, 1}, spec.pieces, spec.ownership->slice(member.position()),
              spec.work),
        stamp_(collective::stamp_of(spec.kind(), spec)),
        course_(member.schedule(flat_slices(*spec.ownership, spec.pieces), mine_.rule(), Phases{false, true})) {
    header_.used.resize(spec.used_words());
    joined_ = header_;
  }

  void start(const collective::BucketHeader& mine) override {
    header_.incomplete = mine.incomplete;
    header_.used = mine.used;
    header_.participation = mine.participation;
    is_done_ = header_.is_void();
  }
  [[nodiscard]] collective::Progress advance(int64_t) override {
    finish();
    return collective::Progress::kDone;
  }
  // The bucket header is the same on all ranks, so that a void one ends it everywhere.
  void finish() override {
    if (is_done_) return;
    is_done_ = true;
    stamp_.sequence = numbers_.next();
    joined_.incomplete = false;
    joined_.used = header_.used;
    mine_.learn(header_);
    member_.collectives().run(stamp_, mine_, course_, joined_);
  }
  [[nodiscard]] bool local_done() const noexcept override { return is_done_; }
  [[nodiscard]] const collective::BucketHeader& header() const noexcept override { return header_; }
  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept override {
    mine_.set_address(piece, data);
    return true;
  }
  [[nodiscard]] std::string describe() const override {
    return std::string("direct exchange over ") + member_.endpoint_name();
  }

 private:
  SocketMember& member_;
  SequenceNumbers& numbers_;
  SliceInput mine_;
  collective::Stamp stamp_;
  Schedule course_;
  collective::BucketHeader header_, joined_;
  bool is_done_ = true;
};

class SocketTransport : public collective::Transport {
 public:
  SocketTransport(const collective::TransportContext& context, const ddp_socket_table& table, const std::string& address,
                  const SocketOptions& options)
      : SocketTransport(context, table, address, options,
                        MemberOffer(context, table, address, all_ranks(context.control->size()))) {}

  SocketTransport(const collective::TransportContext& context, const ddp_socket_table& table, const std::string& address,
                  const SocketOptions& options, const MemberOffer& mine)
      : context_(context),
        table_(table),
        address_(address),
        options_(options),
        size_(context.control->size()),
        hosts_(hosts_of(*context.control)),
        calls_(context.control->calls()),
        numbers_(calls_, context.channel),
        member_(context, mine, exchange_offers(context, mine), options, all_ranks(size_),
                one_rank_each(collective::leaves_by_rank(context.options, size_)), context.options.timeout_ms),
        heap_(context.arena != nullptr ? context.arena : std::make_shared<collective::HostAllocator>()) {}

  [[nodiscard]] ddp_backend backend() const noexcept override { return static_cast<ddp_backend>(table_.backend); }
  [[nodiscard]] bool pollable() const noexcept override { return false; }

  [[nodiscard]] std::shared_ptr<collective::Arena> arena() const noexcept override { return heap_; }

  [[nodiscard]] std::vector<collective::KeepRound> keep_rounds() const override {
    if (size_ == 1) return {};
    return collective::keep_from_rank_to_rank(hosts_, collective::place_of_rank(hosts_, context_.control->rank()));
  }
  void keep(const collective::KeepRound& round, const Tensor& sent, const Tensor& received) override {
    collective::Stamp made;
    made.kind = collective::Collective::kAllGather;
    made.root = -1;
    made = numbered(made);
    const int32_t keeper = collective::keeper_of(hosts_, collective::place_of_rank(hosts_, context_.control->rank()));
    member_.collectives().pass_on(made, keeper, sent, round.received, received);
  }

  [[nodiscard]] bool can(collective::Collective kind, bool) const noexcept override {
    return kind != collective::Collective::kFusedStep;
  }
  // Connections of its own: a large bucket of one model is not in the way of another's header.
  [[nodiscard]] std::unique_ptr<collective::Transport> open_channel(int32_t number) override {
    return std::make_unique<SocketTransport>(collective::of_channel(context_, number), table_, address_, options_);
  }
  [[nodiscard]] std::unique_ptr<collective::BucketOperation> prepare(const collective::ExchangeSpec& spec) override {
    if (!spec.collects) return std::make_unique<BucketAllGather>(member_, numbers_, spec);
    return std::make_unique<BucketExchange>(member_, numbers_, spec);
  }

  void meet(const collective::Stamp& stamp) override { member_.collectives().barrier(numbered(stamp)); }

  // To one rank as to all: from three ranks on, that one's link would have more to carry.
  void reduce(const Tensor& tensor, ddp_reduce op, int32_t root, void*) override {
    const collective::Stamp made = numbered(collective::stamp_of_reduce(tensor, op, root));
    cpu::ReduceRule rule{tensor.dtype, op, size_};
    PieceInput mine(rule, {{tensor.data, tensor.count, false}});
    run(made, mine, equal_slices(tensor.count, size_), Phases{});
  }

  void all_gather(const Tensor& input, const Tensor& output, void*) override {
    const collective::Stamp made = numbered(collective::stamp_of(collective::Collective::kAllGather, input));
    std::byte* const own = output.data + member_.position() * input.bytes();
    if (own != input.data && input.count > 0) std::memmove(own, input.data, static_cast<size_t>(input.bytes()));
    give(made, output, parts_of(input.count, size_));
  }

  void reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op, void*) override {
    const collective::Stamp made = numbered(collective::stamp_of(collective::Collective::kReduceScatter, output, op));
    PartInput mine(cpu::ReduceRule{input.dtype, op, size_}, input.data, output.data, output.count, size_,
                   member_.position());
    run(made, mine, parts_of(output.count, size_), Phases{true, false});
  }

  void broadcast(const Tensor& tensor, int32_t root, void*) override {
    const collective::Stamp made = numbered(collective::stamp_of(collective::Collective::kBroadcast, tensor, DDP_SUM, root));
    give(made, tensor, all_of(tensor.count, root, size_));
  }

  [[nodiscard]] std::unique_ptr<messages::Streams> make_streams() override {
    return std::make_unique<MessageLinks>(context_, table_, address_, std::nullopt);
  }
  [[nodiscard]] int64_t sent_bytes() const noexcept override { return member_.sent_bytes(); }
  void shutdown() noexcept override { member_.leave(); }
  void wake() noexcept override { member_.wake(); }

 private:
  void run(const collective::Stamp& made, ReduceInput& mine, const FlatOwnership& owned, Phases phases) {
    collective::BucketHeader header;
    member_.collectives().run(made, mine, member_.schedule(owned, mine.rule(), phases), header);
  }
  void give(const collective::Stamp& made, const Tensor& tensor, const FlatOwnership& owned) {
    PieceInput mine(cpu::ReduceRule{tensor.dtype, DDP_SUM, 1}, {{tensor.data, tensor.count, false}});
    run(made, mine, owned, Phases{false, true});
  }

  collective::Stamp numbered(collective::Stamp stamp) {
    collective::sign(stamp, calls_, context_.channel);
    stamp.sequence = numbers_.next();
    return stamp;
  }

  collective::TransportContext context_;
  const ddp_socket_table& table_;
  std::string address_;
  SocketOptions options_;
  int32_t size_;
  const collective::RanksOfHosts hosts_;
  bootstrap::CallState& calls_;
  SequenceNumbers numbers_;
  SocketMember member_;
  const std::shared_ptr<collective::Arena> heap_;
};

}  // namespace

std::unique_ptr<collective::Transport> make_socket_transport(const collective::TransportContext& context,
                                                             const ddp_socket_table& table, const std::string& address,
                                                             const SocketOptions& options) {
  return std::make_unique<SocketTransport>(context, table, address, options);
}

std::unique_ptr<collective::Transport> make_socket_transport(const collective::TransportContext& context) {
  return make_socket_transport(context, load_module(), socket_address(*context.control, secure_getenv("DDP_SOCKET_IFNAME")),
                               SocketOptions{});
}

}  // namespace ddp::socket
