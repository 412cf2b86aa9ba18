// SPDX-License-Identifier: Apache-2.0
// Messages from one rank of a group to one other, and the collective calls that are made of them. The caller checks tensors;
// counts and ranks are checked here. Hosts exchange the bytes: a tensor on a GPU goes through host memory, in the order of
// `stream` (staged.hpp).
//
// A message is compared with its receive alone: a difference is MISMATCH on both ranks, and the group stays whole. A
// collective call begins with an exchange that compares the calls of all ranks, as every one does; where counts do not fit,
// all ranks throw the same MISMATCH, and the group stays whole.
// With `posting` a call is posted, and its request goes there.
// Threads: send and receive from any, at any time; the rest as Group.
// Tested by conformance/messages_test.cpp, gpu_host/messages_test.cpp and process/messages_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor.hpp"
#include "group/request.hpp"

namespace ddp::group {

class Group;

/// Returns when `tensor` may be changed again.
void send_message(Group& group, const Tensor& tensor, int32_t peer, int64_t tag, void* stream = nullptr,
                  RequestPtr* posting = nullptr);
/// `source` may be DDP_ANY_SOURCE. Returns the rank that sent; -1 if it was posted.
int32_t receive_message(Group& group, const Tensor& tensor, int32_t source, int64_t tag, void* stream = nullptr,
                        RequestPtr* posting = nullptr);

/// In place. Rank `root` gets the bits of the all-reduce; the tensors of the others are undefined then. GPUs exchange
/// tensors on GPUs, as in the all-reduce.
void reduce(Group& group, const Tensor& tensor, ddp_reduce op, int32_t root, void* stream = nullptr,
            RequestPtr* posting = nullptr);

/// `output`: of the root, as many elements for each rank; NULL on others. It may contain `input` at its own place.
void gather(Group& group, const Tensor& input, const Tensor* output, int32_t root, void* stream = nullptr,
            RequestPtr* posting = nullptr);
/// The way back.
void scatter(Group& group, const Tensor* input, const Tensor& output, int32_t root, void* stream = nullptr,
             RequestPtr* posting = nullptr);

/// By rank: how many elements this rank sends it, and gets from it. Empty: as many for each.
struct ExchangeCounts {
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
};
void all_to_all(Group& group, const Tensor& input, const Tensor& output, ExchangeCounts counts, void* stream = nullptr,
                RequestPtr* posting = nullptr);
/// `counts`: how many elements each rank gives.
void all_gather_counts(Group& group, const Tensor& input, const Tensor& output, const std::vector<int64_t>& counts,
                       void* stream = nullptr, RequestPtr* posting = nullptr);

}  // namespace ddp::group
