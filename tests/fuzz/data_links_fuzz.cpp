// SPDX-License-Identifier: Apache-2.0
// Any bytes before a connection is a data link: a stranger's to a listener, a false listener's to a rank, and
// an invitation over the control plane. None of it is believed, and messages that were read are consistent.
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "fuzz/must.hpp"
#include "socket/handshake.hpp"

namespace {

using namespace ddp;

const socket::auth::Nonce kClient{4, 5, 6};
const socket::auth::Token kToken = socket::link_token(socket::auth::Key{7}, socket::auth::Key{8});

void to_listener(std::string_view bytes) {
  const bool may_be = socket::may_be_hello(bytes);
  const auto hello = socket::read_hello(kToken, bytes);
  must(!hello.has_value() || may_be, "a hello begins as one");
  if (!hello.has_value()) return;
  must(socket::write_hello(kToken, hello->link, hello->client) == bytes, "what was proved is written the same");
  const socket::auth::Token other = socket::link_token(socket::auth::Key{7}, socket::auth::Key{9});
  must(!socket::read_hello(other, bytes).has_value(), "a proof fits one listener");
}

void to_connector(std::string_view bytes) {
  must(!socket::is_welcome(kToken, {1, 0}, kClient, bytes) || bytes == socket::write_welcome(kToken, {1, 0}, kClient),
       "a welcome that was proved");
}

void as_invitation(std::string_view bytes) {
  try {
    const socket::Invitation invitation = socket::read_invitation(bytes);
    const std::string again = socket::write_invitation(invitation);
    must(bytes.substr(0, again.size()) == again, "an invitation is written the same");
  } catch (const Error& error) {
    must(error.status() == DDP_ERROR_INTERNAL, "refusals are INTERNAL");
  }
}

}  // namespace

/// The first byte: nothing, or a hello or welcome that is right, into which the rest is mixed, so that damage of a true one
/// is tried too.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 3 != 0) {
    std::string whole =
        data[0] % 3 == 1 ? socket::write_hello(kToken, {1, 0}, kClient) : socket::write_welcome(kToken, {1, 0}, kClient);
    bool is_changed = false;
    for (size_t at = 0; at < bytes.size() && at < whole.size(); ++at) {
      is_changed = is_changed || bytes[at] != 0;
      whole[at] = static_cast<char>(whole[at] ^ bytes[at]);
    }
    const bool believed = data[0] % 3 == 1 ? socket::read_hello(kToken, whole).has_value()
                                           : socket::is_welcome(kToken, {1, 0}, kClient, whole);
    must(believed != is_changed, "a proof that was changed is none");
    return 0;
  }
  to_listener(bytes);
  to_connector(bytes);
  as_invitation(bytes);
  return 0;
}
