// SPDX-License-Identifier: Apache-2.0
// Any bytes over a control connection: first as a stranger's to a server, then as a stream of frames whose
// bodies are read by their kinds. Either they are understood, or an error is thrown.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "control/codec.hpp"
#include "control/messages.hpp"
#include "control/server_state.hpp"

namespace {

using namespace ddp;

void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "accepted, but not so: %s\n", what);
  std::abort();
}

template <class Message, class Read>
void read_again(const Message& message, Read read) {
  const std::string bytes = bootstrap::messages::write(message);
  must(bootstrap::messages::write(read(bytes)) == bytes, "what was read is written the same");
}

void read_body(const bootstrap::Frame& frame) {
  const std::string_view body = frame.body;
  switch (frame.type) {
    case bootstrap::FrameType::kBanner: (void)bootstrap::messages::read_banner(body); break;
    case bootstrap::FrameType::kHello: (void)bootstrap::messages::read_hello(body); break;
    case bootstrap::FrameType::kWelcome: (void)bootstrap::messages::read_welcome(body); break;
    case bootstrap::FrameType::kJoin:
      read_again(bootstrap::messages::read_join(body), bootstrap::messages::read_join);
      break;
    case bootstrap::FrameType::kTable:
      read_again(bootstrap::messages::read_table(body), bootstrap::messages::read_table);
      break;
    case bootstrap::FrameType::kGather: (void)bootstrap::messages::read_gather(body); break;
    case bootstrap::FrameType::kReply:
      read_again(bootstrap::messages::read_reply(body), bootstrap::messages::read_reply);
      break;
    case bootstrap::FrameType::kReplyError: (void)bootstrap::messages::read_reply_error(body); break;
    case bootstrap::FrameType::kBeat:
      read_again(bootstrap::messages::read_beat(body), bootstrap::messages::read_beat);
      break;
    case bootstrap::FrameType::kRefuse:
    case bootstrap::FrameType::kAbort:
    case bootstrap::FrameType::kFailed:
      read_again(bootstrap::messages::read_error(body), bootstrap::messages::read_error);
      break;
    case bootstrap::FrameType::kBlocked:
      read_again(bootstrap::messages::read_blocked(body), bootstrap::messages::read_blocked);
      break;
    case bootstrap::FrameType::kDeath:
    case bootstrap::FrameType::kWitness:
      read_again(bootstrap::messages::read_death(body), bootstrap::messages::read_death);
      break;
    case bootstrap::FrameType::kLetter: (void)bootstrap::messages::read_letter(body); break;
    case bootstrap::FrameType::kPlace:  // a record of a rendezvous, which has a target of its own
    case bootstrap::FrameType::kGroupKey:
    case bootstrap::FrameType::kHeard: break;
    case bootstrap::FrameType::kBye: (void)bootstrap::messages::read_bye(body); break;
  }
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
        if (action.kind == bootstrap::ServerAction::Kind::kSecure) reader.set_limit(bootstrap::limits::kBlobBytes);
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
