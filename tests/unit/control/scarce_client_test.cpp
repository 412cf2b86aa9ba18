// SPDX-License-Identifier: Apache-2.0
// Memory runs out while a rank's state machine reads a message: what it has asked its owner to do until then is whole,
// because the owner does it before it gives up.

#include "control/client_state.hpp"
#include "control/codec.hpp"
#include "core/attempt.hpp"
#include "support/check.hpp"
#include "support/scarce.hpp"

using namespace ddp::bootstrap;
using Kind = ClientAction::Kind;

constexpr const char* kLong =
    "a text that is too long to be held in place by any string that we know of, so it needs memory";

/// What its kind promises is there.
bool is_whole(const ClientAction& action) {
  switch (action.kind) {
    case Kind::kSend: return action.body != nullptr;
    case Kind::kJoined: return action.rank == 1 && action.members.size() == 2;
    case Kind::kAnswer: return action.error.has_value() || action.blobs.size() == 2;
    case Kind::kProgress: return action.ranks.size() == 1;
    case Kind::kLetter: return action.rank == 0 && action.letter == kLong;
    case Kind::kRefused:
    case Kind::kFailed:
    case Kind::kSettled: return action.error.has_value();
    default: return true;
  }
}

struct Scene {
  const char* name;
  Kind asks_for;
  FrameType type;
  std::string body;
  bool joins;  // before the group has formed
};

std::vector<Scene> scenes() {
  messages::Table table{100, 1'000, {}};
  for (int32_t rank = 0; rank < 2; ++rank) {
    Member member;
    member.rank = rank;
    member.host = kLong;
    table.members.push_back(member);
  }
  const Error error(DDP_ERROR_PEER_FAILED, kLong);
  return {{"table", Kind::kJoined, FrameType::kTable, messages::write(table), true},
          {"refusal", Kind::kRefused, FrameType::kRefuse, messages::write(error), true},
          {"reply", Kind::kAnswer, FrameType::kReply, messages::write(messages::Reply{7, {kLong, kLong}}), false},
          {"error", Kind::kAnswer, FrameType::kReplyError, messages::write(messages::ReplyError{7, error}), false},
          {"beat", Kind::kProgress, FrameType::kBeat, messages::write(messages::Beat{{{0, {}, 5}}}), false},
          {"letter", Kind::kLetter, FrameType::kLetter, messages::write(messages::Letter{0, kLong}), false},
          {"failure", Kind::kFailed, FrameType::kFailed, messages::write(error), false}};
}

ClientState begun(const Scene& scene, const std::string& table) {
  Member me;
  me.rank = 1;
  ClientState state({me, 2, 100, 1'000, 0, 0});
  state.start(1);
  if (!scene.joins) state.frame({FrameType::kTable, table}, 1);
  (void)state.take();
  return state;
}

ddp_case(what_the_owner_does_without_memory_is_whole) {
  const std::vector<Scene> all = scenes();
  for (const Scene& scene : all) {
    int64_t refused = 0;
    bool lacked = true;
    for (int64_t request = 1; lacked && request < 1'000; ++request) {
      ClientState state = begun(scene, all.front().body);
      Frame frame{scene.type, scene.body};
      scarce::arm({.first = request, .own_thread = true});
      const std::optional<Error> error = try_to([&] { state.frame(std::move(frame), 2); });
      lacked = scarce::disarm() >= request;
      const std::string where = std::string(scene.name) + ", request " + std::to_string(request);
      expect_equal(error.has_value(), lacked, where);
      if (error.has_value()) expect_equal(error->status(), DDP_ERROR_OUT_OF_MEMORY, where);
      refused += lacked ? 1 : 0;
      const std::vector<ClientAction> asked = state.take();
      for (const ClientAction& action : asked) expect(is_whole(action), where + ": half an action");
      if (!lacked) expect(!asked.empty() && asked.front().kind == scene.asks_for, where + ": what it asks for");
    }
    expect(!lacked && refused > 0, std::string(scene.name) + ": some request was refused");
  }
}
