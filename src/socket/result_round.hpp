// SPDX-License-Identifier: Apache-2.0
// The results of short exchanges (collectives.hpp): each member sends its slice of the sum to all others. A receive from
// each of them is always posted, so a result never waits for its receiver. A member that waits for none, because the bucket
// was void or it owns nothing, leaves the receive for the next exchange.
//
// A result follows the header round of its exchange, and a member sends its next header after close(). So one receive from
// each is enough.
// Threads: one at a time. Allocates when it is made; memory is touched as far as results reach.
// Tested by unit/exchange/collectives_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "socket/links.hpp"

namespace ddp::socket {

class ResultRound {
 public:
  /// `most`: bytes of a member's results. 0: there are none.
  ResultRound(Links& links, int64_t most);

  /// Of a member, in the order of its slice. The own ones are put here.
  [[nodiscard]] std::byte* of(int32_t member) noexcept { return memory_.get() + member * most_; }
  /// The own results to all other members.
  void send(int64_t bytes, int32_t level);
  void wait(int32_t member, int32_t level);
  void close();

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  void arm(int32_t member) noexcept;

  Links& links_;
  int64_t most_;
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<Links::Message> in_, out_;  // by member
};

}  // namespace ddp::socket
