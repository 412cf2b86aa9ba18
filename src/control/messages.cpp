// SPDX-License-Identifier: Apache-2.0
#include "control/messages.hpp"

#include <algorithm>
#include <cstring>

#include "core/bytes.hpp"
#include "core/error_bytes.hpp"

namespace ddp::bootstrap::messages {
namespace {

constexpr std::string_view kServerMagic("libddp/s", 8);
constexpr std::string_view kClientMagic("libddp/c", 8);

[[noreturn]] void refuse(const char* what) { throw make_error(DDP_ERROR_IO, "a control message with %s", what); }

template <size_t N>
void put(ByteWriter& writer, const std::array<unsigned char, N>& bytes) {
  writer.text({reinterpret_cast<const char*>(bytes.data()), N});
}

template <size_t N>
void get(ByteReader& reader, std::array<unsigned char, N>& bytes) {
  const std::string_view text = reader.text();
  if (text.size() != N) refuse("a field of a wrong size");
  std::memcpy(bytes.data(), text.data(), N);
}

std::string get_text(ByteReader& reader, size_t limit) {
  const std::string_view text = reader.text();
  if (text.size() > limit) refuse("a text that is too long");
  return std::string(text);
}

void expect_end(const ByteReader& reader) {
  if (!reader.at_end()) refuse("something after its end");
}

// Texts that equal those of the member before are left out: ranks of one host are neighbours.
enum Shared : uint8_t { kSharedHost = 1, kSharedBoot = 2, kSharedAddress = 4, kSharedAll = 7 };

void put_member(ByteWriter& writer, const Member& member, const Member& before = {}) {
  const auto cut = [](const std::string& text) { return std::string_view(text).substr(0, limits::kHostBytes); };
  uint8_t shared = 0;
  if (member.host == before.host) shared |= kSharedHost;
  if (member.boot_id == before.boot_id) shared |= kSharedBoot;
  if (member.address == before.address) shared |= kSharedAddress;
  writer.number(member.rank).number(member.world_rank).number(member.id).number(member.pid).number(shared);
  if ((shared & kSharedHost) == 0) writer.text(cut(member.host));
  if ((shared & kSharedBoot) == 0) writer.text(cut(member.boot_id));
  if ((shared & kSharedAddress) == 0) writer.text(cut(member.address));
}

Member get_member(ByteReader& reader, const Member& before = {}) {
  Member member;
  member.rank = reader.number<int32_t>();
  member.world_rank = reader.number<int32_t>();
  member.id = reader.number<int32_t>();
  member.pid = reader.number<int64_t>();
  const auto shared = reader.number<uint8_t>();
  if (shared > kSharedAll) refuse("a text that is shared with nothing");
  const auto text = [&](Shared which, const std::string& same) {
    return (shared & which) != 0 ? same : get_text(reader, limits::kHostBytes);
  };
  member.host = text(kSharedHost, before.host);
  member.boot_id = text(kSharedBoot, before.boot_id);
  member.address = text(kSharedAddress, before.address);
  return member;
}

void put_error(ByteWriter& writer, const Error& error) {
  writer.number(static_cast<int32_t>(error.status())).number(error.culprit());
  writer.text(std::string_view(error.text()).substr(0, limits::kTextBytes));
  write_details(writer, error);
}

Error get_error(ByteReader& reader) {
  const auto status = reader.number<int32_t>();
  const auto culprit = reader.number<int32_t>();
  std::string text = get_text(reader, limits::kTextBytes);
  if (status <= DDP_OK || status > 64) refuse("a status that does not exist");
  return read_details(reader, Error(static_cast<ddp_status>(status), std::move(text)).about(culprit));
}

UserCall get_call(ByteReader& reader) {
  const auto call = reader.number<uint16_t>();
  if (call > static_cast<uint16_t>(kLastUserCall)) refuse("a call that does not exist");
  return static_cast<UserCall>(call);
}

void put_where(ByteWriter& writer, const Whereabouts& where) {
  writer.number(where.bucket).number(where.pass);
  writer.number(static_cast<uint16_t>(where.call)).number(static_cast<uint8_t>(where.in_call));
  writer.number(where.awaits).number(where.moved);
}

Whereabouts get_where(ByteReader& reader) {
  Whereabouts where;
  where.bucket = reader.number<int32_t>();
  where.pass = reader.number<int64_t>();
  where.call = get_call(reader);
  where.in_call = reader.number<uint8_t>() != 0;
  where.awaits = reader.number<int32_t>();
  where.moved = reader.number<uint64_t>();
  return where;
}

}  // namespace

std::string write(const Banner& message) {
  ByteWriter writer;
  writer.text(kServerMagic).number(message.protocol).number(static_cast<uint8_t>(message.wants_token));
  put(writer, message.group);
  put(writer, message.nonce);
  return std::move(writer).bytes();
}

Banner read_banner(std::string_view body) {
  ByteReader reader(body);
  if (reader.text() != kServerMagic) refuse("no libddp banner in it");
  Banner banner;
  banner.protocol = reader.number<uint32_t>();
  banner.wants_token = reader.number<uint8_t>() != 0;
  get(reader, banner.group);
  get(reader, banner.nonce);
  expect_end(reader);
  return banner;
}

std::string write(const Hello& message) {
  ByteWriter writer;
  writer.text(kClientMagic).number(message.protocol);
  put(writer, message.group);
  writer.number(message.rank).number(message.size);
  put(writer, message.nonce);
  put(writer, message.proof);
  return std::move(writer).bytes();
}

Hello read_hello(std::string_view body) {
  ByteReader reader(body);
  if (reader.text() != kClientMagic) refuse("no libddp greeting in it");
  Hello hello;
  hello.protocol = reader.number<uint32_t>();
  if (hello.protocol != limits::kProtocol) return hello;  // what follows may be anything
  get(reader, hello.group);
  hello.rank = reader.number<int32_t>();
  hello.size = reader.number<int32_t>();
  get(reader, hello.nonce);
  get(reader, hello.proof);
  expect_end(reader);
  return hello;
}

std::string write(const Welcome& message) {
  ByteWriter writer;
  put(writer, message.proof);
  return std::move(writer).bytes();
}

Welcome read_welcome(std::string_view body) {
  ByteReader reader(body);
  Welcome welcome;
  get(reader, welcome.proof);
  expect_end(reader);
  return welcome;
}

std::string write(const Join& message) {
  ByteWriter writer;
  put_member(writer, message.member);
  writer.number(message.left_ms).number(message.limit_ms);
  return std::move(writer).bytes();
}

Join read_join(std::string_view body) {
  ByteReader reader(body);
  Join join;
  join.member = get_member(reader);
  join.left_ms = reader.number<int64_t>();
  join.limit_ms = reader.number<int64_t>();
  expect_end(reader);
  return join;
}

std::string write(const Table& message) {
  ByteWriter writer;
  writer.number(message.heartbeat_ms).number(message.dead_after_ms).number(message.receiver);
  writer.number(static_cast<uint32_t>(message.members.size()));
  const Member nobody;
  const Member* before = &nobody;
  for (const Member& member : message.members) {
    put_member(writer, member, *before);
    before = &member;
  }
  return std::move(writer).bytes();
}

Table read_table(std::string_view body) {
  ByteReader reader(body);
  Table table;
  table.heartbeat_ms = reader.number<int64_t>();
  table.dead_after_ms = reader.number<int64_t>();
  table.receiver = reader.number<int32_t>();
  const auto count = reader.number<uint32_t>();
  for (uint32_t i = 0; i < count; ++i) {  // grows only with what is really there
    table.members.push_back(get_member(reader, table.members.empty() ? Member{} : table.members.back()));
    if (table.members.back().rank != static_cast<int32_t>(i)) refuse("ranks that are out of order");
  }
  expect_end(reader);
  return table;
}

std::string write(uint64_t sequence, int64_t left_ms, int64_t limit_ms, UserCall call, std::string_view what,
                  std::string_view blob) {
  ByteWriter writer;
  writer.number(sequence)
      .number(left_ms)
      .number(limit_ms)
      .number(static_cast<uint16_t>(call))
      .text(what.substr(0, limits::kNameBytes))
      .text(blob);
  return std::move(writer).bytes();
}

Gather read_gather(std::string_view body) {
  ByteReader reader(body);
  Gather gather;
  gather.sequence = reader.number<uint64_t>();
  gather.left_ms = reader.number<int64_t>();
  gather.limit_ms = reader.number<int64_t>();
  gather.call = get_call(reader);
  gather.what = get_text(reader, limits::kNameBytes);
  gather.blob = get_text(reader, limits::kBlobBytes);
  expect_end(reader);
  return gather;
}

std::string write(const Reply& message) {
  ByteWriter writer;
  writer.number(message.sequence).number(static_cast<uint32_t>(message.blobs.size()));
  const auto end = message.blobs.end();
  for (auto from = message.blobs.begin(); from != end;) {
    const auto to = std::find_if(from, end, [&](const std::string& blob) { return blob != *from; });
    writer.number(static_cast<uint32_t>(to - from)).text(*from);
    from = to;
  }
  return std::move(writer).bytes();
}

Reply read_reply(std::string_view body) {
  ByteReader reader(body);
  Reply reply;
  reply.sequence = reader.number<uint64_t>();
  const auto count = reader.number<uint32_t>();
  if (count > static_cast<uint32_t>(limits::kRanks)) refuse("too many ranks");
  size_t bytes = 0;
  while (reply.blobs.size() < count) {
    const auto ranks = reader.number<uint32_t>();
    const std::string blob = get_text(reader, limits::kBlobBytes);
    if (ranks == 0 || ranks > count - reply.blobs.size()) refuse("contributions of ranks that do not exist");
    bytes += ranks * blob.size();
    if (bytes > limits::kGatherBytes) refuse("contributions that are too long");
    reply.blobs.insert(reply.blobs.end(), ranks, blob);
  }
  expect_end(reader);
  return reply;
}

std::string write(const ReplyError& message) {
  ByteWriter writer;
  writer.number(message.sequence);
  put_error(writer, message.error);
  return std::move(writer).bytes();
}

ReplyError read_reply_error(std::string_view body) {
  ByteReader reader(body);
  const auto sequence = reader.number<uint64_t>();
  ReplyError message{sequence, get_error(reader)};
  expect_end(reader);
  return message;
}

std::string write(const Beat& message) {
  ByteWriter writer;
  writer.number(static_cast<uint32_t>(message.ranks.size()));
  for (const Progress& at : message.ranks) {
    writer.number(at.rank).number(at.silent_ms);
    put_where(writer, at.where);
  }
  return std::move(writer).bytes();
}

Beat read_beat(std::string_view body) {
  ByteReader reader(body);
  const auto count = reader.number<uint32_t>();
  if (count > kRanksInBeat) refuse("too many ranks");
  Beat beat;
  for (uint32_t i = 0; i < count; ++i) {
    Progress at;
    at.rank = reader.number<int32_t>();
    at.silent_ms = reader.number<int64_t>();
    at.where = get_where(reader);
    beat.ranks.push_back(at);
  }
  expect_end(reader);
  return beat;
}

std::string write(const Error& message) {
  ByteWriter writer;
  put_error(writer, message);
  return std::move(writer).bytes();
}

Error read_error(std::string_view body) {
  ByteReader reader(body);
  Error error = get_error(reader);
  expect_end(reader);
  return error;
}

std::string write(const std::optional<BlockedCall>& message) {
  ByteWriter writer;
  writer.number(static_cast<uint8_t>(message.has_value()));
  if (!message.has_value()) return std::move(writer).bytes();
  writer.number(static_cast<uint16_t>(message->call)).number(static_cast<uint8_t>(message->exchange));
  writer.number(static_cast<uint8_t>(message->channel)).number(message->number).number(message->gathers);
  for (const uint64_t each : message->collectives) writer.number(each);
  return std::move(writer).bytes();
}

std::optional<BlockedCall> read_blocked(std::string_view body) {
  ByteReader reader(body);
  const auto is_blocked = reader.number<uint8_t>();
  if (is_blocked > 1) refuse("neither yes nor no");
  if (is_blocked == 0) {
    expect_end(reader);
    return std::nullopt;
  }
  BlockedCall blocked;
  blocked.call = get_call(reader);
  const auto exchange = reader.number<uint8_t>();
  if (exchange != static_cast<uint8_t>(BlockedCall::Exchange::kCollective) &&
      exchange != static_cast<uint8_t>(BlockedCall::Exchange::kGather))
    refuse("an exchange of an unknown kind");
  blocked.exchange = static_cast<BlockedCall::Exchange>(exchange);
  blocked.channel = reader.number<uint8_t>();
  if (blocked.channel >= kMostChannels) refuse("a channel that no group has");
  blocked.number = reader.number<uint64_t>();
  blocked.gathers = reader.number<uint64_t>();
  for (uint64_t& each : blocked.collectives) each = reader.number<uint64_t>();
  expect_end(reader);
  return blocked;
}

std::string write(const Death& message) {
  ByteWriter writer;
  writer.number(message.rank);
  return std::move(writer).bytes();
}

Death read_death(std::string_view body) {
  ByteReader reader(body);
  const Death death{reader.number<int32_t>()};
  expect_end(reader);
  return death;
}

std::string write(const Letter& message) { return ByteWriter().number(message.rank).text(message.text).bytes(); }

Letter read_letter(std::string_view body) {
  ByteReader reader(body);
  Letter letter{reader.number<int32_t>(), std::string(reader.text())};
  if (letter.text.size() > limits::kLetterBytes) refuse("a letter that is too long");
  expect_end(reader);
  return letter;
}

std::string write(const Bye& message) {
  ByteWriter writer;
  writer.number(static_cast<uint8_t>(message.how));
  put_where(writer, message.where);
  return std::move(writer).bytes();
}

Bye read_bye(std::string_view body) {
  ByteReader reader(body);
  const auto how = reader.number<uint8_t>();
  if (how < static_cast<uint8_t>(Leaving::kGroup) || how > static_cast<uint8_t>(Leaving::kProcessInside))
    refuse("a goodbye of an unknown kind");
  const Bye bye{static_cast<Leaving>(how), get_where(reader)};
  expect_end(reader);
  return bye;
}

}  // namespace ddp::bootstrap::messages
