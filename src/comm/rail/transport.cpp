#include "comm/rail/transport.hpp"

#include <numeric>
#include <vector>

#include "comm/gathered.hpp"
#include "comm/heap.hpp"
#include "comm/rail/address.hpp"
#include "comm/rail/member.hpp"
#include "comm/rail/module.hpp"

namespace ddp {
namespace {

std::vector<int32_t> all_ranks(int32_t size) {
  std::vector<int32_t> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// The number of a collective in the group, from 1.
class RailNumbers {
 public:
  explicit RailNumbers(CallState* calls) : calls_(calls) {}
  [[nodiscard]] uint64_t next() noexcept {
    ++last_;
    if (calls_ != nullptr) calls_->join_collective(last_);
    return last_;
  }

 private:
  CallState* calls_;  // NULL: somebody else counts the group's
  uint64_t last_ = 0;
};

class RailBucket : public BucketOperation {
 public:
  RailBucket(Chain& chain, RailNumbers& numbers, std::string way, const BucketSpec& spec)
      : chain_(chain), numbers_(numbers), way_(std::move(way)), mine_(spec.rule, spec.pieces), stamp_(stamp_of(Collective::kBucket, spec)) {
    note_.used.reserve(spec.used_words());
  }

  void start(const Note& mine) override {
    note_ = mine;
    mine_.tallies().front() = mine.tally;
    stamp_.sequence = numbers_.next();
  }
  [[nodiscard]] Progress advance(int64_t) override {
    throw make_error(DDP_ERROR_INTERNAL, "a bucket between hosts was polled; it is reduced by finish()");
  }
  void finish() override { chain_.reduce(stamp_, mine_, note_); }
  [[nodiscard]] const Note& note() const noexcept override { return note_; }
  [[nodiscard]] bool share_done() const noexcept override { return true; }
  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept override {
    mine_.set_address(piece, data);
    return true;
  }
  [[nodiscard]] std::string way() const override { return way_; }

 private:
  Chain& chain_;
  RailNumbers& numbers_;
  std::string way_;
  PieceContribution mine_;
  Stamp stamp_;
  Note note_;
};

class RailTransport : public Transport {
 public:
  RailTransport(const TransportContext& context, const ddp_rail_table& table, const std::string& address,
                const ChainOptions& options)
      : size_(context.control->size()),
        calls_(context.control->calls()),
        numbers_(options.counts ? &calls_ : nullptr),
        member_(context, table, address, options, all_ranks(size_), context.options.timeout_ms) {}

  [[nodiscard]] ddp_backend backend() const noexcept override { return DDP_BACKEND_GLOO; }
  [[nodiscard]] bool pollable() const noexcept override { return false; }

  [[nodiscard]] std::shared_ptr<Arena> arena() const noexcept override { return heap_; }

  [[nodiscard]] std::unique_ptr<BucketOperation> prepare(const BucketSpec& spec) override {
    const char* way = chain().is_direct(stamp_of(Collective::kBucket, spec).count, spec.rule) ? "direct exchange over " : "chain over ";
    return std::make_unique<RailBucket>(chain(), numbers_, std::string(way) + member_.rail_name(), spec);
  }

  [[nodiscard]] std::unique_ptr<BucketOperation> prepare_scatter(const BucketSpec&, const Slices&, SliceWork*) override { return nullptr; }
  [[nodiscard]] std::unique_ptr<BucketOperation> prepare_publish(const PublishSpec& spec) override {
    return make_gathered_publication(*this, member_.position(), spec);
  }

  void barrier() override { chain().barrier(stamp(Collective::kBarrier, DDP_U8, 0)); }

  void all_reduce(const Tensor& tensor, ddp_reduce op, Rounding rounding) override {
    Stamp made = stamp(Collective::kAllReduce, tensor.dtype, tensor.count);
    made.op = op;
    cpu::ReduceRule rule{tensor.dtype, op, size_};
    if (rounding == Rounding::kEveryStep) made.wire = rule.wire = tensor.dtype;
    PieceContribution mine(rule, {{tensor.data, tensor.count, false}});
    Note note;
    chain().reduce(made, mine, note);
  }

  void all_gather(const Tensor& input, const Tensor& output) override {
    chain().all_gather(stamp(Collective::kAllGather, input.dtype, input.count), input.data, output.data, input.bytes());
  }

  void reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op) override {
    Stamp made = stamp(Collective::kReduceScatter, output.dtype, output.count);
    made.op = op;
    PartContribution mine(cpu::ReduceRule{input.dtype, op, size_}, input.data, output.data, output.count, size_,
                          member_.position());
    Note note;
    chain().reduce(made, mine, note);
  }

  void broadcast(const Tensor& tensor, int32_t root) override {
    Stamp made = stamp(Collective::kBroadcast, tensor.dtype, tensor.count);
    made.root = root;
    chain().broadcast(made, tensor.data, tensor.bytes(), root);
  }

  [[nodiscard]] int64_t sent_bytes() const noexcept override { return member_.sent_bytes(); }
  void farewell() noexcept override { member_.leave(); }
  void wake() noexcept override { member_.wake(); }

 private:
  [[nodiscard]] Chain& chain() noexcept { return member_.chain(); }

  Stamp stamp(Collective kind, ddp_dtype dtype, int64_t count) {
    Stamp made;
    made.kind = kind;
    made.dtype = dtype;
    made.count = count;
    sign(made, calls_);
    made.sequence = numbers_.next();
    return made;
  }

  int32_t size_;
  CallState& calls_;
  RailNumbers numbers_;
  ChainMember member_;
  std::shared_ptr<Heap> heap_ = std::make_shared<Heap>();
};

}  // namespace

std::unique_ptr<Transport> make_rail_transport(const TransportContext& context, const ddp_rail_table& table,
                                               const std::string& address, const ChainOptions& options) {
  return std::make_unique<RailTransport>(context, table, address, options);
}

std::unique_ptr<Transport> make_rail_transport(const TransportContext& context) {
  const ddp_rail_table& table = load_gloo_module();
  return make_rail_transport(context, table, rail_address(*context.control, secure_getenv("DDP_SOCKET_IFNAME")), ChainOptions{});
}

}  // namespace ddp
