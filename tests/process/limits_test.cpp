// SPDX-License-Identifier: Apache-2.0
// Ranks that reach a limit of their process while they make a group: one of them names the limit, in its error or its log.
#include <sys/resource.h>

#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/no_gloo.hpp"

void set_limit(decltype(RLIMIT_NOFILE) what, rlim_t value) {
  const rlimit limit{value, value};
  expect_equal(setrlimit(what, &limit), 0, "a lower limit");
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// The result of each of two ranks: "made", or its error, with its log.
std::vector<std::string> texts_with(decltype(RLIMIT_NOFILE) what, rlim_t value, ddp_backend backend) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) -> std::string {
    ddp_group_options options = world_options();
    options.backend = backend;
    options.timeout_ms = options.rendezvous_timeout_ms = 2'000;
    options.dead_after_ms = 2'000;
    const std::string log = folder.path() + "/log-" + std::to_string(rank);
    expect(freopen(log.c_str(), "w", stderr) != nullptr, "a log");
    set_limit(what, value);
    try {
      const auto group = join_process_group(folder, rank, 2, options);
      group->barrier();
      return "made";
    } catch (const std::exception& thrown) {  // as a call of the C API reports it
      const Error error = to_error(thrown);
      std::fflush(stderr);
      return std::string(status_name(error.status())) + ": " + error.text() + "\n    log: " + text_of_file(log);
    }
  });
  std::vector<std::string> texts;
  for (const ProcResult& result : procs.wait(60'000)) {
    expect(result.exit_code == 0 && !result.timed_out, result.describe());
    texts.push_back(result.text);
  }
  return texts;
}

void expect_named(const std::vector<std::string>& texts, const std::string& option, const std::string& where) {
  const std::string all = where + "\n  rank 0: " + texts[0] + "\n  rank 1: " + texts[1];
  if (texts[0] == "made" && texts[1] == "made") return;
  expect(all.find(option) != std::string::npos, all + "\nnobody names " + option);
}

int failed(const std::vector<std::string>& texts) { return texts[0] == "made" && texts[1] == "made" ? 0 : 1; }

ddp_case(too_few_descriptors_are_named) {
  int failures = 0;
  for (const ddp_backend backend : {DDP_BACKEND_SHM, DDP_BACKEND_GLOO}) {
    if (backend == DDP_BACKEND_GLOO && no_gloo()) continue;
    for (rlim_t limit = 6; limit <= 38; limit += 4) {
      const std::vector<std::string> texts = texts_with(RLIMIT_NOFILE, limit, backend);
      failures += failed(texts);
      expect_named(texts, "ulimit -n", std::to_string(limit) + " descriptors");
    }
  }
  expect(failures > 4, "some of these limits are too low");
}

ddp_case(too_little_memory_is_named) {
  int failures = 0;
  for (const rlim_t mib : {12, 20, 28, 40}) {
    const std::vector<std::string> texts = texts_with(RLIMIT_AS, mib << 20, DDP_BACKEND_SHM);
    failures += failed(texts);
    expect_named(texts, "memory", std::to_string(mib) + " MiB of addresses");
  }
  expect(failures > 0, "some of these limits are too low");
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
ddp_before_cases(std::puts("skipped: a sanitizer needs more addresses and files than these limits leave"); std::exit(77));
#endif
