// SPDX-License-Identifier: Apache-2.0
// Memory, threads or descriptors run out on a rank that joins a training. Whichever request fails, once or from there on: it
// ends with an error, or joins nevertheless; the others continue, and end with the weights of the replay.
//
//   test.scarce.joining         some requests
//   test.scarce.joining 100     100 of each kind

#include "support/check.hpp"
#include "support/joined_training.hpp"
#include "support/on_processes.hpp"
#include "support/scarce.hpp"

int64_t samples = 5;

/// Gives the requests of the whole joining if none fails.
int64_t join_with(JoinedTraining& training, const scarce::Plan& plan, const std::string& where) {
  Procs joiner(1, [&](int, Reporter& report) -> std::string {
    Survival mine = training.joiner();
    mine.made = [&](int64_t, uint64_t) {
      report.say("asked " + std::to_string(scarce::disarm()));
      _exit(0);
    };
    scarce::arm(plan);
    try {
      return training.join(mine, report);
    } catch (...) {
      scarce::disarm();
      throw;
    }
  });
  const ProcResult result = joiner.wait(60'000).front();
  expect(result.signal == 0 && !result.timed_out, where + ": " + result.describe());
  training.must_go_on(where + ", where the rank that joins ended with " + result.describe());
  const size_t at = result.said.find("asked ");
  return at == std::string::npos ? 0 : std::stoll(result.said.substr(at + 6));
}

void starve(scarce::What what, const char* name) {
  JoinedTraining training;
  const int64_t all = join_with(training, {.what = what}, "nothing fails");
  expect(all > 0, "a rank joins where nothing fails");
  for (const bool lasting : {false, true})
    for (int64_t i = 0; i < samples; ++i) {
      const int64_t first = 1 + i * all / samples;
      const std::string where = std::string(name) + " " + std::to_string(first) + " of " + std::to_string(all) +
                                (lasting ? " and all after it" : "");
      static_cast<void>(join_with(training, {first, lasting, what}, where));
    }
  training.end();
}

ddp_case(a_rank_without_memory_costs_itself_alone) { starve(scarce::What::kMemory, "allocation"); }
ddp_case(a_rank_without_threads_or_descriptors_costs_itself_alone) {
  if (scarce::kRefusesSystem) starve(scarce::What::kSystem, "thread, descriptor or mapping");
}

ddp_before_cases(if (argc > 1) samples = std::atoll(argv[1]));
