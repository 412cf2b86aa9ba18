// SPDX-License-Identifier: Apache-2.0
// Who may join: a mutual challenge and response over a shared token, and the keys that follow from it.
//
// Both sides send 32 random bytes; each proves that it knows the token with HMAC-SHA256 over its role, both challenges, the
// group, the rank and the world size, so that a proof fits one connection, one direction and one slot. From the same inputs
// come two keys, one a direction, with which every later frame is authenticated together with its number. Nothing is
// encrypted. Primitives: libsodium. Pure, except random_nonce(). Any thread.
// Tested by unit/control/control_codec_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::bootstrap::auth {

using Bytes32 = std::array<unsigned char, 32>;
using Nonce = Bytes32;
using Key = Bytes32;
using GroupId = std::array<unsigned char, 16>;
using Tag = std::array<unsigned char, 16>;

/// The shared secret; absent: every peer is accepted (loopback, or by the user's wish).
using Token = std::optional<std::string>;

/// The parameters of a connection. Both sides build them from the data that they sent and received.
struct Claim {
  Nonce server{};
  Nonce client{};
  GroupId group{};
  int32_t rank = 0;
  int32_t size = 0;
};

struct SessionKeys {
  Key to_server{};
  Key to_client{};
};

/// From the kernel. Throws INTERNAL if it has none to give.
[[nodiscard]] Nonce random_nonce();

/// A new token: 64 hexadecimal digits.
[[nodiscard]] std::string random_token();

/// Hexadecimal digits.
[[nodiscard]] std::string hex(std::string_view bytes);

/// What makes a group one of its own: the launcher's job, where its ranks were asked to meet, and its name there. Shown to
/// unauthenticated, so it is a hash.
[[nodiscard]] GroupId group_id(std::string_view job, std::string_view place, std::string_view group_name);

enum class Role { kServer, kClient };
/// All zero without a token.
[[nodiscard]] Bytes32 prove(const Token& token, Role role, const Claim& claim);
/// In constant time.
[[nodiscard]] bool is_proof(const Bytes32& proof, const Token& token, Role role, const Claim& claim);

/// Only with a token.
[[nodiscard]] SessionKeys session_keys(const Token& token, const Claim& claim);

/// For the seal of a link.
[[nodiscard]] Key seal_key(const Token& token, const Claim& claim);

/// A key that the ranks of a group share for connections other than the control plane. All zero without a token.
[[nodiscard]] Key link_key(const Token& token, const GroupId& group);

/// A frame's body is hashed once, however many ranks it goes to.
[[nodiscard]] Bytes32 digest(std::string_view body);
[[nodiscard]] Tag tag(const Key& key, uint64_t number, std::string_view head, const Bytes32& body_digest);
/// In constant time.
[[nodiscard]] bool same(const Tag& a, const Tag& b);

}  // namespace ddp::bootstrap::auth
