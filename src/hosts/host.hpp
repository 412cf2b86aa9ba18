// SPDX-License-Identifier: Apache-2.0
// What the ranks of a host do together in a collective of all hosts: meet in shared memory, cross to the other hosts on
// their rails, and wait until the host's last rail is done.
//
//   meet     every local rank announces; stamps are compared, bucket headers combined (shm::Engine)
//   across   local rank l < rails: its rail, which compares stamps and joins bucket headers over the hosts; then its counter
//            kFinished. What is small takes rail 0 alone
//   part     a rank that did not cross waits for the others' counters and takes the combined bucket header from one of them
//
// Which rank is named when one is late: the ranks that wait for it directly time out first. That is its own host first
// (timeout_ms), then the rails (a little more), then the ranks that wait for a rail of their own host (twice timeout_ms).
// Promises: an error in a collective is the group's first cause, or the first cause is thrown in its place; all ranks
// learn it at once.
// Threads: as shm::Engine.
// Tested by process/hierarchy_test.cpp and process/hierarchy_failure_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/control.hpp"
#include "core/attempt.hpp"
#include "core/sum_tree.hpp"
#include "ddp/group.h"
#include "hosts/host_reduce_input.hpp"
#include "shm/engine.hpp"
#include "shm/peer_monitor.hpp"
#include "socket/member.hpp"

namespace ddp::hierarchy {

// Which ranks share a host, which rails run between the hosts, and which leaf of the sum each rank is. Values and pure
// functions; the same on all ranks.
//
//   host 0:  rank 0   rank 1   rank 2      local index l owns rail l: it links the l-th ranks of all hosts. There are
//   host 1:  rank 3   rank 4               as many rails as the smallest host has ranks (here 2); rank 2 owns none.
//            rail 0   rail 1
struct Layout {
  std::vector<std::vector<int32_t>> hosts;  // ascending ranks of each; hosts by their lowest rank
  int32_t host = 0;                         // of this rank
  int32_t local = 0;                        // this rank's index inside its host
  int32_t rails = 1;
  LeafMap map = LeafMap::by_rank(0);

  [[nodiscard]] const std::vector<int32_t>& local_ranks() const noexcept { return hosts[static_cast<size_t>(host)]; }
  [[nodiscard]] int32_t local_size() const noexcept { return static_cast<int32_t>(local_ranks().size()); }
  [[nodiscard]] int32_t host_count() const noexcept { return static_cast<int32_t>(hosts.size()); }
  [[nodiscard]] bool owns_rail() const noexcept { return local < rails; }
  /// The ranks on this rank's rail, by host. Only if owns_rail().
  [[nodiscard]] std::vector<int32_t> rail_ranks() const;
  /// Does some host have two ranks or more?
  [[nodiscard]] bool shares() const noexcept;
  /// What the busiest host sends for a large sum, over what it would send if every host were one node of the tree; F32.
  [[nodiscard]] double traffic() const;
};

/// `host_ids` by rank; ranks with equal ids share a host. An empty id is a host of its own. Of `options` the order of sums
/// counts.
[[nodiscard]] Layout lay_out(const std::vector<std::string>& host_ids, int32_t rank, const ddp_group_options& options = {});

/// By the ranks' boot ids.
[[nodiscard]] Layout lay_out(const bootstrap::Control& control, const ddp_group_options& options = {});

// The control plane as the ranks of one host see it: ranks are local indices, an exchange is one of the whole group of which
// only the own host's answers are read. So all hosts must make the same exchanges in the same order.
class HostControl final : public bootstrap::Control {
 public:
  /// `ranks` of this host; `local` is this rank's index in it. `group` outlives this.
  HostControl(bootstrap::Control& group, std::vector<int32_t> ranks, int32_t local)
      : group_(group), ranks_(std::move(ranks)), local_(local) {
    set_link_key(group.link_key());
  }

  [[nodiscard]] int32_t rank() const noexcept override { return local_; }
  [[nodiscard]] int32_t size() const noexcept override { return static_cast<int32_t>(ranks_.size()); }
  [[nodiscard]] const bootstrap::Member& member(int32_t rank) const noexcept override {
    return group_.member(in_group(rank));
  }

  [[nodiscard]] std::vector<std::string> gather(std::string_view what, std::string_view mine,
                                                os::Deadline deadline) override {
    std::vector<std::string> all = group_.gather(what, mine, deadline);
    std::vector<std::string> here;
    for (const int32_t rank : ranks_) here.push_back(std::move(all[static_cast<size_t>(rank)]));
    return here;
  }

  void abort(const Error& cause) noexcept override { group_.abort(cause); }
  [[nodiscard]] std::optional<Error> settle() override { return group_.settle(); }
  void saw_death(int32_t rank) noexcept override { group_.saw_death(in_group(rank)); }
  void leave(bootstrap::Leaving how) noexcept override { group_.leave(how); }
  void on_failure(std::function<void(const Error&)> fn) override { group_.on_failure(std::move(fn)); }
  void set_progress(int64_t pass, int32_t bucket) noexcept override { group_.set_progress(pass, bucket); }
  [[nodiscard]] bootstrap::CallState& calls() noexcept override { return group_.calls(); }
  [[nodiscard]] std::string describe_progress(int32_t rank) const override {
    return group_.describe_progress(in_group(rank));
  }

 private:
  [[nodiscard]] int32_t in_group(int32_t local) const noexcept { return ranks_[static_cast<size_t>(local)]; }

