// SPDX-License-Identifier: Apache-2.0
// Streams between ranks of different hosts, or that share no memory: one TCP connection for each pair that has messages for
// each other, made when one of them first has.
//
// How one is made: the rank that wants it opens a port in the group's range and invites the other one with a letter over the
// control plane (address, and 32 random bytes). That one connects, and both prove that they belong to the group, as for
// every link (handshake.hpp). The port is closed as soon as nobody is invited any more, so a group without new connections
// can be reached at no port. If two ranks invite each other at the same time, the invitation of the lower rank holds.
//
// A thread makes the connections, says when one can be read or written, and does not touch their bytes. It begins with the
// first invitation. Connections are sealed as those of the data links (connection.hpp).
// Threads: as Streams; letters come from the control plane's.
// Tested by process/messages_test.cpp and process/hostile_links_test.cpp.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "exchange/messages/streams.hpp"
#include "exchange/transport.hpp"
#include "os/closed_in_forks.hpp"
#include "socket/link_dialer.hpp"
#include "socket/link_listener.hpp"

namespace ddp::socket {

class MessageLinks final : public messages::Streams {
 public:
  /// This rank listens at `address` (numeric). `table`: of the seals. `bell`: where its threads sleep; none: in memory of
  /// its own.
  MessageLinks(const collective::TransportContext& context, const ddp_socket_table& table, std::string address,
               std::optional<messages::Bell> bell);
  ~MessageLinks() override;
  MessageLinks(const MessageLinks&) = delete;
  MessageLinks& operator=(const MessageLinks&) = delete;

  void open(int32_t peer) override;
  [[nodiscard]] size_t write(int32_t peer, messages::Bytes first, messages::Bytes second) override;
  [[nodiscard]] size_t read(int32_t peer, std::byte* data, size_t count) override;
  [[nodiscard]] const std::vector<int32_t>& sources() override;
  [[nodiscard]] bool has_ended(int32_t peer) override;
  [[nodiscard]] bool is_on_its_way(int32_t peer) override;
  [[nodiscard]] bool is_out_of_reach(int32_t peer) override;
  [[nodiscard]] const messages::Bell& bell() const noexcept override { return bell_; }
  [[nodiscard]] bool is_quick() const noexcept override { return false; }
  void open_all(os::Deadline deadline) override { open_all(deadline, all_others()); }
  /// To these alone.
  void open_all(os::Deadline deadline, const std::vector<int32_t>& peers);
  void finish() noexcept override;

 private:
  struct Pipe {
    enum class State { kNone, kInvited, kDials, kOpen };
    std::atomic<State> state{State::kNone};  // changes under mutex_
    os::Deadline deadline = os::Deadline::never();
    Connection connection;  // set once, before the state is kOpen
    std::unique_ptr<os::ClosedInForks> in_forks;
    std::atomic<bool> readable{false};
    std::atomic<bool> ended{false};
    std::vector<std::byte> ahead;  // read together with what was asked for; from `at` on
    size_t at = 0;
  };
  [[nodiscard]] Pipe& pipe(int32_t peer) noexcept { return pipes_[static_cast<size_t>(peer)]; }
  [[nodiscard]] std::vector<int32_t> all_others() const;
  void end(int32_t peer, int64_t result) noexcept;
  [[nodiscard]] size_t receive(int32_t peer, std::byte* data, size_t count);

  void invited_by(int32_t peer, const std::string& text);
  void start_thread();
  void run() noexcept;
  void turn(std::vector<pollfd>& polled);
  void serve_dialers(const pollfd* polled, size_t number);
  void note_events();
  void adopt(int32_t peer, Connection connection);
  [[nodiscard]] bool is_awaited() const;
  void check_deadlines();
  void break_group(const Error& cause) noexcept;

  const collective::TransportContext context_;
  const Sealing sealing_;
  const std::string address_;
  const int32_t rank_;
  struct OwnBell {
    std::atomic<uint32_t> word{0}, sleeping{0};
  } own_bell_;
  const messages::Bell bell_;
  std::vector<Pipe> pipes_;  // by rank
  std::vector<int32_t> sources_;

  std::mutex mutex_;  // guards what follows
  std::vector<int32_t> opened_;
  std::optional<LinkListener> listener_;
  std::vector<LinkDialer> dialers_;
  net::Socket wake_, events_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace ddp::socket
