// SPDX-License-Identifier: Apache-2.0
// A seal between the ends of a socket: both ends need the key, everything arrives in order, also through a full socket and a
// change of keys, and a byte that was changed, left out or repeated ends the connection.
#include "modules/gloo/seal.hpp"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>

#include "support/check.hpp"

using ddp::gloo::Seal;

constexpr size_t kSmallBuffer = 8'192;

struct Wire {
  int a = -1, b = -1;
  Wire() {
    int ends[2];
    expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0, "socket pair");
    a = ends[0], b = ends[1];
    const int few = kSmallBuffer;
    for (const int end : ends) expect(::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &few, sizeof few) == 0, "small buffer");
  }
  ~Wire() { ::close(a), ::close(b); }
};

Seal::Key key_of(unsigned char first) {
  Seal::Key key{};
  std::iota(key.begin(), key.end(), first);
  return key;
}

bool is_over(Seal::Step step) { return step == Seal::Step::kDone || step == Seal::Step::kFailed; }

struct Sealed {
  std::unique_ptr<Seal> a, b;
};

Sealed seal(const Wire& wire, uint64_t bytes_of_key = Seal::kBytesOfKey) {
  return {std::make_unique<Seal>(wire.a, Seal::Role::kConnects, key_of(1), bytes_of_key),
          std::make_unique<Seal>(wire.b, Seal::Role::kListens, key_of(1), bytes_of_key)};
}

void shake(Seal& a, Seal& b, Seal::Step& of_a, Seal::Step& of_b) {
  of_a = of_b = Seal::Step::kReads;
  for (int turn = 0; turn < 10; ++turn) {
    if (!is_over(of_a)) of_a = a.shake_hands();
    if (!is_over(of_b)) of_b = b.shake_hands();
  }
}

Sealed connect(const Wire& wire, uint64_t bytes_of_key = Seal::kBytesOfKey) {
  Sealed sealed = seal(wire, bytes_of_key);
  Seal::Step of_a{}, of_b{};
  shake(*sealed.a, *sealed.b, of_a, of_b);
  expect(of_a == Seal::Step::kDone && of_b == Seal::Step::kDone, "both ends prove the key");
  return sealed;
}