  bootstrap::Control& group_;
  std::vector<int32_t> ranks_;
  int32_t local_;
};

inline constexpr int64_t kExchangeBytes = int64_t{8} << 20;

/// What carries the rails.
struct Carrier {
  const ddp_socket_table& table;
  std::string address;
  socket::SocketOptions options;
};

/// The ranks of a host with their memory connected, and the resources of the rails.
struct HostMemory {
  shm::Mesh mesh;
  std::byte* exchange = nullptr;            // kExchangeBytes of the own region
  std::optional<socket::MemberOffer> rail;  // of this rank; none: this host has more ranks than there are rails
  std::vector<std::string> rails;           // of all ranks of all hosts
};

/// Collective over the group. Throws the same on all ranks if some host's ranks cannot share memory.
[[nodiscard]] HostMemory connect_host(const collective::TransportContext& context, const Layout& layout,
                                      const Carrier& carrier, os::Deadline deadline);
/// The same memory with other pages, for another channel. Collective over the group. Throws OUT_OF_MEMORY on all ranks.
[[nodiscard]] HostMemory add_channel(const collective::TransportContext& context, const Layout& layout,
                                     const Carrier& carrier, const shm::Mesh& mesh, os::Deadline deadline);

/// How a collective crosses: which rails take part, and the work of this rank's rail. The same on all ranks, except for the
/// rank's own part.
struct Crossing {
  int32_t rails = 1;
  socket::Schedule schedule;
  std::vector<OwnSpan> owned;  // of this host's ranks, in the order of the array; empty if nothing belongs to single ranks
};

class Host {
 public:
  /// Collective over the group: makes the rails.
  Host(const collective::TransportContext& context, Layout layout, HostMemory memory, const Carrier& carrier);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }
  [[nodiscard]] shm::Engine& engine() noexcept { return engine_; }
  [[nodiscard]] const shm::Mesh& mesh() const noexcept { return engine_.mesh(); }
  [[nodiscard]] shm::Region& region() noexcept { return *engine_.mesh().own; }
  [[nodiscard]] std::shared_ptr<collective::Arena> arena() const noexcept { return engine_.mesh().own; }
  /// Memory in the own region that exchanges of this channel use one after the other: at least `bytes`; NULL for none. It
  /// stays where it is as long as this object. Throws OUT_OF_MEMORY.
  [[nodiscard]] std::byte* place(int64_t bytes);
  [[nodiscard]] bootstrap::Control& group_control() noexcept { return *context_.control; }
  [[nodiscard]] int32_t world_size() const noexcept { return context_.control->size(); }
  [[nodiscard]] std::string describe() const { return way_; }

  /// The sum goes to all ranks.
  [[nodiscard]] Crossing all_reduce(int64_t count, const cpu::ReduceRule& rule, size_t words) const;
  /// Each rank owns its part in `by_rank`, in ascending order.
  [[nodiscard]] Crossing exchange(const socket::FlatOwnership& by_rank, int64_t count, const cpu::ReduceRule& rule,
                                  size_t words, socket::Phases phases) const;

  /// All ranks of the host have announced, or will: wait for them, compare.
  void gather_here(uint64_t sequence);
  /// After that: no rank continues before all ranks of all hosts have come.
  void cross(uint64_t sequence, collective::Stamp stamp);
  /// After that, on a rank with a rail: bytes to the next host, and bytes of the one before.
  void pass_on(uint64_t sequence, collective::Stamp stamp, const Tensor& sent, const Tensor& received);
  /// After that: the exchange with all other hosts. `header`: of this host; afterwards of all.
  void run(uint64_t sequence, collective::Stamp stamp, HostReduceInput& mine, const Crossing& crossing,
           collective::BucketHeader& header);

  /// Runs `body`; an error of it breaks the group.
  template <class Body>
  void or_break(Body&& body) {
    on_error<Error>(body, [this](const Error& error) { break_group(error); });
  }

  [[nodiscard]] int64_t sent_bytes() const noexcept { return rail_ != nullptr ? rail_->sent_bytes() : 0; }
  void shutdown() noexcept {
    if (rail_ != nullptr) rail_->leave();
    monitor_.reset();  // or the end of the process is a death
  }
  void wake() noexcept;

 private:
  [[noreturn]] void break_group(const Error& error);
  void wait_for_rails(uint64_t sequence, int32_t rails);
  void show_done(uint64_t sequence) noexcept;
  void show_header(uint64_t sequence, const collective::BucketHeader& header) noexcept;
  void read_header(uint64_t sequence, collective::BucketHeader& header) const noexcept;
  /// By host: what the ranks that use rail `rail` of `rails` own.
  [[nodiscard]] socket::FlatOwnership by_host(const socket::FlatOwnership& by_rank, int32_t rail, int32_t rails) const;

  collective::TransportContext context_;
  Layout layout_;
  socket::SocketOptions options_;
  socket::Shares shares_;
  HostControl control_;
  shm::Engine engine_;
  std::optional<shm::PeerMonitor> monitor_;     // of the first channel, for all of them
  std::unique_ptr<socket::SocketMember> rail_;  // NULL: this host has more ranks than there are rails
  struct {
    std::vector<std::byte*> memory;  // of place(); the last is used
    int64_t bytes = 0;               // of that
  } place_;
  std::string way_;
};

}  // namespace ddp::hierarchy
