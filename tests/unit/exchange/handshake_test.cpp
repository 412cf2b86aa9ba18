// SPDX-License-Identifier: Apache-2.0
// The handshake of a data link: it fits one listener, one link and one direction, and nothing else. That it fits one
// connection is the listener's: connector_test.
#include "socket/handshake.hpp"

#include "support/check.hpp"

using namespace ddp::socket;

auth::Key key(unsigned char fill) {
  auth::Key out{};
  out.fill(fill);
  return out;
}

const auth::Nonce kClient = key(2);
const auth::Token kToken = link_token(key(3), key(4));

ddp_case(a_hello_is_understood_by_whom_it_is_meant_for) {
  const std::string hello = write_hello(kToken, {7, 1}, kClient);
  const auto read = read_hello(kToken, hello);
  expect(hello.size() == kHelloBytes && read.has_value() && read->link.from == 7 && read->link.lane == 1 &&
             read->client == kClient,
         "hello");
  const std::string welcome = write_welcome(kToken, {7, 1}, kClient);
  expect(welcome.size() == kWelcomeBytes && is_welcome(kToken, {7, 1}, kClient, welcome), "welcome");
}

ddp_case(it_fits_nothing_else) {
  const std::string hello = write_hello(kToken, {7, 1}, kClient);
  expect(!read_hello(link_token(key(3), key(9)), hello).has_value(), "at another listener of the group");
  expect(!read_hello(link_token(key(9), key(4)), hello).has_value(), "in another group");
  const std::string welcome = write_welcome(kToken, {7, 1}, kClient);
  for (const LinkName other : {LinkName{6, 1}, LinkName{7, 0}})
    expect(!is_welcome(kToken, other, kClient, welcome), "another link");
  expect(!is_welcome(kToken, {7, 1}, kClient, hello.substr(hello.size() - kWelcomeBytes)), "the proof reflected");
}

ddp_case(a_changed_or_cut_byte_is_noticed) {
  const std::string hello = write_hello(kToken, {7, 1}, kClient);
  for (size_t at = 0; at < hello.size(); ++at) {
    std::string other = hello;
    other[at] = static_cast<char>(other[at] ^ 1);
    expect(!read_hello(kToken, other).has_value(), "byte " + std::to_string(at));
    expect(!read_hello(kToken, hello.substr(0, at)).has_value(), "cut at " + std::to_string(at));
    expect(may_be_hello(hello.substr(0, at)), "so far it may be one");
  }
  for (const char* other : {"G", "GET / HTTP/1.1", "\x16\x03\x01", "ddplink1"}) expect(!may_be_hello(other), other);
}

ddp_case(noise_is_no_message) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 20'000; ++i) {
    std::string noise(random() % (kHelloBytes + 2), '\0');
    for (char& byte : noise) byte = static_cast<char>(random());
    expect(!read_hello(kToken, noise).has_value() && !is_welcome(kToken, {7, 1}, kClient, noise), "refused");
    try {
      (void)read_invitation(noise);
      expect(false, "an invitation by chance");
    } catch (const Error&) {
    }
  }
}

ddp_case(invitations_come_back) {
  const Invitation read = read_invitation(write_invitation({"fd00::1", 50'001, key(5)}));
  expect(read.host == "fd00::1" && read.port == 50'001 && read.secret == key(5), "the same");
}
