// SPDX-License-Identifier: Apache-2.0
// Any bytes over a control connection: first as a stranger's to a server, then as a stream of frames whose
// bodies are read by their kinds. Either they are understood, or an error is thrown.
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "control/codec.hpp"
#include "control/messages.hpp"
#include "control/server_state.hpp"
#include "fuzz/must.hpp"

namespace {

using namespace ddp;

void read_body(const bootstrap::Frame& frame) {
  bootstrap::messages::with_message_of(frame.type, [&]<class Message>(std::type_identity<Message>) {
    const auto message = bootstrap::messages::read<Message>(frame.body);
    if constexpr (std::is_same_v<Message, bootstrap::messages::Hello>)
      if (message.protocol != bootstrap::limits::kProtocol) return;  // the rest is not read
    const std::string bytes = bootstrap::messages::write(message);
    must(bootstrap::messages::write(bootstrap::messages::read<Message>(bytes)) == bytes,
         "what was read is written the same");
    must(bytes.size() <= bootstrap::messages::longest<Message>(), "it is no longer than the longest");
  });
}

// Without a token, so that bytes can get as far as possible.
void to_server(std::string_view bytes) {
  bootstrap::ServerState server(bootstrap::ServerConfig{2, {}, {}, 100, 1'000, ""});
  bootstrap::FrameReader reader(bootstrap::limits::kStrangerBytes);
  server.connected(1, bootstrap::auth::Nonce{}, 1);
  try {
    while (auto frame = reader.read(bytes)) {
      server.frame(1, std::move(*frame), 2);
      for (const bootstrap::ServerAction& action : server.take())
        if (action.kind == bootstrap::ServerAction::Kind::kSecure)
          reader.set_limit(bootstrap::messages::longest<bootstrap::messages::Gather>());
    }
    server.closed(1, 3);
  } catch (const Error& error) {
    server.broke(1, error.text(), 3);
  }
  server.tick(4);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  to_server(bytes);
  bootstrap::FrameReader reader(size_t{1} << 20);
  try {
    while (auto frame = reader.read(bytes)) {
      try {
        read_body(*frame);
      } catch (const Error&) {
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
