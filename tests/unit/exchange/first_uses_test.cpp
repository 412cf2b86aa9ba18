// SPDX-License-Identifier: Apache-2.0
// Which collectives NCCL may have to connect for: one of each kind, type and power of two, and those beyond what was used.
#include "nccl/communicator.hpp"
#include "support/check.hpp"

using nccl::BlockCollective;
using nccl::FirstUses;
using Kind = BlockCollective::Kind;

ddp_case(each_kind_and_type_is_its_own) {
  FirstUses uses;
  const BlockCollective sum{Kind::kAllReduce, 1000, DDP_F32};
  expect(uses.is_first(sum), "nothing was used");
  uses.add(sum);
  expect(!uses.is_first(sum), "used");
  expect(uses.is_first({Kind::kAllGather, 1000, DDP_F32}), "another kind");
  expect(uses.is_first({Kind::kAllReduce, 1000, DDP_I32}), "another type");
  expect(!uses.is_first({Kind::kAllReduce, 0, DDP_F64}), "nothing is sent");
}

ddp_case(within_a_power_of_two_the_ends_cover_what_is_between) {
  FirstUses uses;
  uses.add({Kind::kReduceScatter, 300, DDP_F32});  // 1,200 bytes
  expect(uses.is_first({Kind::kReduceScatter, 299, DDP_F32}), "fewer");
  expect(uses.is_first({Kind::kReduceScatter, 301, DDP_F32}), "more");
  uses.add({Kind::kReduceScatter, 500, DDP_F32});  // 2,000 bytes
  expect(!uses.is_first({Kind::kReduceScatter, 400, DDP_F32}), "between them");
  expect(uses.is_first({Kind::kReduceScatter, 600, DDP_F32}), "of the next power of two");
  expect(uses.is_first({Kind::kReduceScatter, 200, DDP_F32}), "of the one before");
}
