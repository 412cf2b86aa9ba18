// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes: over shared memory, over Gloo, and on two made-up hosts with shared memory inside them.
#pragma once

#include "support/group_procs.hpp"

namespace ddp::test {

enum class Hosts { kShared, kGloo, kSeveral };

inline ddp_group_options options_on(Hosts hosts) {
  ddp_group_options options = world_options();
  options.backend = hosts == Hosts::kShared ? DDP_BACKEND_SHM : hosts == Hosts::kGloo ? DDP_BACKEND_GLOO : DDP_BACKEND_AUTO;
  return options;
}

/// Ranks 0 and 1 on one host, 2 and 3 on another.
inline void run_on_hosts(Hosts hosts, int size, const std::function<void(group::Group&, int)>& body) {
  const Folder folder;
  Procs procs(size, [&](int rank, Reporter&) {
    if (hosts == Hosts::kSeveral) setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
    const auto group = join_process_group(folder, rank, size, options_on(hosts));
    body(*group, rank);
  });
  expect_success(procs, 60'000);
}

inline bool gloo_is_there() {
  static const bool there = [] {
    try {
      run_on_hosts(Hosts::kGloo, 2, [](group::Group& group, int) { group.barrier(); });
      return true;
    } catch (const std::exception& error) {
      if (std::string(error.what()).find("NOT_SUPPORTED") == std::string::npos) throw;
      std::printf("skipped over Gloo: %s\n", error.what());
      return false;
    }
  }();
  return there;
}

inline bool list_on_hosts(const char* file, const std::vector<Hosts>& all, const std::string& name, void (*body)(Hosts)) {
  static constexpr const char* kNames[] = {" over shared memory", " over Gloo", " on several hosts"};
  for (const Hosts hosts : all)
    list_case(file, name + kNames[static_cast<size_t>(hosts)], [hosts, body] {
      if (hosts == Hosts::kShared || gloo_is_there()) body(hosts);
    });
  return true;
}

}  // namespace ddp::test

/// The head of a case that runs in some of these ways, as far as Gloo is there:
/// ddp_case_on_hosts(a_rank_dies, Hosts::kShared, Hosts::kGloo) { run_on_hosts(hosts, 3, ...); }
#define ddp_case_on_hosts(function, ...)                                      \
  void function(ddp::test::Hosts);                                            \
  [[maybe_unused]] const bool function##_is_listed =                          \
      ddp::test::list_on_hosts(__FILE__, {__VA_ARGS__}, #function, function); \
  void function(ddp::test::Hosts hosts)
