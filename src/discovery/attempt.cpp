// SPDX-License-Identifier: Apache-2.0
#include "discovery/attempt.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "control/codec.hpp"
#include "control/interfaces.hpp"
#include "control/limits.hpp"
#include "control/messages.hpp"
#include "control/texts.hpp"
#include "core/attempt.hpp"

namespace ddp::bootstrap {
namespace {

constexpr int64_t kConnectMs = 2'000;
constexpr int64_t kBannerMs = 1'000;
constexpr int64_t kWelcomeMs = 5'000;

std::string unproved(const net::Endpoint& where) {
  return where.text() +
         " answers under the name of this group and does not prove that it is rank 0: its token is another one (make a "
         "token "
         "once, not on each host, and give all ranks the same DDP_TOKEN or DDP_TOKEN_FILE), or another program has that "
         "port";
}

std::string frame_bytes(FrameWriter& writer, FrameType type, const Body& body) {
  return writer.frame(type, body).around(body);
}

// What `read` gives; nothing if what was sent cannot be ours: a foreign service, by chance with the beginning of a frame.
template <class Read>
auto if_ours(Read&& read) -> std::optional<decltype(read())> {
  std::optional<decltype(read())> result;
  static_cast<void>(try_to<Error>([&] { result = read(); }));
  return result;
}

/// Takes no more bytes than the next frame needs, because the following bytes belong to the next user of the connection.
/// False if nothing more is there now; throws if the bytes are no frame. `ended`: the other side has ended.
bool read_on(const net::Socket& socket, FrameReader& reader, std::optional<Frame>& frame, bool& ended) {
  std::array<char, 256> bytes;
  ssize_t seen = 0;
  do {
    seen = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_PEEK);
  } while (seen < 0 && errno == EINTR);
  ended = seen == 0 || (seen < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
  if (seen <= 0) return false;
  std::string_view rest(bytes.data(), static_cast<size_t>(seen));
  frame = reader.read(rest);
  const size_t used = static_cast<size_t>(seen) - rest.size();
  ended = ::recv(socket.get(), bytes.data(), used, MSG_DONTWAIT) != static_cast<ssize_t>(used);
  return !ended;
}

}  // namespace

Attempt::Attempt(Address target, const Caller& caller, FirstWords words, Patience patience)
    : target_(std::move(target)),
      caller_(caller),
      words_(std::move(words)),
      patience_(patience),
      reader_(messages::longest<Error>()) {}

short Attempt::events() const noexcept { return state_ == State::kConnecting ? POLLOUT : POLLIN; }

void Attempt::end(Probe::Answer answer, std::string record) {
  state_ = State::kOver;
  result_.answer = answer;
  result_.record = std::move(record);
  result_.where = target_.where;
  socket_.reset();
}

void Attempt::end_refused(const Error& why) {
  end(Probe::Answer::kRefused, why.text());
  result_.refusal = why;
}

Attempt::State Attempt::look() {
  if (state_ == State::kConnecting && !socket_) begin();
  if (state_ == State::kConnecting) look_whether_connected();
  if (state_ == State::kConnected || state_ == State::kGreeting) look_at_words();
  if (state_ != State::kOver) check_time();
  return state_;
}

void Attempt::begin() {
  int error = 0;
  socket_ = net::begin_connect(target_.where, error);
  if (socket_) {
    if (patience_ == Patience::kShort) over_by_ = os::Deadline::in_ms(kConnectMs);
    return;
  }
  if (status_of_errno(error, DDP_OK) != DDP_OK)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY, "no connection to %s can be made: %s%s", target_.where.text().c_str(),
                     std::strerror(error), advice_of_errno(error));
  end(Probe::Answer::kNobody, target_.where.text() + net::way_to(target_.where) + ": " + std::strerror(error));
  result_.error = error;
}

void Attempt::look_whether_connected() {
  pollfd connected{socket_.get(), POLLOUT, 0};
  if (::poll(&connected, 1, 0) <= 0) return;
  if (const int error = net::connect_error(socket_, target_.where)) {
    end(Probe::Answer::kNobody, target_.where.text() + net::way_to(target_.where) + ": " + std::strerror(error));
    result_.error = error;
    return;
  }
  state_ = State::kConnected;
  over_by_ = patience_ == Patience::kShort ? os::Deadline::in_ms(kBannerMs) : os::Deadline::never();
}

