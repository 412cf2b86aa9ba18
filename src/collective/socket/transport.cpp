#include "collective/socket/transport.hpp"

#include <cstring>
#include <numeric>
#include <vector>

#include "collective/host_allocator.hpp"
#include "collective/socket/address.hpp"
#include "collective/socket/member.hpp"
#include "collective/socket/module.hpp"

namespace ddp::socket {
namespace {

std::vector<int32_t> all_ranks(int32_t size) {
  std::vector<int32_t> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// The number of a collective in the group, from 1.
class RailNumbers {
 public:
  RailNumbers(bootstrap::CallState& calls, int32_t channel) : calls_(calls), channel_(channel) {}
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
class RailBucket final : public collective::BucketOperation {
 public:
  RailBucket(SocketMember& member, RailNumbers& numbers, const collective::ExchangeSpec& spec)
      : RailBucket(member, numbers, spec, contribution(member, spec), owned_by(member, spec)) {}

  void start(const collective::BucketHeader& mine) override {
    note_ = mine;
    mine_->participations().front() = mine.participation;
    stamp_.sequence = numbers_.next();
  }
  [[nodiscard]] collective::Progress advance(int64_t) override {
    throw make_error(DDP_ERROR_INTERNAL, "a bucket between hosts was polled; it is reduced by finish()");
  }
  void finish() override {
    member_.collectives().run(stamp_, *mine_, course_, note_);
    if (!note_.is_void()) mine_->work();
  }
  [[nodiscard]] const collective::BucketHeader& note() const noexcept override { return note_; }
  [[nodiscard]] bool local_done() const noexcept override { return true; }
  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept override {
    mine_->set_address(piece, data);
    return true;
  }
  [[nodiscard]] std::string describe() const override { return way_; }

 private:
  RailBucket(SocketMember& member, RailNumbers& numbers, const collective::ExchangeSpec& spec,
             std::unique_ptr<SliceContribution> mine, const FlatOwnership& owned)
      : member_(member),
        numbers_(numbers),
        mine_(std::move(mine)),
        stamp_(collective::stamp_of(spec.kind(), spec)),
        course_(member.course(owned, spec.rule, Phases{spec.collects, spec.gives})) {
    const Way way = member.way_of(course_, stamp_.count, spec.rule, spec.used_words());
    way_ = std::string(way == Way::kInline ? "in the header over " : "direct exchange over ") + member.endpoint_name();
    note_.used.reserve(spec.used_words());
  }
  [[nodiscard]] static std::unique_ptr<SliceContribution> contribution(const SocketMember& member,
                                                                       const collective::ExchangeSpec& spec) {
    static const std::vector<OwnedSpan> kNone;
    const std::vector<OwnedSpan>& own = spec.ownership == nullptr ? kNone : spec.ownership->slice(member.position());
    return std::make_unique<SliceContribution>(spec.rule, spec.pieces, own, spec.work);
  }
  /// Without an owner every rank adds up a slice of about the same size.
  [[nodiscard]] static FlatOwnership owned_by(const SocketMember& member, const collective::ExchangeSpec& spec) {
    if (spec.ownership != nullptr) return flat_slices(*spec.ownership, spec.pieces);
    return equal_slices(collective::stamp_of(spec.kind(), spec).count, member.shares().members());
  }

  SocketMember& member_;
  RailNumbers& numbers_;
  std::unique_ptr<SliceContribution> mine_;
  collective::Stamp stamp_;
  Course course_;
  std::string way_;
  collective::BucketHeader note_;
};

/// Values on their way from the owners of slices to all ranks.
class RailPublication final : public collective::BucketOperation {
 public:
  RailPublication(SocketMember& member, RailNumbers& numbers, const collective::ExchangeSpec& spec)
      : member_(member),
        numbers_(numbers),
        mine_(cpu::ReduceRule{spec.rule.dtype, DDP_SUM, 1}, spec.pieces, spec.ownership->slice(member.position()),
              spec.work),
        stamp_(collective::stamp_of(spec.kind(), spec)),
        course_(member.course(flat_slices(*spec.ownership, spec.pieces), mine_.rule(), Phases{false, true})) {
    note_.used.resize(spec.used_words());
    joined_ = note_;
  }

  void start(const collective::BucketHeader& mine) override {
    note_.incomplete = mine.incomplete;
    note_.used = mine.used;
    note_.participation = mine.participation;
    is_done_ = note_.is_void();
    if (!is_done_) stamp_.sequence = numbers_.next();
  }
  [[nodiscard]] collective::Progress advance(int64_t) override {
    finish();
    return collective::Progress::kDone;
  }
  // The bucket header is the same on all ranks, so that a void one ends it everywhere.
  void finish() override {
    if (is_done_) return;
    is_done_ = true;
    joined_.incomplete = false;
    joined_.used = note_.used;
    mine_.learn(note_);
    member_.collectives().run(stamp_, mine_, course_, joined_);
  }
  [[nodiscard]] bool local_done() const noexcept override { return is_done_; }
  [[nodiscard]] const collective::BucketHeader& note() const noexcept override { return note_; }
  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept override {
    mine_.set_address(piece, data);
    return true;
  }
  [[nodiscard]] std::string describe() const override {
    return std::string("direct exchange over ") + member_.endpoint_name();
  }

 private:
  SocketMember& member_;
  RailNumbers& numbers_;
  SliceContribution mine_;
  collective::Stamp stamp_;
  Course course_;
  collective::BucketHeader note_, joined_;
  bool is_done_ = true;
};

class RailTransport : public collective::Transport {
 public:
  RailTransport(const collective::TransportContext& context, const ddp_socket_table& table, const std::string& address,
                const SocketOptions& options)
      : context_(context),
        table_(table),
        address_(address),
        options_(options),
        size_(context.control->size()),
        calls_(context.control->calls()),
        numbers_(calls_, context.channel),
        member_(context, table, address, options, all_ranks(size_), one_rank_each(size_), context.options.timeout_ms) {}

  [[nodiscard]] ddp_backend backend() const noexcept override { return DDP_BACKEND_GLOO; }
  [[nodiscard]] bool pollable() const noexcept override { return false; }

  [[nodiscard]] std::shared_ptr<collective::Arena> arena() const noexcept override { return heap_; }

  [[nodiscard]] bool can(collective::Collective kind) const noexcept override {
    return kind != collective::Collective::kFusedStep;
  }
  // Connections of its own: a large bucket of one model is not in the way of another's header.
  [[nodiscard]] std::unique_ptr<collective::Transport> open_channel(int32_t number) override {
    return std::make_unique<RailTransport>(collective::of_channel(context_, number), table_, address_, options_);
  }
  [[nodiscard]] std::unique_ptr<collective::BucketOperation> prepare(const collective::ExchangeSpec& spec) override {
    if (!spec.collects) return std::make_unique<RailPublication>(member_, numbers_, spec);
    return std::make_unique<RailBucket>(member_, numbers_, spec);
  }

  void barrier() override { member_.collectives().barrier(stamp(collective::Collective::kBarrier, DDP_U8, 0)); }

  void all_reduce(const Tensor& tensor, ddp_reduce op) override {
    collective::Stamp made = stamp(collective::Collective::kAllReduce, tensor.dtype, tensor.count);
    made.op = op;
    cpu::ReduceRule rule{tensor.dtype, op, size_};
    PieceContribution mine(rule, {{tensor.data, tensor.count, false}});
    run(made, mine, equal_slices(tensor.count, size_), Phases{});
  }

  void all_gather(const Tensor& input, const Tensor& output) override {
    const collective::Stamp made = stamp(collective::Collective::kAllGather, input.dtype, input.count);
    std::byte* const own = output.data + member_.position() * input.bytes();
    if (own != input.data && input.count > 0) std::memmove(own, input.data, static_cast<size_t>(input.bytes()));
    give(made, output, parts_of(input.count, size_));
  }

  void reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op) override {
    collective::Stamp made = stamp(collective::Collective::kReduceScatter, output.dtype, output.count);
    made.op = op;
    PartContribution mine(cpu::ReduceRule{input.dtype, op, size_}, input.data, output.data, output.count, size_,
                          member_.position());
    run(made, mine, parts_of(output.count, size_), Phases{true, false});
  }

  void broadcast(const Tensor& tensor, int32_t root) override {
    collective::Stamp made = stamp(collective::Collective::kBroadcast, tensor.dtype, tensor.count);
    made.root = root;
    give(made, tensor, all_of(tensor.count, root, size_));
  }

  [[nodiscard]] int64_t sent_bytes() const noexcept override { return member_.sent_bytes(); }
  void shutdown() noexcept override { member_.leave(); }
  void wake() noexcept override { member_.wake(); }

 private:
  void run(const collective::Stamp& made, ReduceInput& mine, const FlatOwnership& owned, Phases phases) {
    collective::BucketHeader note;
    member_.collectives().run(made, mine, member_.course(owned, mine.rule(), phases), note);
  }
  void give(const collective::Stamp& made, const Tensor& tensor, const FlatOwnership& owned) {
    PieceContribution mine(cpu::ReduceRule{tensor.dtype, DDP_SUM, 1}, {{tensor.data, tensor.count, false}});
    run(made, mine, owned, Phases{false, true});
  }

  collective::Stamp stamp(collective::Collective kind, ddp_dtype dtype, int64_t count) {
    collective::Stamp made;
    made.kind = kind;
    made.dtype = dtype;
    made.count = count;
    collective::sign(made, calls_);
    made.sequence = numbers_.next();
    return made;
  }

  collective::TransportContext context_;
  const ddp_socket_table& table_;
  std::string address_;
  SocketOptions options_;
  int32_t size_;
  bootstrap::CallState& calls_;
  RailNumbers numbers_;
  SocketMember member_;
  std::shared_ptr<collective::HostAllocator> heap_ = std::make_shared<collective::HostAllocator>();
};

}  // namespace

std::unique_ptr<collective::Transport> make_socket_transport(const collective::TransportContext& context,
                                                             const ddp_socket_table& table, const std::string& address,
                                                             const SocketOptions& options) {
  return std::make_unique<RailTransport>(context, table, address, options);
}

std::unique_ptr<collective::Transport> make_socket_transport(const collective::TransportContext& context) {
  const ddp_socket_table& table = load_gloo_module();
  return make_socket_transport(context, table, socket_address(*context.control, secure_getenv("DDP_SOCKET_IFNAME")),
                               SocketOptions{});
}

}  // namespace ddp::socket
