// SPDX-License-Identifier: Apache-2.0
// New ranks find an existing group at each kind of rendezvous, also when the rank has died that was found there at first:
// at the address of tcp:// and env://, and in the store of the program.

#include <new>

#include "support/check.hpp"
#include "support/folder_store.hpp"
#include "support/impostor.hpp"
#include "support/meeting.hpp"
#include "support/on_processes.hpp"
#include "support/stranger.hpp"
#include "support/survivor.hpp"

/// In memory of all ranks.
struct Shared {
  SurvivorEnding ending;
  std::atomic<uint64_t> members{0};  // of the last step
};

/// Until a step was made by these.
void wait_for_step(const Shared& shared, uint64_t members) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (shared.members != members) {
    if (std::chrono::steady_clock::now() > until)
      throw std::runtime_error("no step of the ranks " + std::to_string(members));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

/// Three ranks; one joins; rank 0 dies, and perhaps a stranger takes its ports; one more joins.
void join_and_join_again(Survival plan, std::optional<Impostor::Manner> stranger = {}) {
  auto* const shared = new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
  plan.ranks = 3;
  plan.ending = &shared->ending;
  plan.made = [shared](int64_t, uint64_t members) { shared->members = members; };
  if (ddp_recover_options_init(&plan.rule, sizeof plan.rule) != DDP_OK) throw Error(DDP_ERROR_INTERNAL, "no options");
  const auto body = [&](int id, Reporter& report) { return write_story(Survivor(plan, id, to(report), id >= 3).run()); };
  Procs first(3, [&](int rank, Reporter& report) { return body(rank, report); });
  wait_for_step(*shared, 0b00111);
  Procs fourth(1, [&](int, Reporter& report) { return body(3, report); });
  wait_for_step(*shared, 0b01111);
  int gate[2] = {-1, -1};
  expect(pipe(gate) == 0, "a pipe");
  Procs fifth(1, [&](int, Reporter& report) {
    char opened = 0;
    close(gate[1]);
    (void)!read(gate[0], &opened, 1);
    return body(4, report);
  });
  std::vector<Impostor::Place> places;
  for (const int port : listening_ports({first.pid(0)})) places.push_back(Impostor::look_at(port));
  std::optional<Impostor> impostor;
  if (stranger) impostor.emplace(*stranger, places);
  first.signal(0, SIGKILL);
  if (stranger) expect(impostor->wait_until_taken(), "he has the ports");
  if (stranger) wait_for_step(*shared, 0b01110);
  close(gate[0]);
  close(gate[1]);
  wait_for_step(*shared, 0b11110);
  shared->ending.asked = true;
  std::vector<ProcResult> results = first.wait(30'000);
  results.erase(results.begin());
  for (Procs* const more : {&fourth, &fifth}) results.push_back(more->wait(10'000).front());
  const Story told = read_story(results.front().text);
  for (const ProcResult& result : results) {
    expect(result.exit_code == 0, result.describe() + "\n" + result.said);
    expect(read_story(result.text).hash == told.hash, "all have the same weights: " + result.text);
  }
  expect(told.hash == replay(told.members), "the weights are those of the replay");
  expect(told.members.front() == 0b00111 && told.members.back() == 0b11110, "who was there: " + write_story(told));
  munmap(shared, sizeof *shared);
}

ddp_case(at_the_address_of_tcp) {
  Survival plan;
  plan.rendezvous = "tcp://127.0.0.1:" + std::to_string(free_port());
  join_and_join_again(plan);
}

ddp_case(at_the_address_of_tcp_with_a_token_and_a_name) {
  setenv("DDP_TOKEN", "0123456789abcdef0123456789abcdef", 1);
  Survival plan;
  plan.rendezvous = "tcp://127.0.0.1:" + std::to_string(free_port()) + "#training";
  join_and_join_again(plan);
  unsetenv("DDP_TOKEN");
}

/// He keeps no rank out, and delays no recovery.
ddp_case(at_the_address_that_a_stranger_has_taken) {
  setenv("DDP_TOKEN", "0123456789abcdef0123456789abcdef", 1);
  for (const Impostor::Manner manner : Impostor::kManners) {
    std::printf("he %s\n", Impostor::name_of(manner));
    Survival plan;
    plan.rendezvous = "tcp://127.0.0.1:" + std::to_string(free_port());
    join_and_join_again(plan, manner);
  }
  unsetenv("DDP_TOKEN");
}

/// A newcomer has only MASTER_ADDR and MASTER_PORT. The ranks before it may have been started by a launcher whose variables
/// mean that all are on this host, so that they meet at the loopback, whatever the name of the host stands for.
ddp_case(at_the_address_of_the_environment) {
  std::array<char, 256> name{};
  expect(gethostname(name.data(), name.size() - 1) == 0, "this host has a name");
  for (const char* const local_size : {"", "3"}) {
    setenv("MASTER_ADDR", *local_size == '\0' ? "127.0.0.1" : name.data(), 1);
    setenv("MASTER_PORT", std::to_string(free_port()).c_str(), 1);
    if (*local_size != '\0') setenv("LOCAL_WORLD_SIZE", local_size, 1);
    Survival plan;
    plan.rendezvous = "env://";
    join_and_join_again(plan);
    for (const char* const each : {"MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE"}) unsetenv(each);
  }
}

std::string refused(const char* rendezvous, ddp_status expected) {
  ddp_group_options options;
  ddp_group* group = nullptr;
  expect(ddp_group_options_init(&options, sizeof options) == DDP_OK, "options");
  options.join = options.recoverable = 1;
  options.rendezvous_timeout_ms = 200;
  expect_equal(ddp_group_create(rendezvous, &options, &group), expected, "the status");
  return ddp_last_error();
}

ddp_case(who_finds_nobody_is_told_what_to_do) {
  expect_contains(refused("env://", DDP_ERROR_INVALID_ARGUMENT), "set MASTER_ADDR and MASTER_PORT");
  const std::string port = std::to_string(free_port());
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", port.c_str(), 1);
  for (const std::string& text :
       {refused("env://", DDP_ERROR_TIMED_OUT), refused(("tcp://127.0.0.1:" + port).c_str(), DDP_ERROR_TIMED_OUT)}) {
    expect_contains(text, "at 127.0.0.1:" + port);
    expect_contains(text, "no rank of it is left on that host");
    expect_contains(text, "DDP_JOIN_FILE");
  }
  setenv("MASTER_PORT", "70000", 1);
  expect_contains(refused("env://", DDP_ERROR_INVALID_ARGUMENT), "MASTER_PORT is 70000");
  unsetenv("MASTER_ADDR");
  unsetenv("MASTER_PORT");
  const Folder folder;
  expect_contains(refused(("file://" + folder.path() + "/meet").c_str(), DDP_ERROR_TIMED_OUT), "/meet.join");
}

ddp_case(in_the_store_of_the_program) {
  const Folder folder;
  FolderStore kept(folder.path());
  ddp_store store{sizeof(ddp_store), FolderStore::set, FolderStore::get, &kept};
  Survival plan;
  plan.rendezvous = "store://";
  plan.store = &store;
  join_and_join_again(plan);
}

/// A rank of another host comes to one that is alone.
ddp_case(to_a_rank_that_is_alone_from_another_host) {
  if (!gloo_is_there()) return;
  const Folder folder;
  auto* const ending =
      new (mmap(nullptr, sizeof(SurvivorEnding), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) SurvivorEnding;
  Survival plan;
  plan.rendezvous = "file://" + folder.path() + "/meet";
  plan.ranks = 1;
  plan.ending = ending;
  if (ddp_recover_options_init(&plan.rule, sizeof plan.rule) != DDP_OK) throw Error(DDP_ERROR_INTERNAL, "no options");
  const auto body = [&](int id, Reporter& report) {
    setenv("DDP_TEST_HOST", std::to_string(id).c_str(), 1);
    return write_story(Survivor(plan, id, to(report), id >= 1).run());
  };
  Procs first(1, [&](int, Reporter& report) { return body(0, report); });
  first.wait_for(0, "committed");
  Procs second(1, [&](int, Reporter& report) { return body(1, report); });
  second.wait_for(0, "committed");
  ending->asked = true;
  for (Procs* const each : {&first, &second}) {
    const ProcResult result = each->wait(30'000).front();
    expect(result.exit_code == 0, result.describe() + "\n" + result.said);
    expect_equal(read_story(result.text).members.back(), uint64_t{0b11}, "both are there at the end");
  }
  munmap(ending, sizeof *ending);
}
