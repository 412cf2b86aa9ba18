// SPDX-License-Identifier: Apache-2.0
// experiments.gpu --part NAME [--quick]: one part, or all of them one after the other without --part.
//
// Prints a line for each figure and verdict. Exit status: 0 no verdict failed, 1 one did or a part broke off, 2 wrong
// arguments, 77 there is no GPU here (or not what the part needs).
#include "gpu/experiments/experiments.hpp"

#include <exception>

#include "gpu/support/run_tests.hpp"

namespace ddp::experiments {

void Report::line(const char* mark, const std::string& what, const std::string& value, const std::string& note) const {
  std::printf("%-4s %-10s %-62s %14s  %s\n", mark, part_.c_str(), what.c_str(), value.c_str(), note.c_str());
  std::fflush(stdout);
}
void Report::figure(const std::string& what, double value, const char* unit, const std::string& note) {
  char text[64];
  std::snprintf(text, sizeof text, "%.4g %s", value, unit);
  line("-", what, text, note);
}
void Report::verdict(const std::string& what, bool holds, const std::string& note) {
  failures_ += !holds;
  line(holds ? "PASS" : "FAIL", what, "", note);
}
void Report::timed_verdict(const std::string& what, bool holds, const std::string& note) {
  if (!test::card::is_fake()) return verdict(what, holds, note);
  line("-", what, "", "not judged on the fake GPU");
}
void Report::not_here(const std::string& what, const std::string& why) { line("-", what, "not here", why); }

namespace {

struct Part {
  const char* name;
  void (*run)(Report&, const Options&);
};
constexpr Part kParts[] = {{"stop_word", measure_stop_word}, {"pending", destroy_with_work_pending},
                           {"fork", fork_and_leave},         {"init_kill", kill_while_connecting},
                           {"contexts", measure_contexts},   {"graph_register", capture_beside_others},
                           {"rates", measure_rates},         {"reproducible", measure_reproducible}};

/// Failed verdicts; a part that breaks off counts as one.
int run_part(const Part& part, const Options& options) {
  Report report(part.name);
  try {
    part.run(report, options);
    if (test::card::nothing_was_violated(nullptr) != 0) report.verdict("nothing races on the fake GPU", false);
  } catch (const std::exception& error) {
    report.verdict("the part comes to its end", false, error.what());
  }
  return report.failures();
}

int usage() {
  std::fputs("experiments.gpu [--quick] [--part NAME], one of:", stderr);
  for (const Part& part : kParts) std::fprintf(stderr, " %s", part.name);
  std::fputs("\n", stderr);
  return 2;
}

int run(int argc, char** argv) {
  Options options;
  std::string only;
  for (int k = 1; k < argc; ++k) {
    if (std::strcmp(argv[k], "--quick") == 0)
      options.quick = true;
    else if (std::strcmp(argv[k], "--part") == 0 && k + 1 < argc)
      only = argv[++k];
    else
      return usage();
  }
  int found = 0, failures = 0;
  for (const Part& part : kParts) {
    if (!only.empty() && only != part.name) continue;
    ++found;
    failures += run_part(part, options);
  }
  if (found == 0) return usage();
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ddp::experiments

int main(int argc, char** argv) { return ddp::experiments::run(argc, argv); }
