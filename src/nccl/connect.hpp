// SPDX-License-Identifier: Apache-2.0
// Connects NCCL between all ranks of a group, or names the late ranks. A rank does not know why NCCL does not connect it,
// but all of them together may: each reports its progress. Tested by gpu_host/communicator_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "control/control.hpp"
#include "core/attempt.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "nccl/communicator.hpp"

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

/// All ranks get what one of them throws, with its name.
template <class Body>
void with_name(const bootstrap::Control& control, Body&& body) {
  if (const std::optional<Error> problem = try_to<Error>(body))
    throw Error(problem->status(), control.member(control.rank()).name() + ": " + problem->text());
}

/// The id by which ranks find each other in NCCL, on one of them.
[[nodiscard]] std::string make_id(const bootstrap::Control& control, const ddp_nccl_table& nccl);

/// Collective, over the control plane; all ranks come at the same time. Throws what Communicator::connect throws, and
/// TIMED_OUT with the names of the ranks that are behind the others. `check`: as there.
[[nodiscard]] std::shared_ptr<Communicator> connect_ranks(bootstrap::Control& control, const gpu::Device& device,
                                                          const ddp_nccl_table& nccl, const Communicator::Place& place,
                                                          os::Deadline deadline, const std::function<void()>& check);

}  // namespace ddp::nccl
