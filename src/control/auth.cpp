// SPDX-License-Identifier: Apache-2.0
#include "control/auth.hpp"

#include <sodium.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "control/limits.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"

namespace ddp::bootstrap::auth {
namespace {

template <size_t N>
std::string_view view(const std::array<unsigned char, N>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), N};
}

const unsigned char* raw(std::string_view bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }

Bytes32 hmac(std::string_view key, std::string_view message) {
  Bytes32 out{};
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, raw(key), key.size());
  crypto_auth_hmacsha256_update(&state, raw(message), message.size());
  crypto_auth_hmacsha256_final(&state, out.data());
  return out;
}

// Every part has a fixed length or its length before it, so that no two claims make one message.
std::string message(std::string_view purpose, const Claim& claim) {
  return ByteWriter()
      .text("libddp control")
      .number(limits::kProtocol)
      .text(purpose)
      .text(view(claim.server))
      .text(view(claim.client))
      .text(view(claim.group))
      .number(claim.rank)
      .number(claim.size)
      .bytes();
}

}  // namespace

Nonce random_nonce() {
  Nonce nonce{};
  size_t filled = 0;
  while (filled < nonce.size()) {
    const ssize_t got = getrandom(nonce.data() + filled, nonce.size() - filled, 0);
    if (got > 0)
      filled += static_cast<size_t>(got);
    else if (got < 0 && errno != EINTR)
      throw make_error(DDP_ERROR_INTERNAL, "the kernel gives no random bytes: %s", std::strerror(errno));
  }
  return nonce;
}

std::string random_token() { return hex(view(random_nonce())); }

std::string hex(std::string_view bytes) {
  std::string text(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), raw(bytes), bytes.size());
  text.pop_back();
  return text;
}

GroupId group_id(std::string_view job, std::string_view place, std::string_view group_name) {
  const std::string text = ByteWriter().text(job).text(place).text(group_name).bytes();
  GroupId id{};
  crypto_generichash(id.data(), id.size(), raw(text), text.size(), nullptr, 0);
  return id;
}

Bytes32 prove(const Token& token, Role role, const Claim& claim) {
  return token.has_value() ? hmac(*token, message(role == Role::kServer ? "server" : "client", claim)) : Bytes32{};
}

bool is_proof(const Bytes32& proof, const Token& token, Role role, const Claim& claim) {
  const Bytes32 wanted = prove(token, role, claim);
  return sodium_memcmp(proof.data(), wanted.data(), wanted.size()) == 0;
}

SessionKeys session_keys(const Token& token, const Claim& claim) {
  return {hmac(*token, message("key to server", claim)), hmac(*token, message("key to client", claim))};
}

Key seal_key(const Token& token, const Claim& claim) { return hmac(*token, message("key of a seal", claim)); }

Key link_key(const Token& token, const GroupId& group) {
  return token.has_value() ? hmac(*token, ByteWriter().text("libddp links").text(view(group)).bytes()) : Key{};
}

Bytes32 digest(std::string_view body) {
  Bytes32 out{};
  crypto_generichash(out.data(), out.size(), raw(body), body.size(), nullptr, 0);
  return out;
}

Tag tag(const Key& key, uint64_t number, std::string_view head, const Bytes32& body_digest) {
  const Bytes32 whole = hmac(view(key), ByteWriter().number(number).text(head).text(view(body_digest)).bytes());
  Tag out{};
  std::memcpy(out.data(), whole.data(), out.size());
  return out;
}

bool same(const Tag& a, const Tag& b) { return sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace ddp::bootstrap::auth
