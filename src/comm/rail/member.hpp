// A place in a chain: the endpoint of a rail, connected to the two neighbours, or to all members where a direct exchange may pay
// (exchange.hpp), with the chain on top. A group may have several chains
// (one over all ranks, one a rail between hosts); each rank makes them in the same order.
//
// Leaving: closing a connection can lose bytes that its peer has not read yet, and the news that a rank left ends the waits of all
// others that wait in shared memory. So a member that goes in good order leaves first: it waits a moment until all have what they need.
// Threads: one at a time, but for wake().
// Tested by unit/comm/chain_test.cpp, process/gloo_test.cpp and process/hierarchy_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/rail/chain.hpp"
#include "comm/rail/rail_abi.h"
#include "comm/transport.hpp"

namespace ddp {

class ChainMember {
 public:
  /// `ranks` are the chain's members in order, this rank among them. Collective over the whole group: a rank without a place in any
  /// of the chains that are being made calls attend(). Throws IO, NOT_SUPPORTED, TIMED_OUT, PEER_FAILED or the first cause.
  ChainMember(const TransportContext& context, const ddp_rail_table& table, const std::string& address, const ChainOptions& options,
              std::vector<int32_t> ranks, int64_t timeout_ms);
  ~ChainMember();
  ChainMember(const ChainMember&) = delete;
  ChainMember& operator=(const ChainMember&) = delete;

  static void attend(const TransportContext& context);

  [[nodiscard]] Chain& chain() noexcept { return *chain_; }
  [[nodiscard]] int64_t sent_bytes() const noexcept { return line_.sent_bytes(); }
  [[nodiscard]] int32_t position() const noexcept { return line_.position(); }
  [[nodiscard]] const char* rail_name() const noexcept { return rail_->name(); }
  /// In good order: half a second at most, nothing if the group is broken. The last call.
  void leave() noexcept;
  void wake() noexcept { line_.wake(); }

 private:
  void connect(Control& control, const std::vector<int32_t>& ranks, Deadline deadline);
  /// Positions that a member is linked with, ascending.
  [[nodiscard]] std::vector<int32_t> linked(int32_t member) const;
  [[nodiscard]] std::string address_told(const std::string& told, int32_t peer) const;

  const ChainOptions options_;
  const Failure& failure_;
  std::shared_ptr<Rail> rail_;
  Line line_;
  std::unique_ptr<Chain> chain_;
};

}  // namespace ddp
