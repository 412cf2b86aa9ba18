// SPDX-License-Identifier: Apache-2.0
// The header round that opens every collective: an all-gather of one record a member. A record holds the stamp, the
// bucket header with the participation of each of the member's ranks, and an inline payload: an array that is small enough
// is sent inside and needs no other message.
//
// Up to kMostDirect members every member sends its record to every other one: one hop. The payload may differ from receiver
// to receiver, and no more bytes are sent than a record has; receives are posted for the largest record. Above that Bruck's
// all-gather is taken (Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing
// systems", 1997): in step k a member sends all records that it has to the member 2^k before it, ceil(log2 n) hops. The
// receives of the next two rounds are always posted, so a record never waits for its receiver.
//
// Promises: swap() returns on no member before all stamps were compared with each other. DIFFERENT_CALLS on all members
// names the same two ranks. Threads: one at a time. Allocates when it is made, the first time that payloads differ, and the
// first time that a bucket header is too long for a record. Memory of payloads is touched only as far as there are any.
// Tested by unit/exchange/collectives_test.cpp and unit/exchange/collectives_failure_test.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <vector>

#include "exchange/transport.hpp"
#include "socket/links.hpp"
#include "socket/shares.hpp"

namespace ddp::socket {

/// Members that take one hop at most.
inline constexpr int32_t kMostDirect = 16;

class HeaderRound {
 public:
  static constexpr int64_t kSmallRecord = 512;  // where records are passed on

  HeaderRound(Links& links, const Shares& shares);
  /// Once, before the first round: post the receives of the first two.
  void arm() noexcept;

  [[nodiscard]] static constexpr bool is_direct(int32_t members) noexcept { return members <= kMostDirect; }
  /// Bytes of payload that a record can hold, in addition to a bucket header of this many words.
  [[nodiscard]] static int64_t room(const Shares& shares, size_t words) noexcept;

  /// Before a round: the rank for which this member has waited before, and how long. The others' waits then count for that
  /// rank.
  void set_late(const collective::Late& late) noexcept {
    head(turn_, links_.position()).late_rank = late.rank;
    head(turn_, links_.position()).late_ns = late.ns;
  }
  /// Before a round: did this member's links lose what was sent to it?
  void set_lost(bool lost) noexcept { head(turn_, links_.position()).flags = lost ? kLost : 0; }
  /// After swap: did any member's?
  [[nodiscard]] bool anybody_lost() const noexcept;
  /// Fill the own record. `cut` is compared between the members, like the stamp. `participations`: of this member's ranks;
  /// empty: they do not matter. Then fill payload() or each payload_to(), say how many bytes of it count, then swap().
  void open(const collective::Stamp& stamp, int64_t cut, const collective::BucketHeader& header,
            const std::vector<collective::Participation>& participations);
  [[nodiscard]] std::byte* payload() noexcept { return payload_of(links_.position()); }
  void set_payload(int64_t bytes) noexcept { std::fill(payloads_.bytes.begin(), payloads_.bytes.end(), bytes); }
  /// For one member alone; then each gets what was put here for it. Where is_direct(). For the own position: payload().
  [[nodiscard]] std::byte* payload_to(int32_t member);
  void set_payload_to(int32_t member, int64_t bytes) noexcept { payloads_.bytes[static_cast<size_t>(member)] = bytes; }
  /// Exchange the records and compare them. `header` is then that of all. Throws DIFFERENT_CALLS on all members.
  void swap(collective::BucketHeader& header);
  /// After swap, until close: the payload of this member.
  [[nodiscard]] std::byte* payload_of(int32_t member) noexcept { return record(turn_, member) + payload_at_; }
  /// After swap: by leaf of the tree. A hole does not count.
  [[nodiscard]] const std::vector<collective::Participation>& participations() const noexcept { return participations_; }
  void close();

  /// This member makes no more collectives. Wait until all members have sent the same, or one makes a call that will fail or
  /// is lost; at most until the deadline.
  void leave(os::Deadline deadline) noexcept;

  /// Hops of a round.
  [[nodiscard]] int32_t hops() const noexcept { return is_direct() ? 1 : static_cast<int32_t>(steps_.size()); }

