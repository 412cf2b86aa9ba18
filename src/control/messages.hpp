// SPDX-License-Identifier: Apache-2.0
// What the bodies of control frames say. Each message describes its fields and their limits once, in describe(); how they
// are written, read and measured is in fields.hpp. Reading checks every length, count and range, and throws INTERNAL or IO.
// Pure. Any thread. Tested by unit/control/control_codec_test.cpp and fuzz/control_frames_fuzz.cpp.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "control/auth.hpp"
#include "control/call_state.hpp"
#include "control/codec.hpp"
#include "control/control.hpp"
#include "control/fields.hpp"
#include "control/limits.hpp"
#include "core/error_bytes.hpp"

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
  Error error{};
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

using Blocked = std::optional<BlockedCall>;

/// `Message` is one of those above, or of control.hpp; const when it is written.
template <class Message, class Kind>
concept Is = std::same_as<std::remove_const_t<Message>, Kind>;

inline constexpr std::string_view kServerMagic("libddp/s", 8);
inline constexpr std::string_view kClientMagic("libddp/c", 8);
inline constexpr int32_t kLastStatus = 64;

void describe(auto& each, Is<Banner> auto& banner) {
  each.magic(kServerMagic).number(banner.protocol).flag(banner.wants_token).bytes(banner.group).bytes(banner.nonce);
}

void describe(auto& each, Is<Hello> auto& hello) {
  each.magic(kClientMagic);
  if (!each.version(hello.protocol, limits::kProtocol)) return;
  each.bytes(hello.group).number(hello.rank).number(hello.size).bytes(hello.nonce).bytes(hello.proof);
}

void describe(auto& each, Is<Welcome> auto& welcome) { each.bytes(welcome.proof); }

/// Texts that equal those of the member before are left out: ranks of one host are neighbours.
template <class Fields>
void describe(Fields& each, Is<Member> auto& member, const Member& before = {}) {
  each.number(member.rank).number(member.world_rank).number(member.id).number(member.pid);
  auto same = static_cast<uint8_t>((member.host == before.host ? 1 : 0) | (member.boot_id == before.boot_id ? 2 : 0) |
                                   (member.address == before.address ? 4 : 0));
  each.choice(same, uint8_t{0}, uint8_t{7});
  const auto text = [&](auto& own, const std::string& of_before, int bit) {
    if ((same & bit) == 0)
      each.cut(own, limits::kHostBytes);
    else if constexpr (Fields::kFills)
      own = of_before;
  };
  text(member.host, before.host, 1);
  text(member.boot_id, before.boot_id, 2);
  text(member.address, before.address, 4);
}

void describe(auto& each, Is<Join> auto& join) {
  describe(each, join.member);
  each.number(join.left_ms).number(join.limit_ms);
}

void describe(auto& each, Is<Table> auto& table) {
  each.number(table.heartbeat_ms).number(table.dead_after_ms).number(table.receiver);
  const Member nobody;
  each.list(table.members, static_cast<size_t>(limits::kRanks), [&](auto& member, size_t i) {
    describe(each, member, i == 0 ? nobody : table.members[i - 1]);
    each.require(member.rank == static_cast<int32_t>(i), "ranks that are out of order");
  });
}

void describe(auto& each, Is<Gather> auto& gather) {
  each.number(gather.sequence).number(gather.left_ms).number(gather.limit_ms);
  each.choice(gather.call, UserCall::kNone, kLastUserCall);
  each.cut(gather.what, limits::kNameBytes).text(gather.blob, limits::kBlobBytes);
}

void describe(auto& each, Is<Reply> auto& reply) {
  each.number(reply.sequence);
  each.runs(reply.blobs, {static_cast<size_t>(limits::kRanks), limits::kBlobBytes, limits::kGatherBytes});
}

void describe_numbers(auto& each, std::vector<int32_t>& numbers) {
  if (numbers.size() > kListed) numbers.resize(kListed);
  each.list(numbers, kListed, [&](auto& number, size_t) { each.number(number); });
}

template <class Fields>
void describe(Fields& each, Is<Error> auto& error) {
  auto status = static_cast<int32_t>(error.status());
  int32_t culprit = error.culprit();
  std::string text = error.text();
  each.choice(status, DDP_OK + 1, kLastStatus).number(culprit).cut(text, limits::kTextBytes);
  if constexpr (Fields::kFills) error = Error(static_cast<ddp_status>(status), std::move(text)).about(culprit);
  bool has_details = error.details() != nullptr;
  each.flag(has_details);
  if (!has_details) return;
  ErrorDetails details = error.details() != nullptr ? *error.details() : ErrorDetails{};
  describe_numbers(each, details.ranks);
  describe_numbers(each, details.parameters);
  each.number(details.call).number(details.other_call).number(details.bytes_expected).number(details.bytes_got);
  if constexpr (Fields::kFills) error = error.with(std::move(details));
}

