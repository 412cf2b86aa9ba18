// SPDX-License-Identifier: Apache-2.0
// A context of UCX with one worker: which transports it may use, its address, and progress. Everything else of UCX is called
// by endpoint.cpp.
//
// Threads: one at a time. Throws UcxError.
// Tested by process/ucx_test.cpp.
#pragma once

#include <ucp/api/ucp.h>

#include <stdexcept>
#include <string>

namespace ddp::ucx {

/// What UCX said no with.
class UcxError : public std::runtime_error {
 public:
  explicit UcxError(ucs_status_t status) : std::runtime_error(ucs_status_string(status)), status_(status) {}
  [[nodiscard]] ucs_status_t status() const noexcept { return status_; }

 private:
  ucs_status_t status_;
};

inline void check(ucs_status_t status) {
  if (status != UCS_OK) throw UcxError(status);
}

class Worker {
 public:
  /// `one_host`: nobody outside this host can reach it, unless UCX_NET_DEVICES says otherwise.
  Worker(int32_t peers, bool one_host);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  [[nodiscard]] ucp_worker_h handle() const noexcept { return worker_; }
  /// What the others need to reach it.
  [[nodiscard]] std::string address() const;
  /// Readable when there may be something to do, once arm() has said UCS_OK.
  [[nodiscard]] int event_descriptor() const noexcept { return descriptor_; }

  /// Did anything happen? A number that grows with it.
  [[nodiscard]] unsigned progress() noexcept { return ucp_worker_progress(worker_); }
  /// UCS_ERR_BUSY: something has happened meanwhile; make progress first.
  [[nodiscard]] ucs_status_t arm() noexcept { return ucp_worker_arm(worker_); }

 private:
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
};

/// Is there a network device that is no socket of the system?
[[nodiscard]] bool finds_rdma() noexcept;

}  // namespace ddp::ucx
