// SPDX-License-Identifier: Apache-2.0
// Strangers without the token answer in the place of a rank: at the port of a dead one, and at the rendezvous before rank 0
// is there. A caller that has not proved its knowledge of the token is believed in one thing only: it is no rank of ours.
#include "support/impostor.hpp"

#include "control/codec.hpp"
#include "control/identity.hpp"
#include "control/messages.hpp"
#include "core/attempt.hpp"
#include "discovery/place.hpp"
#include "group/recovery.hpp"
#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/meeting.hpp"
#include "support/stranger.hpp"

using Manner = Impostor::Manner;

constexpr int64_t kSoonMs = 8'000;  // busy machines; what is waited for in vain takes a minute

// ---- at the port of a rank that has died

std::string be_rank(const Folder& folder, int rank, int size, Reporter& report) {
  ddp_group_options options = world_options();
  options.recoverable = 1;
  const auto group = join_process_group(folder, rank, size, options);
  group->barrier();
  report.say("stands");
  while (!try_to([&] {
    group->barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  })) {
  }
  report.say("broken");
  while (!std::filesystem::exists(folder.path() + "/taken")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const os::Deadline soon = os::Deadline::in_ms(kSoonMs);
  static_cast<void>(group::Recovery::run(*group, group::RecoveryRule()));
  group->barrier();
  return "size " + std::to_string(group->size()) + (soon.passed() ? ", late" : "");
}

void recover_from(Manner manner, int size, int dead) {
  const Folder folder;
  Procs procs(size, [&](int rank, Reporter& report) { return be_rank(folder, rank, size, report); });
  std::vector<pid_t> victims;
  for (int rank = 0; rank < size; ++rank) procs.wait_for(rank, "stands");
  for (int rank = 0; rank < dead; ++rank) victims.push_back(procs.pid(rank));
  std::vector<Impostor::Place> places;
  for (const int port : listening_ports(victims)) places.push_back(Impostor::look_at(port));
  expect(!places.empty(), "they listen");
  const Impostor impostor(manner, places);
  for (int rank = 0; rank < dead; ++rank) procs.signal(rank, SIGKILL);
  for (int rank = dead; rank < size; ++rank) procs.wait_for(rank, "broken");
  expect(impostor.wait_until_taken(), "he has the ports");
  std::ofstream(folder.path() + "/taken") << "yes";
  const std::vector<ProcResult> results = procs.wait(90'000);
  const std::string what = std::string("he ") + Impostor::name_of(manner) + ", " + std::to_string(dead) + " of " +
                           std::to_string(size) + " dead: ";
  for (int rank = dead; rank < size; ++rank) {
    const ProcResult& result = results[static_cast<size_t>(rank)];
    expect_equal(result.text, "size " + std::to_string(size - dead), what + result.describe());
  }
}

ddp_case(at_the_port_of_rank_0) {
  for (const Manner manner : Impostor::kManners) recover_from(manner, 3, 1);
}

ddp_case(at_the_ports_of_all_but_one) {
  for (const Manner manner : Impostor::kManners) recover_from(manner, 3, 2);
  recover_from(Manner::kSilent, 2, 1);
}

// ---- at the rendezvous

std::string banner_of(const std::string& place) {
  bootstrap::messages::Banner banner;
  banner.wants_token = true;
  banner.group = bootstrap::auth::group_id("", place, "");
  banner.nonce.fill('n');
  const bootstrap::Body body(bootstrap::messages::write(banner));
  return bootstrap::FrameWriter().frame(bootstrap::FrameType::kBanner, body).head + body.bytes();
}

std::vector<Impostor::Place> places_from(int port, int count) {
  std::vector<Impostor::Place> places;
  for (int i = 0; i < count; ++i) places.push_back({place_of_port(port + i), banner_of("port " + std::to_string(port))});
  return places;
}

std::string meet(const std::string& place, int rank) {
  ::setenv("DDP_TOKEN", "0123456789abcdef0123456789abcdef", 1);
  ::setenv("RANK", std::to_string(rank).c_str(), 1);
  const ddp_group_options options = place == "env://" ? quick_options(-1, -1) : quick_options(rank, 2);
  const auto control = bootstrap::meet(
      bootstrap::resolve_meeting(place.c_str(), options, [](const char* name) -> const char* { return ::getenv(name); }),
      options);
  std::string all;
  for (const std::string& part : control->gather("who", std::to_string(rank), os::Deadline::in_ms(20'000))) all += part;
  control->leave();
  return all;
}

/// Rank 1 finds the strangers alone for a while.
void meet_beside(Manner manner, const std::string& place, const std::vector<Impostor::Place>& strangers) {
  int wait[2] = {-1, -1};
  expect(::pipe(wait) == 0, "a pipe");
  Procs procs(2, [&](int rank, Reporter&) {
    char go = 0;
    ::close(wait[1]);
    (void)!::read(wait[0], &go, 1);  // until they are there
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return meet(place, rank);
  });
  const Impostor impostor(manner, strangers);
  expect(impostor.wait_until_taken(), "he is there first");
  ::close(wait[0]);
  ::close(wait[1]);
  for (const ProcResult& result : procs.wait()) {
    expect_equal(result.text, "01",
                 std::string("he ") + Impostor::name_of(manner) + " at " + place + ": " + result.describe());
    expect(result.seconds * 1'000 < 2 * kSoonMs, "soon: " + std::to_string(result.seconds) + " s");
  }
}

int ports_side_by_side(int count) {
  for (int first = 20'000 + static_cast<int>(os::now_ns() / 1'000 % 12'000);; first += 17) {
    std::vector<std::unique_ptr<LoopbackSocket>> held;
    while (static_cast<int>(held.size()) < count) {
      held.push_back(std::make_unique<LoopbackSocket>());
      if (!held.back()->listen(first + static_cast<int>(held.size()) - 1)) break;
    }
    if (held.back()->port() == first + count - 1) return first;
  }
}

ddp_case(at_an_address) {
  for (const Manner manner : {Manner::kRefuses, Manner::kWelcomes}) {
    const int port = ports_side_by_side(4);
    meet_beside(manner, tcp_place(port), places_from(port, 2));
  }
}

/// A launcher chose the port, so rank 0 may take a later one if any process has it.
ddp_case(at_the_address_of_a_launcher) {
  ::setenv("WORLD_SIZE", "2", 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  for (const Manner manner : Impostor::kManners) {
    const int port = ports_side_by_side(3);
    ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
    meet_beside(manner, "env://", places_from(port, 1));
  }
  for (const char* const each : {"WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) ::unsetenv(each);
}

/// What an earlier run has left behind leads to a port that he has now.
ddp_case(where_a_file_of_an_earlier_run_leads) {
  for (const Manner manner : Impostor::kManners) {
    const Folder folder;
    const int port = ports_side_by_side(1);
    const std::string path = folder.path() + "/meet";
    bootstrap::Place::file(path).publish(bootstrap::write_record(
        {"127.0.0.1:" + std::to_string(port), "word", "", "host", bootstrap::this_member(0).boot_id, "1/1/1"}));
    meet_beside(manner, "file://" + path, {{place_of_port(port), banner_of("word")}});
  }
}

/// A rank with another token cannot be told from a stranger: the log has it, and the error when the time is up.
ddp_case(who_never_finds_another_is_told_of_the_token) {
  const int port = ports_side_by_side(2);
  Procs procs(1, [&](int, Reporter&) {
    ::setenv("DDP_TOKEN", "0123456789abcdef0123456789abcdef", 1);
    ddp_group_options options = quick_options(1, 2);
    options.rendezvous_timeout_ms = 1'500;
    (void)meet_at(tcp_place(port), options);
  });
  const Impostor impostor(Manner::kRefuses, places_from(port, 1));
  const std::string text = procs.wait_one(0).text;
  expect_contains(text, "DDP_ERROR_TIMED_OUT: rank 0 did not come to 127.0.0.1:" + std::to_string(port));
  expect_contains(text, "its token is another one");
  expect(text.find("stranger") == std::string::npos, "not what he said: " + text);
}