void Attempt::look_at_words() {
  for (bool ended = false; state_ != State::kOver;) {
    std::optional<Frame> frame;
    const std::optional<bool> more = if_ours([&] { return read_on(socket_, reader_, frame, ended); });
    if (!more.has_value())
      return end(claim_.has_value() ? Probe::Answer::kUnproved : Probe::Answer::kForeign,
                 target_.where.text() + " does not speak as rank 0 does");
    if (ended) return end(Probe::Answer::kNobody, target_.where.text() + " ended the connection");
    if (!*more) return;
    if (state_ == State::kConnected && over_by_.is_never()) over_by_ = os::Deadline::in_ms(kWelcomeMs);
    state_ = State::kGreeting;
    if (frame.has_value()) hear(*frame);
  }
}

void Attempt::check_time() {
  if (!over_by_.passed()) return;
  if (state_ == State::kConnecting) {
    end(Probe::Answer::kNobody, target_.where.text() + net::way_to(target_.where) + ": " + std::strerror(ETIMEDOUT));
    result_.error = ETIMEDOUT;
    return;
  }
  end(Probe::Answer::kSilent, claim_.has_value() ? target_.where.text() + " did not answer as rank 0 does"
                                                 : target_.where.text() +
                                                       " accepts connections and sends nothing: rank 0 is stopped or has no "
                                                       "file descriptor left (ulimit -n), or another program listens there");
}

void Attempt::hear(const Frame& frame) {
  if (claim_.has_value()) return hear_welcome(frame);
  if (frame.type != FrameType::kBanner)
    return end(Probe::Answer::kForeign, "another program listens at " + target_.where.text());
  const auto read = if_ours([&] { return messages::read<messages::Banner>(frame.body); });
  if (!read.has_value()) return end(Probe::Answer::kForeign, "another program listens at " + target_.where.text());
  const messages::Banner& banner = *read;
  const bool same_version = banner.protocol == limits::kProtocol;
  if (banner.group != target_.group)
    return end(Probe::Answer::kOtherGroup,
               "another group meets at " + target_.where.text() + (same_version ? "" : ", with another version of libddp"));
  const Error differs = texts::different_protocol(limits::kProtocol, banner.protocol);
  if (!same_version && target_.token.has_value()) return end(Probe::Answer::kUnproved, differs.text());
  if (!same_version) return end_refused(differs);
  if (!target_.token.has_value() && banner.wants_token) return end_refused(texts::token_on_one_side(true));
  if (target_.token.has_value() && !banner.wants_token)
    return end(Probe::Answer::kUnproved, texts::token_on_one_side(false).text());
  greet(banner);
}

// The banner was right: prove who we are, and let rank 0 prove it too.
void Attempt::greet(const messages::Banner& banner) {
  claim_ = auth::Claim{banner.nonce, auth::random_nonce(), target_.group, caller_.rank, caller_.size};
  messages::Hello hello;
  hello.group = claim_->group;
  hello.rank = claim_->rank;
  hello.size = claim_->size;
  hello.nonce = claim_->client;
  hello.proof = auth::prove(target_.token, auth::Role::kClient, *claim_);
  std::string said = frame_bytes(admission_.writer, FrameType::kHello, Body(messages::write(hello)));
  if (target_.token.has_value()) admission_.keys = auth::session_keys(target_.token, *claim_);
  if (admission_.keys.has_value()) admission_.writer.secure(admission_.keys->to_server);
  admission_.has_said_first_words = words_ != nullptr;
  if (words_)
    for (const FirstWord& word : words_(socket_)) said += frame_bytes(admission_.writer, word.type, *word.body);
  // A greeting fits into an empty socket's buffer.
  if (::send(socket_.get(), said.data(), said.size(), MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(said.size()))
    return end(Probe::Answer::kNobody, "the connection to " + target_.where.text() + " broke");
  over_by_ = os::Deadline::in_ms(kWelcomeMs);
}

void Attempt::hear_welcome(const Frame& frame) {
  if (frame.type == FrameType::kRefuse && !target_.token.has_value())
    if (const auto why = if_ours([&] { return messages::read<Error>(frame.body); })) return end_refused(*why);
  const auto proof = if_ours([&] { return messages::read<messages::Welcome>(frame.body).proof; });
  if (frame.type != FrameType::kWelcome || !proof.has_value() ||
      !auth::is_proof(*proof, target_.token, auth::Role::kServer, *claim_))
    return end(Probe::Answer::kUnproved, unproved(target_.where));
  admission_.link_key = auth::link_key(target_.token, claim_->group);
  admission_.socket = std::move(socket_);
  end(Probe::Answer::kAdmitted, "");
  result_.admission = std::move(admission_);
}

}  // namespace ddp::bootstrap
