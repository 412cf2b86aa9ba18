// SPDX-License-Identifier: Apache-2.0
// After a failure the process continues: it makes a group with others, in the same process, and takes ten steps.
#pragma once

#include "support/group_procs.hpp"
#include "support/values.hpp"

namespace ddp::test {

/// All ranks of the new group call it; they meet in the folder of the old one. Throws if something does not hold.
inline void and_goes_on(const Folder& folder, int rank, int size, ddp_group_options options) {
  options.rank = rank;
  options.world_size = size;
  const auto group = group::Group::create(("file://" + folder.path() + "/goes-on").c_str(), options);
  std::vector<float> data(1'000);
  for (int step = 0; step < 10; ++step) {
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(rank + step + static_cast<int>(i % 7));
    group->all_reduce(flat_tensor(data.data(), DDP_F32, static_cast<int64_t>(data.size())), DDP_SUM, nullptr);
    for (size_t i = 0; i < data.size(); ++i) {
      const int sum = size * (size - 1) / 2 + size * (step + static_cast<int>(i % 7));
      expect_equal(data[i], static_cast<float>(sum), "element " + std::to_string(i) + " of step " + std::to_string(step));
    }
  }
}

}  // namespace ddp::test
