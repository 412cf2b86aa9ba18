// SPDX-License-Identifier: Apache-2.0
// Passing file descriptors between processes of one host, over abstract UNIX sockets (no name in any file system).
// Every rank listens under a random name, connects to all others, and gives its descriptor to a process with the secret that
// was sent over the control plane, under the same user id. Tested by unit/exchange/fd_exchange_test.cpp and
// conformance/pass_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "os/clock.hpp"
#include "shm/fd.hpp"

namespace ddp::shm {

/// How long to wait for the others.
struct Patience {
  os::Deadline deadline;
  std::function<void()> check{};  // asked now and then; what it throws ends the wait
};

class FdExchange {
 public:
  /// Starts to listen. Throws NOT_SUPPORTED.
  FdExchange();
  /// Name and secret for the others; send it over the control plane only.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  /// Give `fd` to every rank and receive theirs, by rank; the own entry is empty. `addresses` by rank.
  /// Throws NOT_SUPPORTED (not reachable, other user, failed there), OUT_OF_MEMORY, TIMED_OUT, and what `patience.check`
  /// throws. A rank that throws closes its side, so the others need not wait for it.
  [[nodiscard]] std::vector<Fd> swap(int fd, int32_t rank, const std::vector<std::string>& addresses,
                                     const Patience& patience);
  /// For a rank that fails before it swaps: nobody waits for it.
  void close() noexcept { listener_ = Fd(); }

 private:
  [[nodiscard]] std::vector<Fd> swap_all(int fd, int32_t rank, const std::vector<std::string>& addresses,
                                         const Patience& patience);
  Fd listener_;
  std::string address_;
};

}  // namespace ddp::shm
