// SPDX-License-Identifier: Apache-2.0
// One rank of the training that survives, as a program: for tests that start ranks on hosts of their own or with ddprun.
//
//   chaos.survivor RENDEZVOUS RANK RANKS STEPS [half]       store:///FOLDER: a store that keeps its values in this folder
//   chaos.survivor RENDEZVOUS join ID STEPS [half]          it joins an existing group
//   chaos.survivor env:// - - STEPS                         by the launcher's variables
//   chaos.survivor end FILE                                 ends trainings whose STEPS is this file, of 64 zeros at first
//   chaos.survivor check STORY...                           do stories agree with each other and with their replay?
//
// DDP_TEST_WAIT_MS: how long it waits for the others at first. Prints "story HASH MEMBERS..." at its end, or the error.
#include "support/survivor.hpp"

#include "support/folder_store.hpp"

using namespace ddp::test;

namespace {

/// What a rank that joined does not know of the beginning, others do.
int check(int count, char** stories) {
  Story told;
  for (int i = 0; i < count; ++i) {
    Story story = read_story(stories[i]);
    if (story.members.size() > told.members.size()) told.members.resize(story.members.size());
    for (size_t step = 0; step < story.members.size(); ++step) {
      if (told.members[step] == 0) told.members[step] = story.members[step];
      if (story.members[step] != 0 && story.members[step] != told.members[step]) return std::puts("other members"), 1;
    }
    if (i > 0 && story.hash != told.hash) return std::puts("other weights"), 1;
    told.hash = story.hash;
  }
  if (told.hash != replay(told.members)) return std::puts("not the weights of the replay"), 1;
  std::printf("%d stories agree; members at the end: %llu\n", count, static_cast<unsigned long long>(told.members.back()));
  return 0;
}

/// In a file, so that all ranks and the script share it.
SurvivorEnding* ending_in(const char* path) {
  const int file = open(path, O_RDWR | O_CLOEXEC);
  void* const memory = mmap(nullptr, sizeof(SurvivorEnding), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || memory == MAP_FAILED) std::printf("there is no file %s\n", path), std::exit(2);
  return static_cast<SurvivorEnding*>(memory);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "check") return check(argc - 2, argv + 2);
  if (argc == 3 && std::string(argv[1]) == "end") return ending_in(argv[2])->asked = true, 0;
  if (argc < 5) return 2;
  Survival plan;
  plan.rendezvous = argv[1];
  const bool asked_to_join = std::string(argv[2]) == "join";
  const bool launched = plan.rendezvous == "env://" && !asked_to_join;
  const bool joins = asked_to_join || std::getenv("DDP_JOIN") != nullptr;
  plan.ranks = launched ? std::atoi(std::getenv("WORLD_SIZE")) : std::atoi(argv[3]);
  if (argv[4][0] == '/')
    plan.ending = ending_in(argv[4]);
  else
    plan.steps = std::atoll(argv[4]);
  plan.dead_after_ms = 2'000;
  if (const char* const wait_ms = std::getenv("DDP_TEST_WAIT_MS")) plan.rendezvous_timeout_ms = std::atoll(wait_ms);
  FolderStore folder(plan.rendezvous.rfind("store://", 0) == 0 ? plan.rendezvous.substr(8) : "");
  const ddp_store store{sizeof(ddp_store), FolderStore::set, FolderStore::get, &folder};
  if (!folder.folder.empty()) plan.rendezvous = "store://", plan.store = &store;
  if (ddp_recover_options_init(&plan.rule, sizeof plan.rule) != DDP_OK) return 1;
  plan.rule.cool_down_ms = 0;
  plan.rule.allow_half = argc > 5 ? 1 : 0;
  const int id = launched ? std::atoi(std::getenv("RANK")) : joins ? std::atoi(argv[3]) : std::atoi(argv[2]);
  const auto say = [](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  };
  try {
    const Story story = Survivor(plan, id, say, joins).run();
    std::printf("story %s\n", write_story(story).c_str());
    return 0;
  } catch (const Error& error) {
    std::printf("%s: %s\n", status_name(error.status()), error.what());
  } catch (const std::exception& error) {
    std::printf("wrong: %s\n", error.what());
  }
  return 1;
}
