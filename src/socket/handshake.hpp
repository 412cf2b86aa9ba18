// SPDX-License-Identifier: Apache-2.0
// How a connection becomes a link: the connector names its link and proves that it belongs to the group, and
// the listener proves the same. One round trip. Until then only this code reads from it.
//
// The proofs are those of the control plane (control/auth.hpp). Their secret is made of the group's (from the
// token) and of 32 random bytes that each listener sent to the others over the control plane. These are the listener's
// challenge, which members know before they connect: a proof fits one listener, and a group without a token still admits
// only processes that have received them. The connector's 32 random bytes are new for each connection; the listener takes
// each once, so a proof fits one connection (link_listener.hpp). Pure. Any thread. Tested by
// unit/exchange/handshake_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "control/auth.hpp"

namespace ddp::socket {

namespace auth = bootstrap::auth;

inline constexpr size_t kHelloBytes = 8 + 4 + 4 + sizeof(auth::Nonce) + sizeof(auth::Bytes32);
inline constexpr size_t kWelcomeBytes = sizeof(auth::Bytes32);

/// Which connection this is: of which member, and which one of several between the two.
struct LinkName {
  int32_t from = 0;
  int32_t lane = 0;
};

/// Where a member listens, and its part of the secret. Goes over the control plane.
struct Invitation {
  std::string host;  // numeric
  int32_t port = 0;
  auth::Key secret{};
};
[[nodiscard]] std::string write_invitation(const Invitation& invitation);
/// Throws INTERNAL for invalid bytes.
[[nodiscard]] Invitation read_invitation(std::string_view bytes);

/// What both sides of a listener's connections must know.
[[nodiscard]] auth::Token link_token(const auth::Key& group, const auth::Key& listener);

/// The two messages; each has the fixed size above.
[[nodiscard]] std::string write_hello(const auth::Token& token, LinkName link, const auth::Nonce& client);
[[nodiscard]] std::string write_welcome(const auth::Token& token, LinkName link, const auth::Nonce& client);

/// The key of a connection's seal (connection.hpp), which both ends have once the hello was read. The handshake of the seal
/// then takes the place of the welcome: it proves both ends, in as many round trips.
[[nodiscard]] auth::Key seal_key(const auth::Token& token, LinkName link, const auth::Nonce& client);

/// Can these first bytes still become a hello? So that another program's are answered at once.
[[nodiscard]] bool may_be_hello(std::string_view bytes) noexcept;

struct Hello {
  LinkName link;
  auth::Nonce client{};
};
/// Empty without a valid proof. `link` may be none of those that are expected.
[[nodiscard]] std::optional<Hello> read_hello(const auth::Token& token, std::string_view bytes);
[[nodiscard]] bool is_welcome(const auth::Token& token, LinkName link, const auth::Nonce& client, std::string_view bytes);

}  // namespace ddp::socket
