// SPDX-License-Identifier: Apache-2.0
// A group of threads joined by the in-process rail, each with its control plane, its first cause and its transport.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/failure.hpp"
#include "socket/transport.hpp"
#include "support/local_endpoint.hpp"
#include "support/ranks.hpp"
#include "support/thread_control.hpp"

namespace ddp::test {

/// Bucket 3 of plan 99, averaged.
inline collective::BucketSpec spec_of(std::vector<collective::BucketSpec::Piece> pieces, ddp_dtype dtype, int ranks) {
  collective::BucketSpec spec;
  spec.index = 3;
  spec.rule = cpu::ReduceRule{dtype, DDP_AVERAGE, ranks};
  spec.plan_hash = 99;
  spec.pieces = std::move(pieces);
  return spec;
}

class RailWorld {
 public:
  explicit RailWorld(int size, int64_t segment_bytes = 0, int64_t timeout_ms = 20'000)
      : name_("world " + std::to_string(next_id()++)), hub_(size), socket_{segment_bytes} {
    options_.timeout_ms = timeout_ms;
    options_.rendezvous_timeout_ms = 20'000;
    for (int rank = 0; rank < size; ++rank) {
      failures_.push_back(std::make_unique<bootstrap::Failure>());
      controls_.push_back(std::make_unique<ThreadControl>(hub_, rank));
      controls_.back()->on_failure([failure = failures_.back().get()](const Error& cause) { failure->set(cause); });
    }
  }

  /// Makes the transports (collective) and runs `body(rank, transport)` on one thread a rank.
  void run(const std::function<void(int, collective::Transport&)>& body) {
    run_ranks(hub_.size(), [&](int rank) {
      const collective::TransportContext context{&control(rank), &failure(rank), options_};
      socket::SocketOptions options = socket_;
      if (uneven_) options.ahead = 2 + rank % 2 * 3;
      const auto transport = socket::make_socket_transport(context, local_endpoint(), name_, options);
      body(rank, *transport);
      transport->shutdown();
    });
  }

  /// Every other member begins more steps ahead.
  void begin_unevenly() { uneven_ = true; }

  [[nodiscard]] ThreadControl& control(int rank) { return *controls_.at(static_cast<size_t>(rank)); }
  [[nodiscard]] bootstrap::Failure& failure(int rank) { return *failures_.at(static_cast<size_t>(rank)); }
  [[nodiscard]] int size() const { return hub_.size(); }

 private:
  static std::atomic<int>& next_id() {
    static std::atomic<int> id{0};
    return id;
  }
  std::string name_;
  ThreadHub hub_;
  socket::SocketOptions socket_;
  bool uneven_ = false;
  ddp_group_options options_{};
  std::vector<std::unique_ptr<bootstrap::Failure>> failures_;
  std::vector<std::unique_ptr<ThreadControl>> controls_;
};

}  // namespace ddp::test
