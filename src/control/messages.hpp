// SPDX-License-Identifier: Apache-2.0
// What the bodies of control frames say. Each message is written and read here and nowhere else; reading checks every
// length, count and range, and throws INTERNAL or IO. Pure. Any thread.
// Tested by unit/control/control_codec_test.cpp and fuzz/control_frames_fuzz.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/auth.hpp"
#include "control/call_state.hpp"
#include "control/control.hpp"
#include "control/limits.hpp"
#include "core/error.hpp"

namespace ddp::bootstrap::messages {

/// The first words of a server. They never change in form, so that other versions know whose they are.
struct Banner {
  uint32_t protocol = limits::kProtocol;
  bool wants_token = false;
  auth::GroupId group{};
  auth::Nonce nonce{};
};

/// The first words of a client.
struct Hello {
  uint32_t protocol = limits::kProtocol;
  auth::GroupId group{};
  int32_t rank = 0;
  int32_t size = 0;
  auth::Nonce nonce{};
  auth::Bytes32 proof{};
};

struct Welcome {
  auth::Bytes32 proof{};
};

struct Join {
  Member member;
  int64_t left_ms = 0;   // how long this rank still waits for the others; 0: for ever
  int64_t limit_ms = 0;  // and its time limit, for error texts
};

/// Rank 0's clocks hold for all.
struct Table {
  int64_t heartbeat_ms = 0;
  int64_t dead_after_ms = 0;
  int32_t receiver = -1;          // after a recovery: which of the members it is sent to; else -1
  std::vector<Member> members{};  // what is that of the rank before is left out on the wire
};

struct Gather {
  uint64_t sequence = 0;
  int64_t left_ms = 0;              // 0: no limit
  int64_t limit_ms = 0;             // for error texts
  UserCall call = UserCall::kNone;  // the same
  std::string what;
  std::string blob;
};

/// By rank. Equal contributions of neighbours are sent once: mostly all ranks contribute the same.
struct Reply {
  uint64_t sequence = 0;
  std::vector<std::string> blobs;
};

struct ReplyError {
  uint64_t sequence = 0;
  Error error{DDP_ERROR_INTERNAL, ""};
};

/// The last known progress of a rank.
struct Progress {
  int32_t rank = 0;
  Whereabouts where{};
  int64_t silent_ms = 0;
};

/// From a client: itself. From the server: those that are furthest behind.
struct Beat {
  std::vector<Progress> ranks;
};
inline constexpr size_t kRanksInBeat = 64;

struct Death {
  int32_t rank = 0;
};

/// A few bytes from one rank to one other.
struct Letter {
  int32_t rank = 0;  // from a client: who gets it; from the server: who wrote it
  std::string text;
};

/// The last of a client, and where it was.
struct Bye {
  Leaving how = Leaving::kGroup;
  Whereabouts where{};
};

[[nodiscard]] std::string write(const Banner& message);
[[nodiscard]] std::string write(const Hello& message);
[[nodiscard]] std::string write(const Welcome& message);
[[nodiscard]] std::string write(const Join& message);
[[nodiscard]] std::string write(const Table& message);
[[nodiscard]] std::string write(uint64_t sequence, int64_t left_ms, int64_t limit_ms, UserCall call, std::string_view what,
                                std::string_view blob);
[[nodiscard]] std::string write(const Reply& message);
[[nodiscard]] std::string write(const ReplyError& message);
[[nodiscard]] std::string write(const Beat& message);
[[nodiscard]] std::string write(const Error& message);
[[nodiscard]] std::string write(const std::optional<BlockedCall>& message);
[[nodiscard]] std::string write(const Death& message);
[[nodiscard]] std::string write(const Letter& message);
[[nodiscard]] std::string write(const Bye& message);

[[nodiscard]] Banner read_banner(std::string_view body);
[[nodiscard]] Hello read_hello(std::string_view body);
[[nodiscard]] Welcome read_welcome(std::string_view body);
[[nodiscard]] Join read_join(std::string_view body);
[[nodiscard]] Table read_table(std::string_view body);
[[nodiscard]] Gather read_gather(std::string_view body);
[[nodiscard]] Reply read_reply(std::string_view body);
[[nodiscard]] ReplyError read_reply_error(std::string_view body);
[[nodiscard]] Beat read_beat(std::string_view body);
[[nodiscard]] Error read_error(std::string_view body);
[[nodiscard]] std::optional<BlockedCall> read_blocked(std::string_view body);
[[nodiscard]] Death read_death(std::string_view body);
[[nodiscard]] Letter read_letter(std::string_view body);
[[nodiscard]] Bye read_bye(std::string_view body);

}  // namespace ddp::bootstrap::messages
