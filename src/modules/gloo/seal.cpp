// SPDX-License-Identifier: Apache-2.0
#include "modules/gloo/seal.hpp"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/auxv.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

namespace ddp::gloo {
namespace {

constexpr size_t kRecordsBytes = size_t{132} << 10;  // eight records with what TLS adds
constexpr size_t kShort = size_t{8} << 10;
constexpr size_t kReadAhead = size_t{132} << 10;
constexpr std::string_view kIdentity = "libddp";
constexpr unsigned char kSha256Cipher[] = {0x13, 0x01};  // the key goes with the suites of this hash

/// Takes what OpenSSL has noted on this thread. Did it fail by itself? Mostly for want of memory: then the reason may be
/// "internal error", and nothing at all is noted if there is no memory for that either.
bool takes_own_errors() noexcept {
  bool is_own = ERR_peek_error() == 0;
  for (unsigned long each = ERR_get_error(); each != 0; each = ERR_get_error())
    is_own = is_own || ERR_FATAL_ERROR(each) != 0 || ERR_GET_REASON(each) == ERR_R_EVP_LIB;
  return is_own;
}

[[noreturn]] void fail(const char* what) {
  const char* const reason = ERR_reason_error_string(ERR_peek_error());
  if (takes_own_errors()) throw std::bad_alloc();
  throw std::runtime_error(std::string(what) + ": " + (reason != nullptr ? reason : "no reason given"));
}

// OpenSSL would choose AES on processors without instructions for it too.
bool has_aes() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  return __builtin_cpu_supports("aes") != 0 && __builtin_cpu_supports("pclmul") != 0;
#elif defined(__aarch64__)
  constexpr unsigned long kAes = 1UL << 3;
  return (getauxval(AT_HWCAP) & kAes) != 0;
#else
  return false;
#endif
}

int session_of(SSL* ssl, SSL_SESSION** out) {
  const auto* key = static_cast<const unsigned char*>(SSL_get_app_data(ssl));
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kSha256Cipher);
  if (session == nullptr || cipher == nullptr || SSL_SESSION_set1_master_key(session, key, sizeof(Seal::Key)) != 1 ||
      SSL_SESSION_set_cipher(session, cipher) != 1 || SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
    SSL_SESSION_free(session);
    return 0;
  }
  *out = session;
  return 1;
}

int use_key(SSL* ssl, const EVP_MD*, const unsigned char** id, size_t* id_bytes, SSL_SESSION** session) {
  *id = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *id_bytes = kIdentity.size();
  return session_of(ssl, session);
}

int find_key(SSL* ssl, const unsigned char* id, size_t id_bytes, SSL_SESSION** session) {
  *session = nullptr;
  if (std::string_view(reinterpret_cast<const char*>(id), id_bytes) != kIdentity) return 1;  // none; the handshake fails
  return session_of(ssl, session);
}

// The key is the only way: no certificate is sent or believed. It is always used together with Diffie-Hellman.
SSL_CTX* make_context() {
  OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  const char* const suites = has_aes() ? "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
                                       : "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, suites) != 1 || SSL_CTX_set1_groups_list(context, "X25519:P-256") != 1 ||
      SSL_CTX_set_num_tickets(context, 0) != 1)
    fail("OpenSSL cannot be prepared");
  // An end that has no instructions for AES prefers ChaCha20, and then that is used.
  SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA | SSL_OP_NO_TICKET);
#ifdef SSL_OP_IGNORE_UNEXPECTED_EOF
  SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
#endif
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_psk_use_session_callback(context, use_key);
  SSL_CTX_set_psk_find_session_callback(context, find_key);
  SSL_CTX_set_default_read_buffer_len(context, kReadAhead);
  return context;
}

// The program may have left errors of its own on this thread.
void clear_errors() noexcept {
  ERR_clear_error();
  errno = 0;
}

bool is_for_later(int error) noexcept { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

/// How OpenSSL reads and writes: a stream of bytes of its own, so that there is no SIGPIPE, and few system calls.
struct SealIo {
  static Seal& of(BIO* bio) { return *static_cast<Seal*>(BIO_get_data(bio)); }
  static int write(BIO* bio, const char* data, int bytes) {
    Seal& seal = of(bio);
    BIO_clear_retry_flags(bio);
    const auto count = static_cast<size_t>(bytes);
    if (seal.filled_ + count > kRecordsBytes && !seal.flush()) {
      if (is_for_later(errno)) BIO_set_retry_write(bio);
      return -1;
    }
    std::memcpy(seal.records_.get() + seal.filled_, data, count);
    seal.filled_ += count;
    return bytes;
  }
  static int read(BIO* bio, char* data, int bytes) {
    BIO_clear_retry_flags(bio);
    const ssize_t got = ::recv(of(bio).descriptor_, data, static_cast<size_t>(bytes), MSG_DONTWAIT);
    if (got < 0 && is_for_later(errno)) BIO_set_retry_read(bio);
    if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    return static_cast<int>(got);
  }
  static long control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }
  static int create(BIO* bio) {
    BIO_set_init(bio, 1);
    return 1;
  }
  static BIO_METHOD* make_method() {
    BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "libddp");
    if (method == nullptr || BIO_meth_set_write(method, write) != 1 || BIO_meth_set_read(method, read) != 1 ||
        BIO_meth_set_ctrl(method, control) != 1 || BIO_meth_set_create(method, create) != 1)
      fail("OpenSSL cannot be prepared");
    return method;
  }
};