std::vector<char> numbered(size_t bytes) {
  std::vector<char> made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<char>(i * 2'654'435'761U >> 13);
  return made;
}

// Each side sends what it can and reads all data that has come, in turns.
std::vector<char> transfer(Seal& from, Seal& to, const std::vector<char>& data, size_t head) {
  std::vector<char> came(data.size());
  size_t sent = 0, got = 0;
  for (int idle = 0; got < data.size() && idle < 100;) {
    const size_t in_head = std::min(sent < head ? head - sent : 0, data.size() - sent);
    const iovec parts[] = {{const_cast<char*>(data.data()) + sent, in_head},
                           {const_cast<char*>(data.data()) + sent + in_head, data.size() - sent - in_head}};
    const ssize_t more = sent < data.size() ? from.write(parts, 2) : 0;
    expect(more >= 0 || errno == EAGAIN, "sent");
    sent += static_cast<size_t>(std::max<ssize_t>(more, 0));
    const ssize_t read = to.read(came.data() + got, std::min<size_t>(came.size() - got, 10'000));
    expect(read > 0 || (read < 0 && errno == EAGAIN), "read");
    got += static_cast<size_t>(std::max<ssize_t>(read, 0));
    idle = read > 0 || more > 0 ? 0 : idle + 1;
  }
  expect(sent == data.size() && got == data.size(), "all of it: " + std::to_string(sent) + ", " + std::to_string(got));
  return came;
}

ddp_case(everything_arrives_in_order_through_a_full_socket) {
  const Wire wire;
  const Sealed sealed = connect(wire);
  for (const size_t bytes : {size_t{1}, size_t{48}, size_t{16'384}, size_t{16'385}, size_t{1} << 20, size_t{3'000'001}}) {
    const std::vector<char> data = numbered(bytes);
    expect(transfer(*sealed.a, *sealed.b, data, 48) == data, std::to_string(bytes) + " bytes one way");
    expect(transfer(*sealed.b, *sealed.a, data, 0) == data, std::to_string(bytes) + " bytes back");
  }
}

ddp_case(a_byte_counts_as_sent_when_all_before_it_are_with_the_kernel) {
  const Wire wire;
  const Sealed sealed = connect(wire);
  const std::vector<char> data = numbered(100'000);  // fits into what the seal collects, not into the socket
  const iovec part{const_cast<char*>(data.data()), data.size()};
  expect(sealed.a->write(&part, 1) == static_cast<ssize_t>(data.size()) - 1, "all but the last byte");
  const iovec last{const_cast<char*>(data.data()) + data.size() - 1, 1};
  expect(sealed.a->write(&last, 1) == -1 && errno == EAGAIN, "the socket is still full");
  std::vector<char> came;
  for (ssize_t counted = -1; came.size() < data.size();) {
    char some[4'096];
    const ssize_t got = sealed.b->read(some, sizeof some);
    came.insert(came.end(), some, some + std::max<ssize_t>(got, 0));
    if (counted < 0) counted = sealed.a->write(&last, 1);
    expect(counted == 1 || counted == -1, "one byte, once");
  }
  expect(came == data, "each byte once");
}

ddp_case(keys_change_without_a_word) {
  const Wire wire;
  const Sealed sealed = connect(wire, 50'000);
  const std::vector<char> data = numbered(1'000'000);
  for (int time = 0; time < 3; ++time) {
    expect(transfer(*sealed.a, *sealed.b, data, 48) == data, "one way");
    expect(transfer(*sealed.b, *sealed.a, data, 48) == data, "back");
  }
}

ddp_case(an_end_with_another_key_is_refused_by_both) {
  for (const bool listener_is_wrong : {false, true}) {
    const Wire wire;
    Seal a(wire.a, Seal::Role::kConnects, key_of(listener_is_wrong ? 1 : 2));
    Seal b(wire.b, Seal::Role::kListens, key_of(listener_is_wrong ? 2 : 1));
    Seal::Step of_a{}, of_b{};
    shake(a, b, of_a, of_b);
    expect(of_a == Seal::Step::kFailed && of_b == Seal::Step::kFailed, "no connection");
    expect(a.trouble()[0] != '\0' && b.trouble()[0] != '\0', "with a reason");
  }
}

struct Impostor {
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  EVP_PKEY* key = EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256");
  X509* certificate = X509_new();
  SSL* ssl = nullptr;
  explicit Impostor(int end) {
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3'600);
    X509_set_pubkey(certificate, key);
    expect(X509_sign(certificate, key, EVP_sha256()) > 0 && SSL_CTX_use_certificate(context, certificate) == 1 &&
               SSL_CTX_use_PrivateKey(context, key) == 1,
           "a certificate of its own");
    ssl = SSL_new(context);
    SSL_set_fd(ssl, end);
    SSL_set_accept_state(ssl);
  }
  ~Impostor() { SSL_free(ssl), X509_free(certificate), EVP_PKEY_free(key), SSL_CTX_free(context); }
};

// TLS lets a server answer with a certificate in place of the key.
ddp_case(a_server_with_a_certificate_and_no_key_is_refused) {
  const Wire wire;
  Seal a(wire.a, Seal::Role::kConnects, key_of(1));
  const Impostor impostor(wire.b);
  Seal::Step of_a = Seal::Step::kReads;
  for (int turn = 0; turn < 10 && !is_over(of_a); ++turn) {
    of_a = a.shake_hands();
    SSL_do_handshake(impostor.ssl);
  }
  expect(of_a == Seal::Step::kFailed, "not believed");
}

using Damage = std::function<std::string(const std::string& sent)>;

// The records of three messages in transit, as an attacker between the ends forwards them.
void damage_is_noticed(const char* what, const Damage& damage) {
  const Wire before, behind;
  Seal a(before.a, Seal::Role::kConnects, key_of(1));
  Seal b(behind.b, Seal::Role::kListens, key_of(1));
  const auto pass_on = [](int from, int to, const Damage& change) {
    char bytes[32'768];
    const ssize_t got = ::recv(from, bytes, sizeof bytes, 0);
    if (got <= 0) return;
    const std::string changed = change({bytes, static_cast<size_t>(got)});
    expect(::send(to, changed.data(), changed.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(changed.size()), "handed on");
  };
  const Damage none = [](const std::string& sent) { return sent; };
  Seal::Step of_a = Seal::Step::kReads, of_b = Seal::Step::kReads;
  for (int turn = 0; turn < 10; ++turn) {
    if (!is_over(of_a)) of_a = a.shake_hands();
    pass_on(before.b, behind.a, none);
    if (!is_over(of_b)) of_b = b.shake_hands();
    pass_on(behind.a, before.b, none);
  }
  expect(of_a == Seal::Step::kDone && of_b == Seal::Step::kDone, "an honest middle is not noticed");
  std::string message(1'000, 'x');
  const iovec part{message.data(), message.size()};
  for (int i = 0; i < 3; ++i) expect(a.write(&part, 1) == static_cast<ssize_t>(message.size()), "sent");
  pass_on(before.b, behind.a, damage);
  std::string came;
  for (;;) {
    char some[4'096];
    const ssize_t got = b.read(some, sizeof some);
    if (got < 0) break;
    expect(got > 0, "not an end");
    came.append(some, static_cast<size_t>(got));
  }
  expect(errno == EPROTO, std::string(what) + " is noticed");
  expect(b.trouble()[0] != '\0', "with a reason");
  expect(came.size() < 3 * message.size() && came == std::string(came.size(), 'x'), "what was believed was sent");
}

ddp_case(whatever_happens_to_a_record_on_its_way_is_noticed) {
  constexpr size_t kRecord = 1'000 + 5 + 17;  // head; type and tag
  for (size_t at = 0; at < kRecord; at += 7)
    damage_is_noticed("a changed byte", [at](std::string sent) {
      sent[kRecord + at] = static_cast<char>(sent[kRecord + at] ^ 0x10);
      return sent;
    });
  damage_is_noticed("a dropped byte", [](std::string sent) { return sent.erase(kRecord + 500, 1) + "x"; });
  damage_is_noticed("a dropped record", [](std::string sent) { return sent.erase(kRecord, kRecord); });
  damage_is_noticed("a repeated record", [](const std::string& sent) { return sent.substr(0, kRecord) + sent; });
  damage_is_noticed("reordered records", [](const std::string& sent) {
    return sent.substr(kRecord, kRecord) + sent.substr(0, kRecord) + sent.substr(2 * kRecord);
  });
  damage_is_noticed("a record of a stranger", [](const std::string& sent) {
    return sent.substr(0, kRecord) + std::string("\x17\x03\x03\x00\x20", 5) + std::string(32, 'y') + sent.substr(kRecord);
  });
}

ddp_case(errors_of_the_program_are_not_the_links) {
  const Wire wire;
  const Sealed sealed = connect(wire);
  char some[16];
  ERR_raise(ERR_LIB_USER, 1);
  expect(sealed.b->read(some, sizeof some) == -1 && errno == EAGAIN, "nothing is there");
  ERR_raise(ERR_LIB_USER, 1);
  const std::vector<char> data = numbered(100'000);
  expect(transfer(*sealed.a, *sealed.b, data, 48) == data, "one way");
}

ddp_case(the_end_of_the_other_side_is_an_end) {
  Wire wire;
  const Sealed sealed = connect(wire);
  ::close(wire.a);
  wire.a = -1;
  char some[16];
  expect(sealed.b->read(some, sizeof some) == 0, "closed");
}
