#include "reduce/roll_call.hpp"

namespace ddp {

RollCall::RollCall(Group& group, uint64_t plan_hash) {
  BucketSpec spec;
  spec.index = Stamp::kRollCall;
  spec.rule = cpu::ReduceRule{DDP_F32, DDP_SUM, group.size()};
  spec.plan_hash = plan_hash;
  operation_ = group.transport().prepare(spec);
}

void RollCall::start(Lane& lane, Call call, int32_t argument, int32_t joined) {
  Note mine;
  mine.tally.joined = joined;
  mine.tally.flags = static_cast<uint64_t>(call) | static_cast<uint64_t>(static_cast<uint32_t>(argument)) << 32;
  operation_->start(mine);
  lane.push(*operation_);
}

}  // namespace ddp
