// SPDX-License-Identifier: Apache-2.0
// The trace of a job: what its ranks leave in a folder becomes a file (trace/merge.hpp). A ddprun that is led passes on what
// is written there, once a second and when a rank ends, to the one that leads, so the last second at most is missing when
// its machine dies.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ddprun/options.hpp"
#include "ddprun/orders.hpp"
#include "trace/ring_news.hpp"

namespace ddp::ddprun {

/// Throws ExitError if the file cannot be written.
void prepare_trace(const std::string& path);

class TraceFile {
 public:
  /// `folder`: where ranks here leave it, or what hosts send is kept.
  TraceFile(const Options& options, std::string folder);

  /// Led: give away what is new.
  void pass_on(const std::function<void(const Report&)>& give);
  /// On the leading machine: events that a host has forwarded.
  void keep(int32_t host, const Report& report) noexcept;
  /// All ranks have ended. Returns the message about it: where the file is, or why it is missing; "": no message.
  [[nodiscard]] std::string write();

 private:
  const Options& options_;
  const std::string folder_;
  trace::RingNews news_;
  std::string path_;  // "": none is written here, or it has been
};

}  // namespace ddp::ddprun
