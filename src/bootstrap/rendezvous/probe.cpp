// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/rendezvous/probe.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "bootstrap/control/codec.hpp"
#include "bootstrap/control/interfaces.hpp"
#include "bootstrap/control/limits.hpp"
#include "bootstrap/control/messages.hpp"
#include "bootstrap/control/texts.hpp"
#include "core/attempt.hpp"

namespace ddp::bootstrap {
namespace {

constexpr int64_t kConnectMs = 2'000;
constexpr int64_t kBannerMs = 1'000;
constexpr int64_t kReachMs = 1'500;  // of a watch, after which what it looks at is out of reach
constexpr int64_t kWelcomeMs = 5'000;
constexpr size_t kAnswerBytes = limits::kTextBytes + 64;

os::Deadline sooner(const os::Deadline& deadline, int64_t ms) {
  return os::Deadline::in_ms(std::clamp<int64_t>(deadline.left_ms(), 1, ms));
}

// The next frame; nothing if the other side ends or is silent for too long. Throws what is no frame.
std::optional<Frame> read_any(const net::Socket& socket, FrameReader& reader, const os::Deadline& deadline) {
  std::array<char, 256> bytes;
  while (net::wait_for(socket, POLLIN, deadline)) {
    // What comes after this frame must stay in the socket: no more than it can need.
    const ssize_t seen = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_PEEK);
    if (seen < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (seen <= 0) return std::nullopt;
    std::string_view rest(bytes.data(), static_cast<size_t>(seen));
    std::optional<Frame> frame = reader.read(rest);
    const size_t used = static_cast<size_t>(seen) - rest.size();
    if (::recv(socket.get(), bytes.data(), used, MSG_DONTWAIT) != static_cast<ssize_t>(used)) return std::nullopt;
    if (frame.has_value()) return frame;
  }
  return std::nullopt;
}

// What `read` gives; nothing if what was sent is not ours: a foreign service, by chance with the beginning of a frame.
template <class Read>
auto if_ours(Read&& read) -> decltype(read()) {
  decltype(read()) result;
  static_cast<void>(try_to<Error>([&] { result = read(); }));
  return result;
}

std::optional<Frame> read_frame(const net::Socket& socket, FrameReader& reader, const os::Deadline& deadline) {
  return if_ours([&] { return read_any(socket, reader, deadline); });
}

std::optional<messages::Banner> read_banner(const net::Socket& socket, FrameReader& reader, const os::Deadline& deadline) {
  const auto frame = read_frame(socket, reader, deadline);
  if (!frame.has_value() || frame->type != FrameType::kBanner) return std::nullopt;
  return if_ours([&] { return std::optional(messages::read_banner(frame->body)); });
}

bool send_all(const net::Socket& socket, const std::string& bytes) {
  // A greeting fits into an empty socket's buffer.
  return ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

Probe nobody(std::string record) { return {Probe::Answer::kNobody, {}, {}, std::move(record)}; }
Probe refused(Error why) {
  std::string record = why.text();
  return {Probe::Answer::kRefused, {}, std::move(why), std::move(record)};
}

std::string frame_bytes(FrameWriter& writer, FrameType type, const Body& body) {
  const FrameWriter::Ends ends = writer.frame(type, body);
  return ends.head + body.bytes() + ends.tail;
}

// The banner was right: prove who we are, and let rank 0 prove it too.
Probe greet(net::Socket socket, FrameReader& reader, const Address& target, const auth::Claim& claim,
            const os::Deadline& deadline, const FirstWords& words) {
  messages::Hello hello;
  hello.group = claim.group;
  hello.rank = claim.rank;
  hello.size = claim.size;
  hello.nonce = claim.client;
  hello.proof = auth::prove(target.token, auth::Role::kClient, claim);
  Admission admission;
  std::string said = frame_bytes(admission.writer, FrameType::kHello, Body(messages::write(hello)));
  if (target.token.has_value()) admission.keys = auth::session_keys(target.token, claim);
  if (admission.keys.has_value()) admission.writer.secure(admission.keys->to_server);
  admission.has_said_first_words = words != nullptr;
  if (words)
    for (const FirstWord& word : words(socket)) said += frame_bytes(admission.writer, word.type, *word.body);
  if (!send_all(socket, said)) return nobody("the connection to " + target.where.text() + " broke");
  const auto answer = read_frame(socket, reader, sooner(deadline, kWelcomeMs));
  if (!answer.has_value()) return nobody("rank 0 at " + target.where.text() + " ended the connection");
  if (answer->type == FrameType::kRefuse) return refused(messages::read_error(answer->body));
  if (answer->type != FrameType::kWelcome) return nobody(target.where.text() + " did not answer as rank 0 does");
  if (!auth::is_proof(messages::read_welcome(answer->body).proof, target.token, auth::Role::kServer, claim))
    return refused(texts::wrong_token());
  admission.link_key = auth::link_key(target.token, claim.group);
  admission.socket = std::move(socket);
  return {Probe::Answer::kAdmitted, std::move(admission), {}, {}};
}

}  // namespace

namespace {

net::Socket require_descriptors(net::Socket socket, const Address& target, int error) {
  if (!socket && status_of_errno(error, DDP_OK) != DDP_OK)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY, "no connection to %s can be made: %s%s", target.where.text().c_str(),
                     std::strerror(error), advice_of_errno(error));
  return socket;
}

/// The other side will speak first.
Probe enter_at(net::Socket socket, const Address& target, int32_t rank, int32_t size, os::Deadline deadline,
               const FirstWords& words) {
  FrameReader reader(kAnswerBytes);
  const auto banner = read_banner(socket, reader, sooner(deadline, kBannerMs));
  if (!banner.has_value()) return {Probe::Answer::kForeign, {}, {}, "another program listens at " + target.where.text()};
  if (banner->group != target.group) {
    const bool same = banner->protocol == limits::kProtocol;
    return {Probe::Answer::kOtherGroup,
            {},
            {},
            "another group meets at " + target.where.text() + (same ? "" : ", with another version of libddp")};
  }
  if (banner->protocol != limits::kProtocol) return refused(texts::different_protocol(limits::kProtocol, banner->protocol));
  if (banner->wants_token != target.token.has_value()) return refused(texts::token_on_one_side(banner->wants_token));
  const auth::Claim claim{banner->nonce, auth::random_nonce(), target.group, rank, size};
  return greet(std::move(socket), reader, target, claim, deadline, words);
}

}  // namespace

Probe probe(const Address& target, int32_t rank, int32_t size, os::Deadline deadline, const FirstWords& words) {
  int error = 0;
  net::Socket socket =
      require_descriptors(net::connect_to(target.where, sooner(deadline, kConnectMs), error), target, error);
  if (!socket) {
    Probe answer = nobody(target.where.text() + net::way_to(target.where) + ": " + std::strerror(error));
    answer.error = error;
    return answer;
  }
  return enter_at(std::move(socket), target, rank, size, deadline, words);
}

void Watch::begin() {
  int error = 0;
  if (reached_by_.is_never()) reached_by_ = os::Deadline::in_ms(kReachMs);
  socket_ = require_descriptors(net::begin_connect(target_.where, error), target_, error);
  if (!socket_ && error == ECONNREFUSED) state_ = State::kGone;
}

void Watch::look_whether_connected() {
  if (reached_by_.passed()) state_ = State::kUnreachable;
  pollfd connected{socket_.get(), POLLOUT, 0};
  if (!socket_ || ::poll(&connected, 1, 0) <= 0) return;
  const int error = net::connect_error(socket_, target_.where);
  if (error == ECONNREFUSED) state_ = State::kGone;
  if (error != 0) return socket_.reset();
  state_ = State::kListening;
  reached_by_ = os::Deadline::never();
}

// Nothing, a banner, or the end of the connection: of whoever served, or of a process with connections that it never took.
void Watch::look_at_answer() {
  char first = 0;
  const ssize_t seen = ::recv(socket_.get(), &first, 1, MSG_DONTWAIT | MSG_PEEK);
  if (seen > 0) state_ = State::kServing;
  if (seen > 0 || (seen < 0 && (errno == EAGAIN || errno == EINTR))) return;
  socket_.reset();
  state_ = State::kConnecting;
}

Watch::State Watch::look() {
  if (state_ == State::kGone) return state_;
  if (!socket_) begin();
  if (state_ == State::kConnecting || state_ == State::kUnreachable) look_whether_connected();
  if (state_ == State::kListening) look_at_answer();
  return state_;
}

Probe Watch::enter(int32_t rank, int32_t size, os::Deadline deadline) {
  Probe answer = enter_at(std::move(socket_), target_, rank, size, deadline, {});
  // Another group's port: the process that had it has ended. What is no banner may be half of one.
  state_ = answer.answer == Probe::Answer::kOtherGroup ? State::kGone : State::kConnecting;
  return answer;
}

std::string read_signpost(const Admission& admission, os::Deadline deadline) {
  FrameReader reader(kAnswerBytes);
  if (admission.keys.has_value()) reader.secure(admission.keys->to_client);
  auto frame = read_frame(admission.socket, reader, sooner(deadline, kWelcomeMs));
  return frame.has_value() && frame->type == FrameType::kPlace ? std::move(frame->body) : std::string();
}

Probe::Answer peek(const Address& target, os::Deadline deadline) {
  int error = 0;
  const net::Socket socket = net::connect_to(target.where, sooner(deadline, kConnectMs), error);
  if (!socket) return Probe::Answer::kNobody;
  FrameReader reader(kAnswerBytes);
  const auto banner = read_banner(socket, reader, sooner(deadline, kBannerMs));
  if (!banner.has_value()) return Probe::Answer::kForeign;
  return banner->group == target.group ? Probe::Answer::kAdmitted : Probe::Answer::kOtherGroup;
}

}  // namespace ddp::bootstrap
