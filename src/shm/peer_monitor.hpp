// SPDX-License-Identifier: Apache-2.0
// Noticing a dead process of this host before its sockets close: the kernel marks a robust mutex as abandoned before it
// frees the dead process's memory, which takes 0.1 s a GB (measured). A thread of each process holds its own mutex for
// monitor and looks at the others' 50 times a second. Ranks that are threads need none of this.
// Tested by conformance/pass_test.cpp.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "shm/mesh.hpp"

namespace ddp::shm {

class PeerMonitor {
 public:
  PeerMonitor(const Mesh& mesh, const collective::TransportContext& context);
  ~PeerMonitor();
  PeerMonitor(const PeerMonitor&) = delete;
  PeerMonitor& operator=(const PeerMonitor&) = delete;

 private:
  void watch();
  [[nodiscard]] bool is_dead(int32_t peer) noexcept;
  void look();

  const Mesh* mesh_;
  collective::TransportContext context_;
  std::mutex mutex_;  // guards stop_ and holding_
  std::condition_variable changed_;
  bool stop_ = false;
  bool holding_ = false;
  std::optional<int32_t> dead_;  // reported to the control plane, which decides on the cause
  os::Deadline decides_by_ = os::Deadline::never();
  std::thread thread_;
};

}  // namespace ddp::shm
