// The publication of slices for transports that have no better way than an all-gather: the own slice is written, packed chunk by chunk, gathered
// and unpacked. It blocks, and it is a collective of its own: not while a bucket is under way.
// Memory: kChunkBytes for each rank and one more. Tested by process/fused_test.cpp.
#pragma once

#include <memory>

#include "comm/transport.hpp"

namespace ddp {

[[nodiscard]] std::unique_ptr<BucketOperation> make_gathered_publication(Transport& transport, int32_t rank, const PublishSpec& spec);

}  // namespace ddp
