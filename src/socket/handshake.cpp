// SPDX-License-Identifier: Apache-2.0
#include "socket/handshake.hpp"

#include <algorithm>
#include <cstring>

#include "core/bytes.hpp"

namespace ddp::socket {
namespace {

constexpr std::string_view kMagic = "ddplink2";

template <size_t N>
std::string_view view(const std::array<unsigned char, N>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), N};
}

auth::Bytes32 bytes32(std::string_view bytes) {
  auth::Bytes32 out{};
  std::memcpy(out.data(), bytes.data(), out.size());
  return out;
}

// The listener's challenge is in the token.
auth::Claim claim(LinkName link, const auth::Nonce& client) { return {{}, client, {}, link.from, link.lane}; }

template <class Number>
void append(std::string& to, Number number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

int32_t number_at(std::string_view bytes, size_t at) {
  int32_t number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

}  // namespace

std::string write_invitation(const Invitation& invitation) {
  return ByteWriter().text(invitation.host).number(invitation.port).text(view(invitation.secret)).bytes();
}

Invitation read_invitation(std::string_view bytes) {
  ByteReader reader(bytes);
  Invitation out;
  out.host = reader.text();
  out.port = reader.number<int32_t>();
  const std::string_view secret = reader.text();
  if (secret.size() != out.secret.size()) throw Error(DDP_ERROR_INTERNAL, "a link's secret of another size");
  out.secret = bytes32(secret);
  return out;
}

auth::Token link_token(const auth::Key& group, const auth::Key& listener) {
  return std::string(view(group)) + std::string(view(listener));
}

std::string write_hello(const auth::Token& token, LinkName link, const auth::Nonce& client) {
  std::string out(kMagic);
  append(out, link.from);
  append(out, link.lane);
  out += view(client);
  out += view(auth::prove(token, auth::Role::kClient, claim(link, client)));
  return out;
}

std::string write_welcome(const auth::Token& token, LinkName link, const auth::Nonce& client) {
  return std::string(view(auth::prove(token, auth::Role::kServer, claim(link, client))));
}

auth::Key seal_key(const auth::Token& token, LinkName link, const auth::Nonce& client) {
  return auth::seal_key(token, claim(link, client));
}

bool may_be_hello(std::string_view bytes) noexcept {
  const size_t count = std::min(bytes.size(), kMagic.size());
  return bytes.substr(0, count) == kMagic.substr(0, count);
}

std::optional<Hello> read_hello(const auth::Token& token, std::string_view bytes) {
  if (bytes.size() != kHelloBytes || bytes.substr(0, kMagic.size()) != kMagic) return std::nullopt;
  Hello hello;
  size_t at = kMagic.size();
  hello.link = {number_at(bytes, at), number_at(bytes, at + 4)};
  hello.client = bytes32(bytes.substr(at + 8));
  at += 8 + hello.client.size();
  if (!auth::is_proof(bytes32(bytes.substr(at)), token, auth::Role::kClient, claim(hello.link, hello.client)))
    return std::nullopt;
  return hello;
}

bool is_welcome(const auth::Token& token, LinkName link, const auth::Nonce& client, std::string_view bytes) {
  return bytes.size() == kWelcomeBytes && auth::is_proof(bytes32(bytes), token, auth::Role::kServer, claim(link, client));
}

}  // namespace ddp::socket
