// SPDX-License-Identifier: Apache-2.0
// The mean over the ranks of many tensors, in place: local SGD. Small tensors are sent together, as in
// coalesced_broadcast.hpp, with others of their dtype. Collective; the messages depend on sizes, dtypes and devices of the
// tensors. Tensors on a GPU are read and written in the order of a stream, and the host does not wait. Tested by
// conformance/local_sgd_test.cpp and gpu_host/sync_test.cpp.
#pragma once

#include <vector>

#include "core/tensor.hpp"
#include "group/group.hpp"

namespace ddp::model {

class Model;

/// Floating dtypes. Bits as of an all-reduce with AVERAGE: in host memory the sum in the tree, divided once.
void average(group::Group& group, const std::vector<Tensor>& tensors, void* stream = nullptr);
/// Of the parameters of a model.
void average_parameters(Model& model, void* stream = nullptr);

}  // namespace ddp::model