 private:
  static constexpr uint32_t kIncomplete = 1, kLost = 2;  // flags of a record
  struct Head {
    uint32_t magic;
    uint32_t flags;
    collective::Stamp stamp;
    int64_t cut;
    int32_t words;
    int32_t late_rank;  // for which the member waited before, and
    int64_t late_ns;    // how long
  };
  static_assert(std::is_trivially_copyable_v<Head> && sizeof(Head) == 80);
  /// Records `from_record` to + `count` come from `from`; as many, from the own one on, go to `to`.
  struct Step {
    int32_t from = 0;
    int32_t to = 0;
    int32_t record = 0;
    int32_t count = 0;
    int32_t level = 0;
  };
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  struct Payloads {
    std::vector<int64_t> bytes;                 // by receiver
    bool differ = false;                        // one for each receiver
    std::unique_ptr<std::byte, Free> outgoing;  // the own records, when they do
  };
  struct LongHeaders {             // too long for a record
    std::vector<std::byte> bytes;  // in the order of the records
    std::vector<Links::Message> in, out;
  };
  struct Round {
    std::unique_ptr<std::byte, Free> records;  // the own one first, then those of the members after it
    std::vector<Links::Message> in, out;       // by step
  };

  [[nodiscard]] std::byte* record(size_t turn, int32_t member) const noexcept {
    return rounds_[turn].records.get() + (member + links_.size() - links_.position()) % links_.size() * record_bytes_;
  }
  [[nodiscard]] Head& head(size_t turn, int32_t member) const noexcept {
    return *reinterpret_cast<Head*>(record(turn, member));
  }
  [[nodiscard]] bool is_direct() const noexcept { return is_direct(links_.size()); }
  [[nodiscard]] int64_t header_bytes() const noexcept { return header_bytes(most_ranks_, words_); }
  [[nodiscard]] bool is_inline() const noexcept { return header_bytes() <= plain_bytes(links_.size()) - kHeadBytes; }
  [[nodiscard]] static int64_t header_bytes(size_t ranks, size_t words) noexcept {
    return static_cast<int64_t>(ranks * sizeof(collective::Participation) + words * sizeof(uint64_t));
  }
  /// Of a record with a bucket header, and where records are passed on with a payload too.
  [[nodiscard]] static constexpr int64_t plain_bytes(int32_t members) noexcept {
    return is_direct(members) ? kPlainRecord : kSmallRecord;
  }
  [[nodiscard]] static constexpr int64_t payload_bytes(int32_t members) noexcept {
    return is_direct(members) ? std::clamp(kPayloads / members, kLeastPayload, kMostPayload) / 4096 * 4096 : 0;
  }
  [[nodiscard]] std::byte* outgoing(int32_t member) const noexcept {
    return payloads_.outgoing.get() + member * record_bytes_;
  }
  [[nodiscard]] Links::Message send(size_t step);
  [[nodiscard]] std::byte* header_of(int32_t member) noexcept;
  void plan_steps();
  void arm(size_t turn) noexcept;
  void swap_records();
  void take(size_t step);
  void compare() const;
  void exchange_headers();
  void join(collective::BucketHeader& header);
  bool say_goodbye(size_t turn, os::Deadline deadline) noexcept;

  static constexpr int64_t kHeadBytes = sizeof(Head);
  static constexpr int64_t kPlainRecord = 4096;
  // A payload may be a part of an array for its owner, so this is also how long an exchange of two hops may be.
  static constexpr int64_t kPayloads = int64_t{1} << 20;
  static constexpr int64_t kLeastPayload = int64_t{64} << 10;
  static constexpr int64_t kMostPayload = int64_t{256} << 10;

  Links& links_;
  const Shares& shares_;
  int64_t record_bytes_;
  size_t most_ranks_;
  std::vector<Step> steps_;
  std::array<Round, 2> rounds_;
  size_t turn_ = 0;
  int64_t payload_at_ = kHeadBytes;
  size_t words_ = 0;
  Payloads payloads_;
  std::vector<collective::Participation> participations_;
  LongHeaders long_;
};

}  // namespace ddp::socket
