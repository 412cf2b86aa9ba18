// SPDX-License-Identifier: Apache-2.0
// Memory runs out within a state machine of the control plane, at each request in turn.
// A rank's: what it has asked its owner to do until then is whole, because the owner does it before it gives up.
// Rank 0's, while ranks meet: the connection that it was for is lost, the rank comes again, and the group forms as if
// nothing had been. A group that has formed in that moment is given up. (support/control_world.hpp)

#include <sys/socket.h>

#include <asio/io_context.hpp>

#include "control/link.hpp"
#include "core/attempt.hpp"
#include "support/check.hpp"
#include "support/control_world.hpp"
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

// ---- of rank 0

/// Lets one request of the server fail, counted over all its events.
void refuse(ControlWorld& world, int64_t& left) {
  world.lacking = [&left](const std::function<void()>& body) {
    if (left <= 0) return body();
    scarce::arm({.first = left, .own_thread = true});
    struct Disarm {
      int64_t& left;
      ~Disarm() { left -= scarce::disarm(); }
    } const disarm{left};
    body();
  };
}

/// Who has lost its connection comes again.
template <class Meet>
void meet_until_joined(ControlWorld& world, std::vector<size_t>& ranks, const std::string& where, const Meet& meet) {
  for (int round = 0; round < 20; ++round) {
    world.run();
    meet();
    world.run();
    if (world.gave_up) return;
    bool all = true;
    for (size_t& at : ranks) {
      if (world[at].joined) continue;
      all = false;
      expect(!world[at].refused.has_value(), where + ": refused: " + (world[at].refused ? world[at].refused->text() : ""));
      if (world[at].open) continue;
      world.again(at);
      at = world.count() - 1;
      world.connect(at);
    }
    if (all) return;
    world.tick(50);
  }
  expect(false, where + ": it never forms");
}

/// One exchange of all; false: the group was given up, before or in it.
bool gathers_ids(ControlWorld& world, const std::vector<size_t>& ranks, const std::string& where) {
  std::vector<std::string> ids;
  for (const size_t at : ranks) ids.push_back(std::to_string(world[at].rank));
  for (size_t rank = 0; rank < ranks.size() && !world.gave_up; ++rank) world.gather(ranks[rank], "ids", ids[rank]);
  world.run();
  if (world.gave_up) return false;
  for (const size_t at : ranks) {
    expect_equal(world[at].answers.size(), size_t{1}, where + ": answered");
    expect(world[at].answers[0] == ids, where + ": in the order of ranks");
  }
  return true;
}

/// Returns the requests that were refused.
template <class Story>
int64_t every_request(const Story& story) {
  int64_t request = 1, given_up = 0;
  for (; request < 5'000; ++request) {
    int64_t left = request;
    bool gave_up = false;
    const int lacked = story(left, "request " + std::to_string(request), gave_up);
    given_up += gave_up ? 1 : 0;
    if (left > 0) break;
    expect_equal(lacked, 1, "request " + std::to_string(request) + " was refused");
  }
  expect(request < 5'000 && given_up < request / 2,
         std::to_string(given_up) + " of " + std::to_string(request) + " given up");
  return request - 1;
}

ddp_case(a_group_forms_although_rank_0_lacked_memory) {
  const int64_t refused = every_request([](int64_t& left, const std::string& where, bool& gave_up) {
    ControlWorld world(3);
    refuse(world, left);
    std::vector<size_t> ranks{0, 1, 2};
    for (const size_t at : ranks) world.connect(at);
    meet_until_joined(world, ranks, where, [] {});
    gave_up = !gathers_ids(world, ranks, where);
    return world.lacked;
  });
  expect(refused > 50, std::to_string(refused) + " requests");
}

ddp_case(a_recovery_leads_on_although_its_leader_lacked_memory) {
  ServerConfig config;
  config.size = 6;
  config.group = auth::group_id("job", "place", "");
  config.token = "token";
  config.heartbeat_ms = 100;
  config.dead_after_ms = 1'000;
  config.recovers = true;
  const int64_t refused = every_request([&](int64_t& left, const std::string& where, bool& gave_up) {
    std::vector<Member> members;
    for (const int32_t id : {1, 3, 4, kNewRank, kNewRank}) {
      members.push_back(member_of(id));
      members.back().id = id;
    }
    ControlWorld world(config, members);
    refuse(world, left);
    std::vector<size_t> ranks{0, 1, 2, 3, 4};
    for (const size_t at : ranks) world.connect(at);
    meet_until_joined(world, ranks, where, [&] {
      if (const std::vector<int32_t> here = world.present(); here.size() == 5) world.form(here);
    });
    gave_up = !gathers_ids(world, ranks, where);
    return world.lacked;
  });
  expect(refused > 100, std::to_string(refused) + " requests");
}

// ---- of a connection

// The other side takes a frame whose number is not the next one for an attack.
ddp_case(a_frame_without_memory_is_not_counted) {
  for (const bool for_all : {false, true}) {
    int64_t request = 1;
    for (bool lacked = true; lacked && request < 1'000; ++request) {
      std::array<int, 2> ends{};
      expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0, "a pair of sockets");
      const net::Socket far(ends[1]);
      asio::io_context io;
      auth::SessionKeys keys{};
      keys.to_client.fill(1);
      FrameWriter to_far;
      if (!for_all) to_far.secure(keys.to_client);
      const auto link = std::make_shared<Link>(io, net::Socket(ends[0]), FrameReader(1'000), to_far);
      if (for_all) link->secure(keys, std::make_shared<GroupKey>(), 1'000);
      const auto send = [&](const char* text) {
        return try_to([&] { link->send(FrameType::kLetter, std::make_shared<const Body>(std::string(text))); });
      };
      expect(!send("first").has_value(), "sent");
      scarce::arm({.first = request, .own_thread = true});
      const bool failed = send("second").has_value();
      lacked = scarce::disarm() >= request;
      expect(!send("third").has_value(), "sent");
      io.run_for(std::chrono::milliseconds(1));
      std::array<char, 4'096> bytes{};
      const ssize_t got = ::recv(far.get(), bytes.data(), bytes.size(), 0);
      FrameReader reader(1'000);
      reader.secure(keys.to_client);
      std::string_view stream(bytes.data(), static_cast<size_t>(std::max<ssize_t>(got, 0)));
      std::string heard;
      while (std::optional<Frame> frame = reader.read(stream))
        if (frame->type == FrameType::kLetter) heard += frame->body + " ";
      expect_equal(heard, std::string(failed ? "first third " : "first second third "),
                   "request " + std::to_string(request));
      link->close();
    }
    expect(request > 4, "some requests were refused: " + std::to_string(request - 2));
  }
}
