// SPDX-License-Identifier: Apache-2.0
// Memory, threads or descriptors run out on the lowest rank, which leads a recovery, or on the next one. Whichever request
// fails, once or from there on: that rank continues or ends with an error, and the others continue with or without it. Who
// reaches the end has the weights of the replay. Not memory over Gloo: a thread of Gloo's ends its process then, or the rank
// hangs and the others continue without it when they find it silent.
//
//   test.scarce.recovery         some requests
//   test.scarce.recovery 100     100 of each kind
//   test.scarce.recovery 1 854   request 854 alone

#include "support/check.hpp"
#include "support/on_processes.hpp"
#include "support/scarce.hpp"
#include "support/survivor.hpp"

constexpr int kSurvivors = 4, kDies = 3;
constexpr int64_t kStruck = 4, kStepsInAll = 8;

int64_t requests_of_each = 4, only = 0;

std::string all_of(const std::vector<ProcResult>& results) {
  std::string text;
  for (const ProcResult& each : results) text += "\n  " + each.describe() + "; said: " + each.said;
  return text;
}

/// Gives the requests of the whole recovery if none fails.
int64_t recover_with(ddp_backend backend, int lacking, const scarce::Plan& plan, const std::string& where) {
  const Folder folder;
  Survival story;
  story.rendezvous = "file://" + folder.path() + "/meet";
  story.ranks = kSurvivors;
  story.backend = backend;
  story.steps = kStepsInAll;
  story.pause_ms = 1;
  story.dead_after_ms = 10'000;  // deaths are seen, and a rank may get no core for a while
  if (ddp_recover_options_init(&story.rule, sizeof story.rule) != DDP_OK) throw Error(DDP_ERROR_INTERNAL, "no options");
  story.rule.wait_ms = 10'000;
  Procs ranks(kSurvivors, [&](int id, Reporter& report) {
    Survival mine = story;
    bool armed = false;
    mine.repeats = id == lacking ? 1 : 10;
    if (id == lacking)
      mine.enters = [&](State state) {
        if (state == State::kRecover && !std::exchange(armed, true)) scarce::arm(plan);
      };
    mine.made = [&](int64_t step, uint64_t) {
      if (id == kDies && step == kStruck) ::raise(SIGKILL);
      if (std::exchange(armed, false)) report.say("asked " + std::to_string(scarce::disarm()));
    };
    try {
      return write_story(Survivor(mine, id, to(report)).run());
    } catch (...) {
      scarce::disarm();
      throw;
    }
  });
  const std::vector<ProcResult> results = ranks.wait(60'000);
  uint64_t hash = 0;
  for (int id = 0; id < kDies; ++id) {
    const ProcResult& result = results[static_cast<size_t>(id)];
    const std::string which = where + ", rank " + std::to_string(id) + ": " + all_of(results);
    expect(result.signal == 0 && !result.timed_out, which);
    if (id == lacking && result.exit_code != 0) continue;  // an error, which ends this rank alone
    expect(result.exit_code == 0, which);
    const Story told = read_story(result.text);
    if (hash == 0) hash = replay(told.members);
    expect(told.hash == hash, which + ": not the weights of the replay");
  }
  const std::string& said = results[static_cast<size_t>(lacking)].said;
  const size_t at = said.find("asked ");
  return at == std::string::npos ? 0 : std::stoll(said.substr(at + 6));
}

void starve(ddp_backend backend, scarce::What what, const char* name) {
  for (const int lacking : {0, 1}) {
    const int64_t all = recover_with(backend, lacking, {.what = what}, "nothing fails");
    expect(all > 0, "the rank recovers where nothing fails");
    for (const bool lasting : {false, true})
      for (int64_t i = 0; i < requests_of_each; ++i) {
        const int64_t first = only > 0 ? only : 1 + (2 * i + lacking) * all / (2 * requests_of_each);
        recover_with(backend, lacking, {first, lasting, what},
                     std::string(name) + " " + std::to_string(first) + " of " + std::to_string(all) +
                         (lasting ? " and all after it" : "") + " of rank " + std::to_string(lacking));
      }
  }
}

ddp_case(memory_over_shared_memory) { starve(DDP_BACKEND_SHM, scarce::What::kMemory, "allocation"); }
ddp_case(threads_and_descriptors_over_shared_memory) {
  if (scarce::kRefusesSystem) starve(DDP_BACKEND_SHM, scarce::What::kSystem, "thread, descriptor or mapping");
}
ddp_case(threads_and_descriptors_over_gloo) {
  if (scarce::kRefusesSystem) starve(DDP_BACKEND_GLOO, scarce::What::kSystem, "thread, descriptor or mapping");
}

ddp_before_cases(if (argc > 1) requests_of_each = std::atoll(argv[1]); if (argc > 2) only = std::atoll(argv[2]));
