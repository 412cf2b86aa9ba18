// Any bytes as what comes over a control connection: first as a stranger's to a server, then as a stream of frames whose bodies
// are read as what they say they are. Either they are understood, or an error is thrown.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "comm/control/codec.hpp"
#include "comm/control/messages.hpp"
#include "comm/control/server_state.hpp"

namespace {

using namespace ddp;

void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "accepted, but not so: %s\n", what);
  std::abort();
}

template <class Message, class Read>
void read_again(const Message& message, Read read) {
  const std::string bytes = messages::write(message);
  must(messages::write(read(bytes)) == bytes, "what was read is written the same");
}

void read_body(const Frame& frame) {
  const std::string_view body = frame.body;
  switch (frame.type) {
    case FrameType::kBanner: (void)messages::read_banner(body); break;
    case FrameType::kHello: (void)messages::read_hello(body); break;
    case FrameType::kWelcome: (void)messages::read_welcome(body); break;
    case FrameType::kJoin: read_again(messages::read_join(body), messages::read_join); break;
    case FrameType::kTable: read_again(messages::read_table(body), messages::read_table); break;
    case FrameType::kGather: (void)messages::read_gather(body); break;
    case FrameType::kReply: read_again(messages::read_reply(body), messages::read_reply); break;
    case FrameType::kReplyError: (void)messages::read_reply_error(body); break;
    case FrameType::kBeat: read_again(messages::read_beat(body), messages::read_beat); break;
    case FrameType::kRefuse:
    case FrameType::kAbort:
    case FrameType::kFailed: read_again(messages::read_error(body), messages::read_error); break;
    case FrameType::kBlocked: read_again(messages::read_blocked(body), messages::read_blocked); break;
    case FrameType::kDeath: read_again(messages::read_death(body), messages::read_death); break;
    case FrameType::kHeard:
    case FrameType::kBye: break;
  }
}

// Without a token, so that bytes can get as far as possible.
void to_server(std::string_view bytes) {
  ServerState server(ServerConfig{2, {}, {}, 100, 1'000, ""});
  FrameReader reader(limits::kStrangerBytes);
  server.connected(1, auth::Nonce{}, 1);
  try {
    while (auto frame = reader.read(bytes)) {
      server.frame(1, std::move(*frame), 2);
      for (const ServerAction& action : server.take())
        if (action.kind == ServerAction::Kind::kSecure) reader.set_limit(limits::kBlobBytes);
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
  FrameReader reader(size_t{1} << 20);
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
