// SPDX-License-Identifier: Apache-2.0
// One connection under TLS 1.3 (RFC 8446, by OpenSSL): a key that both ends have beforehand, and ephemeral Diffie-Hellman,
// so what was recorded stays closed when the key becomes known later. No certificates, no tickets, no resumption, no early
// data. Both ends prove the key in the handshake.
//
// AES-128-GCM where both processors have instructions for it, else ChaCha20-Poly1305. After 2^36 bytes the writer takes a
// new key, below the 2^38 that RFC 8446 (5.5) allows for AES-GCM. Records are collected and sent 128 KiB at a time: one
// system call for each record made a transfer three times as expensive.
//
// The descriptor is non-blocking and is the caller's. One thread at a time.
// Tested by unit/gloo/seal_test.cpp and process/sealed_links_test.cpp.
#pragma once

#include <openssl/types.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace ddp::gloo {

class Seal {
 public:
  enum class Role { kConnects, kListens };
  using Key = std::array<unsigned char, 32>;
  static constexpr uint64_t kBytesOfKey = uint64_t{1} << 36;

  /// Throws std::runtime_error, std::bad_alloc.
  Seal(int descriptor, Role role, const Key& key, uint64_t bytes_of_key = kBytesOfKey);
  ~Seal();
  Seal(const Seal&) = delete;
  Seal& operator=(const Seal&) = delete;

  enum class Step { kDone, kReads, kWrites, kFailed, kExhausted };
  /// Continue, and say what the descriptor has to be ready for. kFailed: trouble() has the reason. kExhausted: this process
  /// has no memory.
  [[nodiscard]] Step shake_hands() noexcept;

  /// As recv() on a non-blocking socket, with errno; 0: the other side has closed. EPROTO: the bytes are not those that the
  /// other side has sent; trouble() has the reason. ENOMEM: this process has no memory.
  [[nodiscard]] ssize_t read(void* data, size_t bytes) noexcept;
  /// As writev(). The last byte counts when all bytes before it are with the kernel, so the caller comes again until then.
  /// It comes with the bytes that did not count.
  [[nodiscard]] ssize_t write(const iovec* parts, int number) noexcept;

  [[nodiscard]] const char* trouble() const noexcept { return trouble_.data(); }

 private:
  friend struct SealIo;
  struct Freed {
    void operator()(SSL* ssl) const noexcept;
  };
  [[nodiscard]] bool take(const iovec& part, size_t from, size_t& taken) noexcept;
  [[nodiscard]] bool flush() noexcept;
  [[nodiscard]] int error_of(int result) noexcept;

  const int descriptor_;
  const uint64_t bytes_of_key_;
  uint64_t written_ = 0;  // under the present key
  Key key_;
  std::unique_ptr<char[]> records_;  // that are to be sent, from sent_ to filled_
  size_t filled_ = 0, sent_ = 0;
  bool holds_back_ = false;  // a byte that was taken does not count yet
  std::array<char, 160> trouble_{};
  std::unique_ptr<SSL, Freed> ssl_;
};

}  // namespace ddp::gloo
