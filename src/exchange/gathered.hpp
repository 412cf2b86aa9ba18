// SPDX-License-Identifier: Apache-2.0
// An exchange that only gives, for transports that have no better way than an all-gather: the own slice is written, packed
// chunk by chunk, gathered and unpacked. It blocks, and each chunk is a collective of its own: not while a bucket is under
// way, but between two on the same queue.
// Memory: 8 MiB for all ranks, and one rank's part of it again.
// Tested by conformance/fused_test.cpp and process/hierarchy_test.cpp.
#pragma once

#include <memory>

#include "exchange/transport.hpp"

namespace ddp::collective {

[[nodiscard]] std::unique_ptr<BucketOperation> make_gathered(Transport& transport, int32_t rank, const ExchangeSpec& spec);

}  // namespace ddp::collective
