// SPDX-License-Identifier: Apache-2.0
#include "control/aead.hpp"

#include <sodium.h>

#include <array>
#include <cstring>

namespace ddp::bootstrap::aead {
namespace {

using Number = std::array<unsigned char, crypto_aead_xchacha20poly1305_ietf_NPUBBYTES>;

static_assert(sizeof(auth::Key) == crypto_aead_xchacha20poly1305_ietf_KEYBYTES);
static_assert(sizeof(auth::Tag) == crypto_aead_xchacha20poly1305_ietf_ABYTES);

Number nonce_of(uint64_t number) {
  static const int is_ready = sodium_init();  // chooses the instructions of this processor
  static_cast<void>(is_ready);
  Number nonce{};
  std::memcpy(nonce.data(), &number, sizeof number);
  return nonce;
}

const unsigned char* raw(std::string_view bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }
unsigned char* raw(std::string& bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

}  // namespace

std::string seal(const auth::Key& key, uint64_t number, std::string_view head, std::string_view body, auth::Tag& tag) {
  std::string sealed(body.size(), '\0');
  unsigned long long tag_bytes = 0;
  const Number nonce = nonce_of(number);
  crypto_aead_xchacha20poly1305_ietf_encrypt_detached(raw(sealed), tag.data(), &tag_bytes, raw(body), body.size(), raw(head),
                                                      head.size(), nullptr, nonce.data(), key.data());
  return sealed;
}

bool open(const auth::Key& key, uint64_t number, std::string_view head, std::string& body, const auth::Tag& tag) {
  const Number nonce = nonce_of(number);
  return crypto_aead_xchacha20poly1305_ietf_decrypt_detached(raw(body), nullptr, raw(body), body.size(), tag.data(),
                                                             raw(head), head.size(), nonce.data(), key.data()) == 0;
}

}  // namespace ddp::bootstrap::aead
