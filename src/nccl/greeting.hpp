// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other before NCCL connects them. Values. Tested by gpu_host/group_test.cpp and
// gpu_host/several_groups_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.hpp"

namespace ddp::nccl {

/// A rank's message before NCCL connects; rank 0's id counts.
struct Greeting {
  std::string nccl_id;    // empty: it is lent
  uint64_t group_id = 0;  // of LaunchOrder
  std::vector<uint64_t> others;
};

inline std::string bytes_of(const Greeting& greeting) {
  ByteWriter bytes;
  bytes.text(greeting.nccl_id).number(greeting.group_id);
  for (const uint64_t id : greeting.others) bytes.number(id);
  return std::move(bytes).bytes();
}

inline Greeting greeting_of(const std::string& bytes) {
  ByteReader reader(bytes);
  Greeting greeting;
  greeting.nccl_id = std::string(reader.text());
  greeting.group_id = reader.number<uint64_t>();
  while (!reader.at_end()) greeting.others.push_back(reader.number<uint64_t>());
  return greeting;
}

}  // namespace ddp::nccl
