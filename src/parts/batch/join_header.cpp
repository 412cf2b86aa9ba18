// SPDX-License-Identifier: Apache-2.0
#include "parts/batch/join_header.hpp"

namespace ddp::parts {

JoinHeader::JoinHeader(const group::Channel& channel, uint64_t plan_hash) {
  collective::BucketSpec spec;
  spec.index = collective::Stamp::kJoinHeader;
  spec.rule = cpu::ReduceRule{DDP_F32, DDP_SUM, channel.group().size()};
  spec.plan_hash = plan_hash;
  operation_ = channel.transport().prepare(spec);
}

void JoinHeader::start(collective::ProgressQueue& queue, Call call, int32_t argument, int32_t joined) {
  collective::BucketHeader mine;
  mine.participation.joined = joined;
  mine.participation.flags = static_cast<uint64_t>(call) | static_cast<uint64_t>(static_cast<uint32_t>(argument)) << 32;
  operation_->start(mine);
  queue.push(*operation_);
}

}  // namespace ddp::parts
