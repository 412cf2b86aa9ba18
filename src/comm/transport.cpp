#include "comm/transport.hpp"

namespace ddp {
namespace {

const char* op_name(ddp_reduce op) noexcept {
  switch (op) {
    case DDP_AVERAGE: return "average";
    case DDP_SUM: return "sum";
    case DDP_MIN: return "min";
    case DDP_MAX: return "max";
  }
  return "unknown operation";
}

}  // namespace

std::string Stamp::describe() const {
  const std::string number = "#" + std::to_string(sequence);
  const std::string sent = wire != cpu::ReduceRule::kAsItIs ? std::string(" sent as ") + dtype_name(wire) : "";
  const std::string amount = std::to_string(count) + " " + dtype_name(dtype) + " elements" + sent;
  switch (kind) {
    case Collective::kBarrier: return "barrier " + number;
    case Collective::kAllReduce: return "all-reduce " + number + " of " + amount + " (" + op_name(op) + ")";
    case Collective::kAllGather: return "all-gather " + number + " of " + amount + " a rank";
    case Collective::kReduceScatter: return "reduce-scatter " + number + " of " + amount + " a rank (" + op_name(op) + ")";
    case Collective::kBroadcast: return "broadcast " + number + " of " + amount + " from rank " + std::to_string(root);
    case Collective::kBucket:
      if (bucket == kRollCall) return "the opening of a pass of a model with uneven_inputs (collective " + number + ")";
      return "bucket " + std::to_string(bucket) + " (collective " + number + ", " + amount + ")";
    case Collective::kScatter:
      return "bucket " + std::to_string(bucket) + ", reduced to slices for a sharded optimizer (collective " + number + ", " + amount + ")";
    case Collective::kPublish:
      return "parameters of bucket " + std::to_string(bucket) + " from a sharded optimizer (collective " + number + ", " + amount + ")";
    case Collective::kStep:
      return "bucket " + std::to_string(bucket) + ", reduced and stepped by a sharded optimizer in backward (collective " + number + ", " + amount + ")";
  }
  return "unknown collective " + number;
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

Error stamp_mismatch(const Control& control, int32_t rank_a, const Stamp& a, int32_t rank_b, const Stamp& b) {
  std::string text = "the ranks made different calls: " + control.member(rank_a).name() + " " + a.describe() + ", but " +
                     control.member(rank_b).name() + " " + b.describe();
  if (a.kind == b.kind && a.plan_hash != b.plan_hash) text += " of another model or plan";
  return Error(DDP_ERROR_MISMATCH, text + "; every rank must make the same calls in the same order");
}

}  // namespace ddp
