// SPDX-License-Identifier: Apache-2.0
// Keeps a listening socket reachable while no code accepts there: connections wait in the kernel's queue, and if strangers
// have filled half of it, all of them are dropped. A rank of the group connects again at once. A thread, which sleeps until
// a connection comes. Cost: one descriptor, and nothing for a connection that waits. Threads: one makes and destroys it.
// Tested by process/recovery_strangers_test.cpp.
#pragma once

#include <thread>

#include "control/net.hpp"

namespace ddp::bootstrap {

class Doorman {
 public:
  /// `listener` outlives it, and does not block. Throws OUT_OF_MEMORY.
  explicit Doorman(const net::Socket& listener);
  ~Doorman();
  Doorman(const Doorman&) = delete;
  Doorman& operator=(const Doorman&) = delete;

 private:
  void run() const noexcept;
  void drop_all() const noexcept;

  const net::Socket& listener_;
  net::Socket wake_;
  std::thread thread_;
};

}  // namespace ddp::bootstrap
