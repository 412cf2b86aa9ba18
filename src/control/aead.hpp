// SPDX-License-Identifier: Apache-2.0
// Encryption of control messages: XChaCha20-Poly1305 (libsodium). A key may encrypt each number
// once: the caller counts. Pure. Any thread.
// Tested by unit/control/control_codec_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "control/auth.hpp"

namespace ddp::bootstrap::aead {

/// The body in secret, of the same length. `tag` proves it, its number and `head`.
[[nodiscard]] std::string seal(const auth::Key& key, uint64_t number, std::string_view head, std::string_view body,
                               auth::Tag& tag);
/// The body again, in its place. False, and then it is of no use, unless all are as they were sealed.
[[nodiscard]] bool open(const auth::Key& key, uint64_t number, std::string_view head, std::string& body,
                        const auth::Tag& tag);

}  // namespace ddp::bootstrap::aead
