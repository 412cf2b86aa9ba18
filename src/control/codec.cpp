// SPDX-License-Identifier: Apache-2.0
#include "control/codec.hpp"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/bytes.hpp"
#include "core/error.hpp"

namespace ddp::bootstrap {
namespace {

// Encryption: XChaCha20-Poly1305.
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

/// The body in secret, of the same length. `tag` proves it, its number and `head`. A key may encrypt each number once.
std::string seal(const auth::Key& key, uint64_t number, std::string_view head, std::string_view body, auth::Tag& tag) {
  std::string sealed(body.size(), '\0');
  unsigned long long tag_bytes = 0;
  const Number nonce = nonce_of(number);
  crypto_aead_xchacha20poly1305_ietf_encrypt_detached(raw(sealed), tag.data(), &tag_bytes, raw(body), body.size(), raw(head),
                                                      head.size(), nullptr, nonce.data(), key.data());
  return sealed;
}

/// The body again, in its place. False, and then it is of no use, unless all are as they were sealed.
bool unseal(const auth::Key& key, uint64_t number, std::string_view head, std::string& body, const auth::Tag& tag) {
  const Number nonce = nonce_of(number);
  return crypto_aead_xchacha20poly1305_ietf_decrypt_detached(raw(body), nullptr, raw(body), body.size(), tag.data(),
                                                             raw(head), head.size(), nonce.data(), key.data()) == 0;
}

constexpr const char* kChanged = "a frame that was changed on its way";
constexpr size_t kSealedForAll = sizeof(uint64_t) + sizeof(auth::Tag);  // in addition to the body: its number, a tag

// Move up to `missing` bytes from the front of `from` to the end of `to`.
void take(std::string& to, size_t missing, std::string_view& from) {
  const size_t count = std::min(missing, from.size());
  to.append(from.substr(0, count));
  from.remove_prefix(count);
}

std::string head_of(FrameType type, size_t bytes) {
  return ByteWriter().number(static_cast<uint32_t>(bytes)).number(static_cast<uint8_t>(type)).bytes();
}

std::string text_of(const auth::Tag& tag) { return {reinterpret_cast<const char*>(tag.data()), tag.size()}; }

auth::Tag tag_of(std::string_view bytes) {
  auth::Tag tag{};
  std::memcpy(tag.data(), bytes.data(), tag.size());
  return tag;
}

}  // namespace

const std::shared_ptr<const SealedBody>& Body::sealed(GroupKey& key) const {
  if (sealed_ == nullptr) {
    auth::Tag tag{};
    const uint64_t number = key.next();
    auto made = std::make_shared<SealedBody>();
    made->bytes = ByteWriter().number(number).bytes() + seal(key.bytes(), number, {}, bytes_, tag);
    made->bytes.append(reinterpret_cast<const char*>(tag.data()), tag.size());
    made->digest = auth::digest(made->bytes);
    sealed_ = std::move(made);
  }
  return sealed_;
}

FrameWriter::Ends FrameWriter::sealed(FrameType type, std::string_view body) {
  auth::Tag tag{};
  Ends ends{head_of(type, body.size()), {}};
  auto made = std::make_shared<SealedBody>();
  made->bytes = seal(*key_, number_, ends.head, body, tag);
  ends.tail = text_of(tag);
  ends.sealed = std::move(made);
  ++number_;  // a frame that could not be made leaves no gap
  return ends;
}

FrameWriter::Ends FrameWriter::group_key() {
  const auth::Key& key = group_->bytes();
  return sealed(FrameType::kGroupKey, {reinterpret_cast<const char*>(key.data()), key.size()});
}

FrameWriter::Ends FrameWriter::frame(FrameType type, const Body& body) {
  if (!key_.has_value()) return {head_of(type, body.bytes().size()), {}};
  if (group_ == nullptr) return sealed(type, body.bytes());
  Ends ends;
  ends.sealed = body.sealed(*group_);
  ends.head = head_of(type, ends.sealed->bytes.size());
  ends.tail = text_of(auth::tag(*key_, number_, ends.head, ends.sealed->digest));
  ++number_;
  return ends;
}

bool FrameReader::take_head(std::string_view& bytes) {
  if (head_.size() == kFrameHead) return true;
  take(head_, kFrameHead - head_.size(), bytes);
  if (head_.size() < kFrameHead) return false;
  ByteReader reader(head_);
  length_ = reader.number<uint32_t>();
  const auto type = reader.number<uint8_t>();
  if (type == 0 || type > kLastFrameType) throw make_error(DDP_ERROR_IO, "a frame of the unknown type %u", type);
  if (length_ > limit_ + (group_.has_value() ? kSealedForAll : 0))
    throw make_error(DDP_ERROR_IO, "a frame of %u bytes where %zu are possible", length_, limit_);
  frame_.type = static_cast<FrameType>(type);
  return true;
}

void FrameReader::open() {
  const auth::Tag tag = tag_of(tail_);
  if (group_.has_value())
    open_for_all(tag);
  else if (!unseal(*key_, number_, head_, frame_.body, tag))
    throw Error(DDP_ERROR_IO, kChanged);
  ++number_;
  if (frame_.type == FrameType::kGroupKey && frame_.body.size() == sizeof(auth::Key) && !group_.has_value())
    std::memcpy(group_.emplace().data(), frame_.body.data(), sizeof(auth::Key));
}

// First that it is from rank 0, in its turn.
void FrameReader::open_for_all(const auth::Tag& tag) {
  std::string& body = frame_.body;
  if (body.size() < kSealedForAll || !auth::same(tag, auth::tag(*key_, number_, head_, auth::digest(body))))
    throw Error(DDP_ERROR_IO, kChanged);
  const uint64_t number = ByteReader(body).number<uint64_t>();
  const auth::Tag inner = tag_of(std::string_view(body).substr(body.size() - sizeof(auth::Tag)));
  body.resize(body.size() - sizeof(auth::Tag));
  body.erase(0, sizeof number);
  if (!unseal(*group_, number, {}, body, inner)) throw Error(DDP_ERROR_IO, kChanged);
}

bool FrameReader::take_frame(std::string_view& bytes) {
  if (!take_head(bytes)) return false;
  take(frame_.body, length_ - frame_.body.size(), bytes);
  if (frame_.body.size() < length_) return false;
  if (key_.has_value()) {
    take(tail_, sizeof(auth::Tag) - tail_.size(), bytes);
    if (tail_.size() < sizeof(auth::Tag)) return false;
    open();
  }
  head_.clear();
  tail_.clear();
  return true;
}

std::optional<Frame> FrameReader::read(std::string_view& bytes) {
  while (take_frame(bytes)) {
    Frame done = std::exchange(frame_, Frame());
    if (done.type != FrameType::kGroupKey || !group_.has_value()) return done;
  }
  return std::nullopt;
}

}  // namespace ddp::bootstrap
