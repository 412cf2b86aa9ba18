// SPDX-License-Identifier: Apache-2.0
#include "exchange/transport.hpp"

#include "control/texts.hpp"

namespace ddp::collective {
namespace {

const char* op_name(ddp_reduce op) noexcept {
  switch (op) {
    case DDP_AVERAGE: return "average";
    case DDP_SUM: return "sum";
    case DDP_MIN: return "min";
    case DDP_MAX: return "max";
    case DDP_PRODUCT: return "product";
  }
  return "unknown operation";
}

}  // namespace

std::string Stamp::describe() const {
  if (bucket == kJoinHeader)
    return "ddp_model_join, or the opening of a pass of a model with uneven_inputs (collective #" +
           std::to_string(sequence) + ")";
  if (kind < Collective::kBucket && caller.call == bootstrap::UserCall::kNone) return describe_kind();
  return std::string(bootstrap::name_of(user_call())) + " (" + describe_kind() + ")";
}

bootstrap::UserCall Stamp::user_call() const noexcept {
  if (caller.call != bootstrap::UserCall::kNone) return caller.call;
  return kind == Collective::kBucketAllGather ? bootstrap::UserCall::kOptimizerStep : bootstrap::UserCall::kEndBackward;
}

std::string Stamp::describe_kind() const {
  const std::string number = "#" + std::to_string(sequence);
  const std::string sent = wire != cpu::ReduceRule::kAsItIs ? std::string(" sent as ") + dtype_name(wire) : "";
  const std::string amount = std::to_string(count) + " " + dtype_name(dtype) + " elements" + sent;
  switch (kind) {
    case Collective::kBarrier: return "barrier " + number;
    case Collective::kAllReduce: return "all-reduce " + number + " of " + amount + " (" + op_name(op) + ")";
    case Collective::kAllGather: return "all-gather " + number + " of " + amount + " a rank";
    case Collective::kReduceScatter: return "reduce-scatter " + number + " of " + amount + " a rank (" + op_name(op) + ")";
    case Collective::kBroadcast: return "broadcast " + number + " of " + amount + " from rank " + std::to_string(root);
    case Collective::kReduce:
      return "reduce " + number + " of " + amount + " (" + op_name(op) + ") to rank " + std::to_string(root);
    case Collective::kGather: return "gather " + number + " of " + amount + " a rank to rank " + std::to_string(root);
    case Collective::kScatter: return "scatter " + number + " of " + amount + " a rank from rank " + std::to_string(root);
    case Collective::kBucket: return "bucket " + std::to_string(bucket) + ", collective " + number + ", " + amount;
    case Collective::kBucketReduceScatter:
      return "bucket " + std::to_string(bucket) + ", reduced to slices for a sharded optimizer, collective " + number +
             ", " + amount;
    case Collective::kBucketAllGather:
      return "parameters of bucket " + std::to_string(bucket) + " from a sharded optimizer, collective " + number + ", " +
             amount;
    case Collective::kFusedStep:
      return "bucket " + std::to_string(bucket) + ", reduced and stepped by a sharded optimizer in backward, collective " +
             number + ", " + amount;
  }
  return "unknown collective " + number;
}

Stamp stamp_of(Collective kind, const Tensor& tensor, ddp_reduce op, int32_t root) noexcept {
  Stamp stamp;
  stamp.kind = kind;
  stamp.dtype = tensor.dtype;
  stamp.op = op;
  stamp.root = root;
  stamp.count = tensor.count;
  return stamp;
}

Stamp stamp_of_reduce(const Tensor& tensor, ddp_reduce op, int32_t root) noexcept {
  const bool all = root == Transport::kAll;
  return stamp_of(all ? Collective::kAllReduce : Collective::kReduce, tensor, op, all ? 0 : root);
}

Stamp stamp_of(Collective kind, const BucketSpec& spec) noexcept {
  Stamp stamp;
  stamp.kind = kind;
  stamp.dtype = spec.rule.dtype;
  stamp.op = spec.rule.op;
  stamp.wire = spec.rule.wire;
  stamp.bucket = spec.index;
  stamp.plan_hash = spec.plan_hash;
  for (const BucketSpec::Piece& piece : spec.pieces) stamp.count += piece.count;
  return stamp;
}

Error stamp_mismatch(const bootstrap::Control& control, int32_t rank_a, const Stamp& a, int32_t rank_b, const Stamp& b) {
  const bool other_plan = a.kind == b.kind && a.plan_hash != b.plan_hash;
  const auto words = [](const Stamp& stamp) {
    const bool of_hook = stamp.kind < Collective::kBucket && stamp.caller.call == bootstrap::UserCall::kNone;
    return of_hook ? "a hook of a backward pass (" + stamp.describe() + ")" : stamp.describe();
  };
  const Error error =
      bootstrap::texts::different_calls(control.member(rank_a), {a.user_call(), words(a)}, control.member(rank_b),
                                        {b.user_call(), words(b) + (other_plan ? " of another model or plan" : "")});
  if (a.kind != b.kind || a.bytes() == b.bytes() || error.details() == nullptr) return error;
  ErrorDetails details = *error.details();
  details.bytes_expected = a.bytes();
  details.bytes_got = b.bytes();
  return error.with(std::move(details));
}

LeafMap leaves_by_rank(const ddp_group_options& options, int32_t ranks) {
  return options.virtual_ranks > 0 ? LeafMap::of_nodes(options.virtual_ranks, ranks) : LeafMap::by_rank(ranks);
}

}  // namespace ddp::collective