void Seal::Freed::operator()(SSL* ssl) const noexcept { SSL_free(ssl); }

// Context and method are never freed: Gloo's threads may use them until the process ends.
Seal::Seal(int descriptor, Role role, const Key& key, uint64_t bytes_of_key)
    : descriptor_(descriptor), bytes_of_key_(bytes_of_key), key_(key), records_(new char[kRecordsBytes]) {
  static SSL_CTX* const context = make_context();
  static BIO_METHOD* const method = SealIo::make_method();
  ssl_.reset(SSL_new(context));
  BIO* bio = ssl_ != nullptr ? BIO_new(method) : nullptr;
  if (bio == nullptr) throw std::bad_alloc();
  BIO_set_data(bio, this);
  SSL_set_bio(ssl_.get(), bio, bio);
  if (SSL_set_app_data(ssl_.get(), key_.data()) != 1) throw std::bad_alloc();
  if (role == Role::kConnects) {
    SSL_set_connect_state(ssl_.get());
    SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);
  } else {
    SSL_set_accept_state(ssl_.get());
  }
}

Seal::~Seal() { OPENSSL_cleanse(key_.data(), key_.size()); }

Seal::Step Seal::shake_hands() noexcept {
  clear_errors();
  const int result = SSL_do_handshake(ssl_.get());
  const int error = result == 1 ? 0 : error_of(result);
  if (error == ENOMEM) return Step::kExhausted;
  if (!flush()) return is_for_later(errno) ? Step::kWrites : Step::kFailed;
  if (result == 1 && SSL_session_reused(ssl_.get()) == 1) {
    OPENSSL_cleanse(key_.data(), key_.size());
    SSL_set_read_ahead(ssl_.get(), 1);  // not before: data that came with the handshake has to wake the user of the socket
    return Step::kDone;
  }
  if (result != 1 && error == EAGAIN) return Step::kReads;
  if (trouble_[0] == '\0')
    std::snprintf(trouble_.data(), trouble_.size(), "%s",
                  result == 1 ? "the other side did not prove the key" : "the other side closed the connection");
  return Step::kFailed;
}

// errno as a socket would set it; 0: the other side has closed.
int Seal::error_of(int result) noexcept {
  const int system = errno;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return EAGAIN;
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_SYSCALL: return system != 0 ? system : ECONNRESET;
    default: break;
  }
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  if (takes_own_errors()) return ENOMEM;
  std::snprintf(trouble_.data(), trouble_.size(), "%s", reason != nullptr ? reason : "no reason given");
  return EPROTO;
}

ssize_t Seal::read(void* data, size_t bytes) noexcept {
  clear_errors();
  const int got = SSL_read(ssl_.get(), data, static_cast<int>(std::min<size_t>(bytes, INT_MAX)));
  if (got > 0) return got;
  const int error = error_of(got);
  errno = error;
  return error == 0 ? 0 : -1;
}

bool Seal::flush() noexcept {
  while (sent_ < filled_) {
    const ssize_t sent = ::send(descriptor_, records_.get() + sent_, filled_ - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    sent_ += static_cast<size_t>(sent);
  }
  sent_ = filled_ = 0;
  return true;
}

bool Seal::take(const iovec& part, size_t from, size_t& taken) noexcept {
  while (from < part.iov_len) {
    if (written_ >= bytes_of_key_ && SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) written_ = 0;
    clear_errors();
    const int count = static_cast<int>(std::min<size_t>(part.iov_len - from, INT_MAX));
    const int done = SSL_write(ssl_.get(), static_cast<const char*>(part.iov_base) + from, count);
    if (done <= 0) {
      const int error = error_of(done);
      errno = error == 0 ? EPIPE : error == EPROTO ? EIO : error;  // what came is judged where it is read
      return false;
    }
    from += static_cast<size_t>(done);
    taken += static_cast<size_t>(done);
    written_ += static_cast<uint64_t>(done);
  }
  return true;
}

ssize_t Seal::write(const iovec* parts, int number) noexcept {
  size_t skip = holds_back_ ? 1 : 0, taken = skip;
  // A record costs as much as a thousand bytes, so a head and a short message share one.
  std::array<char, kShort> together;
  iovec whole{together.data(), 0};
  if (skip == 0 && number == 2 && parts[0].iov_len + parts[1].iov_len <= together.size()) {
    for (int at = 0; at < number; whole.iov_len += parts[at++].iov_len)
      if (parts[at].iov_len > 0) std::memcpy(together.data() + whole.iov_len, parts[at].iov_base, parts[at].iov_len);
    parts = &whole;
    number = 1;
  }
  for (int at = 0; at < number; ++at) {
    const size_t from = std::min(skip, parts[at].iov_len);
    skip -= from;
    if (!take(parts[at], from, taken)) {
      if (!is_for_later(errno)) return -1;
      break;
    }
  }
  const bool is_sent = flush();
  if (!is_sent && !is_for_later(errno)) return -1;
  holds_back_ = !is_sent && taken > 0;
  const size_t counted = holds_back_ ? taken - 1 : taken;
  if (counted == 0) errno = EAGAIN;
  return counted > 0 ? static_cast<ssize_t>(counted) : -1;
}

}  // namespace ddp::gloo
