// SPDX-License-Identifier: Apache-2.0
// A rank's own address, where others find it when the group has broken and new ranks ask to come in. The socket listens
// there as long as the object exists. While no server accepts, connections wait in the kernel's queue, and if strangers have
// filled half of it, all of them are dropped; a rank of the group connects again at once. A thread does that, which sleeps
// until a connection comes. A fork does not keep the socket open. Cost: two descriptors, and nothing for a connection that
// waits. Threads: one makes and destroys it.
// Tested by process/recovery_strangers_test.cpp and capi/recovery_test.cpp.
#pragma once

#include <string>
#include <thread>

#include "control/net.hpp"
#include "control/port_range.hpp"
#include "os/closed_in_forks.hpp"

namespace ddp::bootstrap {

class Listener {
 public:
  /// Listens at a numeric address. Throws IO or OUT_OF_MEMORY.
  Listener(const std::string& address, const PortRange& ports);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// For the others.
  [[nodiscard]] const std::string& record() const noexcept { return record_; }
  /// The socket once more, for a server. Throws IO or OUT_OF_MEMORY.
  [[nodiscard]] net::Socket socket() const;

 private:
  void run() const noexcept;
  void drop_all() const noexcept;

  net::Socket socket_;
  os::ClosedInForks in_forks_;
  net::Socket wake_;
  std::string record_;
  std::thread thread_;
};

}  // namespace ddp::bootstrap
