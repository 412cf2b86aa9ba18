// The mean over the ranks of many tensors, in place: local SGD. What is small travels together, as in spread.hpp, with others of its dtype.
// Collective; the messages depend on the sizes alone. Tested by ranks/local_sgd_test.cpp and process/local_sgd_test.cpp.
#pragma once

#include <vector>

#include "base/tensor.hpp"
#include "comm/group.hpp"

namespace ddp {

/// Floating dtypes. Bits as of an all-reduce with AVERAGE: the sum in rank order, divided once.
void average(Group& group, const std::vector<Tensor>& tensors);

}  // namespace ddp
