// SPDX-License-Identifier: Apache-2.0
// Ranks as processes on hosts that are made up (DDP_TEST_HOST), over the real Gloo module and real shared memory.
#pragma once

#include "hosts/transport.hpp"
#include "support/check.hpp"
#include "support/fork_run.hpp"
#include "support/no_gloo.hpp"

namespace ddp::test {

// One letter a rank: its host.
using Placement = std::string;

// One child's group.
class Child {
 public:
  Child(ForkHub& hub, const Placement& placement, int rank, int64_t timeout_ms = 20'000,
        ddp_sum_order order = DDP_SUM_ORDER_BY_RANK)
      : moved_(placement[static_cast<size_t>(rank)]), control_(hub, rank, 20'000) {
    control_.on_failure([this](const Error& cause) { failure_.set(cause); });
    ddp_group_options options{.timeout_ms = timeout_ms, .rendezvous_timeout_ms = 20'000, .sum_order = order};
    const collective::TransportContext context{&control_, &failure_, options};
    const hierarchy::Layout layout = hierarchy::lay_out(control_, options);
    const hierarchy::Carrier carrier{socket::load_module(), "127.0.0.1", socket::SocketOptions{}};
    transport_ = hierarchy::make_transport(context, layout, carrier,
                                           hierarchy::connect_host(context, layout, carrier, os::Deadline::in_ms(20'000)));
    failure_.add_waker([this] { transport_->wake(); });
  }
  ~Child() {
    if (!failure_.woken()) transport_->shutdown();
    failure_.set(Error(DDP_ERROR_ABORTED, "the test is over"));
    failure_.quiesce();
  }
  [[nodiscard]] const bootstrap::Failure& failure() const { return failure_; }
  collective::Transport& operator*() { return *transport_; }
  collective::Transport* operator->() { return transport_.get(); }

 private:
  struct Moved {
    explicit Moved(char host) { setenv("DDP_TEST_HOST", std::string(1, host).c_str(), 1); }
  };
  Moved moved_;
  bootstrap::Failure failure_;
  ForkControl control_;
  std::unique_ptr<collective::Transport> transport_;
};

inline int ranks_of(const Placement& placement) { return static_cast<int>(placement.size()); }

}  // namespace ddp::test
