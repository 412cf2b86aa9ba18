// SPDX-License-Identifier: Apache-2.0
// Frames: the layout of control messages on a byte stream.
//
//   length of the body (32 bits, little-endian) | type (8 bits) | body | tag (16 bytes, on secured connections only)
//
// On a secured connection bodies are encrypted (XChaCha20-Poly1305), and the tag covers the frame's number on its
// connection, its head and its body, so that frames can be neither read, changed, left out, repeated nor swapped. A rank
// encrypts with the key of its connection. Rank 0 sends many bodies to all ranks, and encrypts each of them once, with a key
// of the group: that key is its first frame on each connection, under the key of the connection, and every later frame has a
// tag made with that one, so that no rank can forge a frame of rank 0. A length above the reader's limit is refused before
// anything is allocated, and a body grows only as its bytes arrive. Pure: no sockets, no clock. One thread at a time. Tested
// by unit/control/control_codec_test.cpp and fuzz/control_frames_fuzz.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "control/auth.hpp"

namespace ddp::bootstrap {

enum class FrameType : uint8_t {
  kBanner = 1,  // server: who listens here, and its challenge
  kHello,       // client: its identity, challenge and proof
  kWelcome,     // server: its proof
  kRefuse,      // server: why not
  kJoin,        // client: host, process, address
  kTable,       // server: all are here, and who they are
  kGather,      // client: a contribution
  kReply,       // server: all contributions
  kReplyError,  // server: why there is no reply
  kBeat,        // both: still here, and where
  kAbort,       // client: break the group
  kFailed,      // server: the group is broken, and why
  kBye,         // client: goodbye
  kBlocked,     // client: what it waits in, or that it waits no longer
  kHeard,       // client: it has received kFailed
  kDeath,       // client: it saw that the process of another rank has ended
  kPlace,       // server of a signpost: the record of the place where the group is
  kWitness,     // client of a recovery: it saw on its own host that the process with this id has ended
  kLetter,      // client: a few bytes for one other rank; server: they came from one
  kGroupKey,    // server: the key of its other frames; read and written here
};
inline constexpr uint8_t kLastFrameType = static_cast<uint8_t>(FrameType::kGroupKey);
inline constexpr size_t kFrameHead = 5;

struct Frame {
  FrameType type = FrameType::kBeat;
  std::string body;
};

/// The key with which rank 0 encrypts, and how many bodies it has. Used by one thread.
class GroupKey {
 public:
  GroupKey() : key_(auth::random_nonce()) {}
  [[nodiscard]] const auth::Key& bytes() const noexcept { return key_; }
  [[nodiscard]] uint64_t next() noexcept { return number_++; }

 private:
  auth::Key key_;
  uint64_t number_ = 0;
};

/// What is sent in place of a body.
struct SealedBody {
  std::string bytes;
  auth::Bytes32 digest{};
};

/// A body that is sent to one or many receivers; never changed, encrypted for all of them at most once. Used by one thread.
class Body {
 public:
  explicit Body(std::string bytes) : bytes_(std::move(bytes)) {}
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }
  [[nodiscard]] const std::shared_ptr<const SealedBody>& sealed(GroupKey& key) const;

 private:
  std::string bytes_;
  mutable std::shared_ptr<const SealedBody> sealed_;
};
using SharedBody = std::shared_ptr<const Body>;
[[nodiscard]] inline SharedBody shared_body(std::string bytes) { return std::make_shared<const Body>(std::move(bytes)); }

/// Makes what goes before and after a body, and what goes in its place.
class FrameWriter {
 public:
  struct Ends {
    std::string head;
    std::string tail;
    std::shared_ptr<const SealedBody> sealed{};  // in place of the body; NULL: the body itself

    [[nodiscard]] const std::string& middle(const Body& body) const noexcept {
      return sealed != nullptr ? sealed->bytes : body.bytes();
    }
    /// The whole frame.
    [[nodiscard]] std::string around(const Body& body) const { return head + middle(body) + tail; }
  };
  void secure(const auth::Key& key) { key_ = key; }
  /// Of rank 0. Its first frame has to be group_key().
  void secure(const auth::Key& key, std::shared_ptr<GroupKey> group) {
    key_ = key;
    group_ = std::move(group);
  }
  [[nodiscard]] Ends group_key();
  [[nodiscard]] Ends frame(FrameType type, const Body& body);

 private:
  [[nodiscard]] Ends sealed(FrameType type, std::string_view body);

  std::optional<auth::Key> key_;
  std::shared_ptr<GroupKey> group_;
  uint64_t number_ = 0;
};

class FrameReader {
 public:
  explicit FrameReader(size_t limit) : limit_(limit) {}

  /// The longest body that is read from now on.
  void set_limit(size_t limit) noexcept { limit_ = limit; }
  /// From the next frame on, every frame is encrypted and carries a tag.
  void secure(const auth::Key& key) { key_ = key; }

  /// Take bytes from the front of `bytes`; a frame once it is complete. Throws IO for what cannot be a frame; then the
  /// connection is of no use any more.
  [[nodiscard]] std::optional<Frame> read(std::string_view& bytes);

 private:
  [[nodiscard]] bool take_head(std::string_view& bytes);
  [[nodiscard]] bool take_frame(std::string_view& bytes);
  void open();
  void open_for_all(const auth::Tag& tag);

  size_t limit_;
  std::optional<auth::Key> key_;
  std::optional<auth::Key> group_;
  uint64_t number_ = 0;
  std::string head_;
  uint32_t length_ = 0;
  Frame frame_;
  std::string tail_;
};

}  // namespace ddp::bootstrap
