// A member's place in a line of ranks: messages to the two neighbours, up (towards the last) and down (towards the first), to any other
// member that it is linked with, and what becomes of a failure. Every failing call closes the rail first, so that no memory is touched when the error arrives at the caller.
//
// Who is named: the first cause of the group if there is one (a broken connection gives the control plane half a second to find the
// dead rank, because the neighbour that closed may be innocent); else the neighbour that was waited for. When several members wait
// because one is late, its own neighbours give up first, each step further away a little later, so that the late one is named. In a direct
// exchange everybody waits for everybody, perhaps for one that waits for the late one: for a frame, then for a part, then for a result.
//
// Threads: one at a time, but for wake(). Allocates nothing after construction but for error texts.
// Tested by unit/comm/chain_failure_test.cpp and process/gloo_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/control.hpp"
#include "comm/failure.hpp"
#include "comm/rail/rail.hpp"
#include "comm/transport.hpp"

namespace ddp {

/// Which neighbour: below is the next smaller position, above the next larger.
enum class Side { kBelow, kAbove };

/// What a message is, so that streams never mix. Parts and results belong to a direct exchange.
enum class Tag : uint64_t { kFrame = 1, kNote = 2, kData = 3, kPart = 4, kResult = 5 };

class Line {
 public:
  /// `ranks[position]` is the group's rank at that position; `rail` has the position as its index. timeout_ms 0: wait for ever.
  /// `counts`: the stamps' numbers are those of the group's collectives.
  Line(Rail& rail, Control& control, Failure& failure, std::vector<int32_t> ranks, int64_t timeout_ms, bool counts = true);

  [[nodiscard]] int32_t position() const noexcept { return rail_.index(); }
  [[nodiscard]] int32_t size() const noexcept { return static_cast<int32_t>(ranks_.size()); }
  [[nodiscard]] int32_t last() const noexcept { return size() - 1; }
  [[nodiscard]] bool is_first() const noexcept { return position() == 0; }
  [[nodiscard]] bool is_last() const noexcept { return position() == last(); }

  /// Connect the link to the member at this position; in ascending order on every member, then no cycle of waits can arise.
  void connect(int32_t peer, std::string_view address);

  /// A message on its way. Waiting for it twice, or for none, is nothing.
  struct Message {
    Rail::Ticket ticket = 0;
    int32_t peer = 0;
    Tag tag = Tag::kFrame;
    bool open = false;
  };
  [[nodiscard]] Message send(int32_t peer, Tag tag, const void* data, int64_t bytes);
  [[nodiscard]] Message receive(int32_t peer, Tag tag, void* data, int64_t bytes);
  [[nodiscard]] Message send(Side side, Tag tag, const void* data, int64_t bytes) { return send(peer(side), tag, data, bytes); }
  [[nodiscard]] Message receive(Side side, Tag tag, void* data, int64_t bytes) { return receive(peer(side), tag, data, bytes); }
  void wait(Message& message);

  // The same without consequences: for what may fail because a neighbour has left in good order.
  [[nodiscard]] Message try_send(Side side, Tag tag, const void* data, int64_t bytes) noexcept;
  [[nodiscard]] Message try_receive(Side side, Tag tag, void* data, int64_t bytes) noexcept;
  void try_wait(Message& message, Deadline deadline) noexcept;

  /// Another rank did something else than this one: MISMATCH for everybody.
  [[noreturn]] void refuse(int32_t other_position, const Stamp& theirs, const Stamp& mine);
  /// A neighbour said goodbye where a collective was expected: ABORTED, or the first cause.
  [[noreturn]] void neighbour_left(Side side);
  /// Break the group with this cause (or the first one, if there is one) and throw it.
  [[noreturn]] void give_up(const Error& cause);

  /// Asked when a connection broke, after the rail was closed: had this neighbour said goodbye?
  void set_goodbye_probe(std::function<bool(Side)> probe) { goodbye_probe_ = std::move(probe); }

  [[nodiscard]] bool broken() const noexcept { return failure_.broken(); }

  /// For Transport::sent_bytes: bytes that were sent inside a frame. Data messages are counted where they are sent.
  void count_sent(int64_t bytes) noexcept { sent_bytes_ += bytes; }
  [[nodiscard]] int64_t sent_bytes() const noexcept { return sent_bytes_; }

  /// What is being done, for error texts; must outlive the doing.
  void set_subject(const Stamp* subject) noexcept { subject_ = subject; }
  /// The group broke: end waits. Any thread.
  void wake() noexcept { rail_.abort(); }

 private:
  [[nodiscard]] int32_t peer(Side side) const noexcept { return side == Side::kBelow ? position() - 1 : position() + 1; }
  [[nodiscard]] int64_t patience_ms(const Message& message) const noexcept;
  [[nodiscard]] bool said_goodbye(int32_t peer) const;
  [[noreturn]] void explain(RailResult result, int32_t peer);
  [[nodiscard]] std::string subject() const { return subject_ != nullptr ? subject_->describe() : "the connection of the group"; }

  Rail& rail_;
  Control& control_;
  Failure& failure_;
  std::vector<int32_t> ranks_;
  int64_t timeout_ms_;
  bool counts_;
  int64_t sent_bytes_ = 0;
  const Stamp* subject_ = nullptr;
  std::function<bool(Side)> goodbye_probe_;
};

}  // namespace ddp
