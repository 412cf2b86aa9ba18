#include "comm/rendezvous/knock.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "comm/control/codec.hpp"
#include "comm/control/limits.hpp"
#include "comm/control/messages.hpp"
#include "comm/control/texts.hpp"

namespace ddp {
namespace {

constexpr int64_t kConnectMs = 2'000;
constexpr int64_t kBannerMs = 1'000;
constexpr int64_t kWelcomeMs = 5'000;
constexpr size_t kAnswerBytes = limits::kTextBytes + 64;

Deadline sooner(const Deadline& deadline, int64_t ms) {
  return Deadline::in_ms(std::clamp<int64_t>(deadline.left_ms(), 1, ms));
}

// The next frame; nothing if the other side ends, is silent for too long, or does not speak in frames.
std::optional<Frame> read_frame(const net::Socket& socket, FrameReader& reader, const Deadline& deadline) {
  std::array<char, 256> bytes;
  try {
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
  } catch (const Error&) {  // no frame of ours: a foreign service
  }
  return std::nullopt;
}

std::optional<messages::Banner> read_banner(const net::Socket& socket, FrameReader& reader, const Deadline& deadline) {
  const auto frame = read_frame(socket, reader, deadline);
  if (!frame.has_value() || frame->type != FrameType::kBanner) return std::nullopt;
  try {
    return messages::read_banner(frame->body);
  } catch (const Error&) {  // by chance the beginning of a frame
    return std::nullopt;
  }
}

bool send_all(const net::Socket& socket, const std::string& bytes) {
  // A greeting fits into an empty socket's buffer.
  return ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

Knock nobody(std::string note) { return {Knock::Answer::kNobody, {}, {}, std::move(note)}; }
Knock refused(Error why) {
  std::string note = why.text();
  return {Knock::Answer::kRefused, {}, std::move(why), std::move(note)};
}

// The banner was right: prove who we are, and let rank 0 prove it too.
Knock greet(net::Socket socket, FrameReader& reader, const Spot& spot, const auth::Claim& claim, const Deadline& deadline) {
  messages::Hello hello;
  hello.group = claim.group;
  hello.rank = claim.rank;
  hello.size = claim.size;
  hello.nonce = claim.client;
  hello.proof = auth::prove(spot.token, auth::Role::kClient, claim);
  const Body body(messages::write(hello));
  if (!send_all(socket, FrameWriter().frame(FrameType::kHello, body).head + body.bytes()))
    return nobody("the connection to " + spot.where.text() + " broke");
  const auto answer = read_frame(socket, reader, sooner(deadline, kWelcomeMs));
  if (!answer.has_value()) return nobody("rank 0 at " + spot.where.text() + " ended the connection");
  if (answer->type == FrameType::kRefuse) return refused(messages::read_error(answer->body));
  if (answer->type != FrameType::kWelcome) return nobody(spot.where.text() + " did not answer as rank 0 does");
  if (!auth::is_proof(messages::read_welcome(answer->body).proof, spot.token, auth::Role::kServer, claim))
    return refused(texts::wrong_token());
  Knock result{Knock::Answer::kAdmitted, Admission{std::move(socket), {}}, {}, {}};
  if (spot.token.has_value()) result.admission->keys = auth::session_keys(spot.token, claim);
  return result;
}

}  // namespace

Knock knock(const Spot& spot, int32_t rank, int32_t size, Deadline deadline) {
  int error = 0;
  net::Socket socket = net::connect_to(spot.where, sooner(deadline, kConnectMs), error);
  if (!socket && status_of_errno(error, DDP_OK) != DDP_OK)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY, "no connection to %s can be made: %s%s", spot.where.text().c_str(), std::strerror(error),
                     advice_of_errno(error));
  if (!socket) return nobody(spot.where.text() + ": " + std::strerror(error));
  FrameReader reader(kAnswerBytes);
  const auto banner = read_banner(socket, reader, sooner(deadline, kBannerMs));
  if (!banner.has_value()) return {Knock::Answer::kForeign, {}, {}, "another program listens at " + spot.where.text()};
  if (banner->group != spot.group) {
    const bool same = banner->protocol == limits::kProtocol;
    return {Knock::Answer::kOtherGroup, {}, {},
            "another group meets at " + spot.where.text() + (same ? "" : ", with another version of libddp")};
  }
  if (banner->protocol != limits::kProtocol) return refused(texts::different_protocol(limits::kProtocol, banner->protocol));
  if (banner->wants_token != spot.token.has_value()) return refused(texts::token_on_one_side(banner->wants_token));
  const auth::Claim claim{banner->nonce, auth::random_nonce(), spot.group, rank, size};
  return greet(std::move(socket), reader, spot, claim, deadline);
}

Knock::Answer peek(const Spot& spot, Deadline deadline) {
  int error = 0;
  const net::Socket socket = net::connect_to(spot.where, sooner(deadline, kConnectMs), error);
  if (!socket) return Knock::Answer::kNobody;
  FrameReader reader(kAnswerBytes);
  const auto banner = read_banner(socket, reader, sooner(deadline, kBannerMs));
  if (!banner.has_value()) return Knock::Answer::kForeign;
  return banner->group == spot.group ? Knock::Answer::kAdmitted : Knock::Answer::kOtherGroup;
}

}  // namespace ddp
