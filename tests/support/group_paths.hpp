// SPDX-License-Identifier: Apache-2.0
// One test body on every path of bytes: ranks as threads, processes over shared memory, processes over Gloo.
//
//   void sums_are_right(Path path) { run_on(path, 3, [](Group& group, int rank) { ... }); }
//   ... ddp_paths_test(sums_are_right) ...   // three tests
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "support/group_procs.hpp"

namespace ddp::test {

/// kHosts: processes on made-up hosts, two ranks on each, the last one may have one.
enum class Path { kLocal, kShm, kGloo, kHosts };

/// Without the module every group of processes over Gloo fails with NOT_SUPPORTED; a test then prints it and skips Gloo.
inline bool has_gloo() {
  static const bool there = [] {
    ddp_group_options options = world_options();
    options.backend = DDP_BACKEND_GLOO;
    try {
      run_group_procs(2, options, [](group::Group& group, int) { group.barrier(); });
      return true;
    } catch (const std::exception& error) {
      if (std::string(error.what()).find("NOT_SUPPORTED") == std::string::npos) throw;
      std::printf("skipped over Gloo: %s\n", error.what());
      return false;
    }
  }();
  return there;
}

/// Each rank's body gets the place where all ranks of the test meet; it makes its groups itself, with `#name` for further
/// ones.
inline void run_at(Path path, int size,
                   const std::function<void(const std::string& place, ddp_group_options options, int rank)>& body) {
  static std::atomic<int> next{0};
  const auto options_of = [&](int rank, ddp_backend backend) {
    ddp_group_options options = world_options();
    options.rank = rank;
    options.world_size = size;
    options.backend = backend;
    return options;
  };
  if (path == Path::kLocal) {
    const std::string place = "local://path-" + std::to_string(next++);
    run_ranks(size, [&](int rank) { body(place, options_of(rank, DDP_BACKEND_AUTO), rank); });
    return;
  }
  const Folder folder;
  Procs procs(size, [&](int rank, Reporter&) {
    if (path == Path::kHosts) setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
    const ddp_backend backend = path == Path::kHosts ? DDP_BACKEND_AUTO
                                : path == Path::kShm ? DDP_BACKEND_SHM
                                                     : DDP_BACKEND_GLOO;
    body("file://" + folder.path() + "/meet", options_of(rank, backend), rank);
    return std::string("done");
  });
  int rank = 0;
  std::string failed;  // of all ranks: the first one's trouble is often that another left
  for (const ProcResult& result : procs.wait(60'000)) {
    if (result.exit_code != 0)
      failed += "rank " + std::to_string(rank) + " of " + std::to_string(size) + ": " + result.describe() + "; ";
    ++rank;
  }
  expect(failed.empty(), failed);
}

inline void run_on(Path path, int size, const std::function<void(group::Group&, int)>& body) {
  run_at(path, size, [&](const std::string& place, const ddp_group_options& options, int rank) {
    const auto group = group::Group::create(place.c_str(), options);
    body(*group, rank);
    group->barrier();  // no rank leaves while others compare
  });
}

/// Two groups of the same ranks.
inline void run_pairs_on(Path path, int size, const std::function<void(group::Group&, group::Group&, int)>& body) {
  run_at(path, size, [&](const std::string& place, const ddp_group_options& options, int rank) {
    const auto first = group::Group::create((place + "#first").c_str(), options);
    const auto second = group::Group::create((place + "#second").c_str(), options);
    body(*first, *second, rank);
    first->barrier();
    second->barrier();
  });
}

template <void (*Body)(Path), Path kPath>
void on_path(void**) {
  if (kPath == Path::kLocal || kPath == Path::kShm || has_gloo()) Body(kPath);
}

}  // namespace ddp::test

/// Three CMUnitTests of a function that takes a Path and may throw.
#define ddp_paths_test(function)                                                                                            \
  {#function " on threads", ddp::test::guarded<&ddp::test::on_path<&function, ddp::test::Path::kLocal>>, nullptr, nullptr,  \
   nullptr},                                                                                                                \
      {#function " over shared memory", ddp::test::guarded<&ddp::test::on_path<&function, ddp::test::Path::kShm>>, nullptr, \
       nullptr, nullptr},                                                                                                   \
  {                                                                                                                         \
#function " over Gloo", ddp::test::guarded < &ddp::test::on_path < &function, ddp::test::Path::kGloo>>, nullptr,        \
        nullptr, nullptr                                                                                                    \
  }