void describe(auto& each, Is<ReplyError> auto& reply) {
  each.number(reply.sequence);
  describe(each, reply.error);
}

void describe(auto& each, Is<Whereabouts> auto& where) {
  each.number(where.bucket).number(where.pass);
  each.choice(where.call, UserCall::kNone, kLastUserCall).flag(where.in_call);
  each.number(where.awaits).number(where.moved).number(where.awaits_message);
}

void describe(auto& each, Is<Beat> auto& beat) {
  each.list(beat.ranks, kRanksInBeat, [&](auto& at, size_t) {
    each.number(at.rank).number(at.silent_ms);
    describe(each, at.where);
  });
}

void describe(auto& each, Is<BlockedCall> auto& blocked) {
  using Exchange = BlockedCall::Exchange;
  each.choice(blocked.call, UserCall::kNone, kLastUserCall)
      .choice(blocked.exchange, Exchange::kCollective, Exchange::kMessage);
  each.choice(blocked.channel, uint8_t{0}, static_cast<uint8_t>(kMostChannels - 1));
  each.number(blocked.number).number(blocked.gathers).numbers(blocked.collectives);
  auto& messages = blocked.messages;
  each.flag(blocked.settled).flag(messages.reads).flag(messages.awaited.any).flag(messages.awaited.sends);
  each.number(messages.awaited.peer).number(messages.awaited.tag);
  each.list(messages.streams, kMostStreams, [&](auto& stream, size_t) {
    each.number(stream.peer).number(stream.written).number(stream.read).flag(stream.has_output);
  });
}

template <class Fields>
void describe(Fields& each, Is<Blocked> auto& blocked) {
  bool is_blocked = blocked.has_value();
  each.flag(is_blocked);
  if constexpr (Fields::kFills)
    if (is_blocked) blocked.emplace();
  if (is_blocked) describe(each, *blocked);
}

void describe(auto& each, Is<Death> auto& death) { each.number(death.rank); }

void describe(auto& each, Is<Letter> auto& letter) { each.number(letter.rank).text(letter.text, limits::kLetterBytes); }

void describe(auto& each, Is<Bye> auto& bye) {
  each.choice(bye.how, Leaving::kGroup, Leaving::kProcessInside);
  describe(each, bye.where);
}

/// Call `fn` with std::type_identity of the message that frames of this type hold; not for types without one.
void with_message_of(FrameType type, auto fn) {
  switch (type) {
    case FrameType::kBanner: return fn(std::type_identity<Banner>());
    case FrameType::kHello: return fn(std::type_identity<Hello>());
    case FrameType::kWelcome: return fn(std::type_identity<Welcome>());
    case FrameType::kJoin: return fn(std::type_identity<Join>());
    case FrameType::kTable: return fn(std::type_identity<Table>());
    case FrameType::kGather: return fn(std::type_identity<Gather>());
    case FrameType::kReply: return fn(std::type_identity<Reply>());
    case FrameType::kReplyError: return fn(std::type_identity<ReplyError>());
    case FrameType::kBeat: return fn(std::type_identity<Beat>());
    case FrameType::kRefuse:
    case FrameType::kAbort:
    case FrameType::kFailed: return fn(std::type_identity<Error>());
    case FrameType::kBlocked: return fn(std::type_identity<Blocked>());
    case FrameType::kDeath:
    case FrameType::kWitness: return fn(std::type_identity<Death>());
    case FrameType::kLetter: return fn(std::type_identity<Letter>());
    case FrameType::kBye: return fn(std::type_identity<Bye>());
    case FrameType::kPlace:     // a record as discovery/place writes it
    case FrameType::kGroupKey:  // control/codec reads it
    case FrameType::kHeard: return;
  }
}

template <class Message>
[[nodiscard]] std::string write(const Message& message) {
  fields::Writer writer;
  describe(writer, message);
  return std::move(writer).take();
}

template <class Message>
[[nodiscard]] Message read(std::string_view body) {
  fields::Reader reader(body);
  Message message{};
  describe(reader, message);
  reader.expect_end();
  return message;
}

/// The most bytes that a message has.
template <class Message>
[[nodiscard]] size_t longest() {
  fields::Longest most;
  Message message{};
  describe(most, message);
  return most.size();
}

}  // namespace ddp::bootstrap::messages
