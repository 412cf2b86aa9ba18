// SPDX-License-Identifier: Apache-2.0
// One test body on every transport: ranks as threads, as processes over shared memory, over sockets and on several hosts,
// and as threads with a fake GPU each.
//
//   ddp_case_on(kThreePaths, sums_are_right) { run_on(path, 3, [](Group& group, int rank) { ... }); }
#pragma once

#include "support/gpu_world.hpp"
#include "support/group_procs.hpp"

namespace ddp::test {

/// kHosts: processes on made-up hosts, two ranks on each, the last one may have one. kGpu: rank r on the fake GPU r.
enum class Path { kLocal, kShm, kGloo, kHosts, kGpu };

using Paths = std::vector<Path>;
inline const Paths kEveryHostPath = {Path::kLocal, Path::kShm, Path::kGloo, Path::kHosts};
inline const Paths kEveryPath = {Path::kLocal, Path::kShm, Path::kGloo, Path::kHosts, Path::kGpu};
/// The usual ones, where several hosts show nothing that Gloo does not.
inline const Paths kThreePaths = {Path::kLocal, Path::kShm, Path::kGloo};

/// What a transport needs, and how a group on it says which it is.
struct PathRow {
  const char* name;
  ddp_backend asked = DDP_BACKEND_AUTO;
  bool has_processes = false;
  bool needs_gloo = false;
  int least = 1;  // ranks; with fewer it would be another transport
};
inline constexpr PathRow kPathTable[] = {{"on threads"},
                                         {"over shared memory", DDP_BACKEND_SHM, true},
                                         {"over Gloo", DDP_BACKEND_GLOO, true, true},
                                         {"on several hosts", DDP_BACKEND_AUTO, true, true, 3},
                                         {"on GPUs"}};
inline const PathRow& row_of(Path path) { return kPathTable[static_cast<size_t>(path)]; }

/// Each rank's body gets the place where all ranks of the test meet; it makes its groups itself, with `#name` for further
/// ones.
inline void run_at(Path path, int size,
                   const std::function<void(const std::string& place, ddp_group_options options, int rank)>& body) {
  static std::atomic<int> next{0};
  const auto options_of = [&](int rank) {
    ddp_group_options options = world_options(rank, size);
    options.backend = row_of(path).asked;
    return options;
  };
  if (!row_of(path).has_processes) {
    const std::string place = "local://path-" + std::to_string(next++);
    if (path == Path::kLocal) return run_ranks(size, [&](int rank) { body(place, options_of(rank), rank); });
    const FakeGpus gpus(static_cast<uint64_t>(size) + 1);
    run_ranks(size, [&](int rank) {
      ddp_group_options options = options_of(rank);
      options.device_index = rank;
      expect(fake_gpu::table().set_device(rank) == 0, "a program has its GPU current");
      body(place, options, rank);
    });
    FakeGpus::expect_clean();
    return;
  }
  const Folder folder;
  Procs procs(size, [&](int rank, Reporter&) {
    if (path == Path::kHosts) setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
    body("file://" + folder.path() + "/meet", options_of(rank), rank);
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

/// A body that may end while other ranks are still at work.
inline void run_freely_on(Path path, int size, const std::function<void(group::Group&, int)>& body) {
  run_at(path, size, [&](const std::string& place, const ddp_group_options& options, int rank) {
    const auto group = group::Group::create(place.c_str(), options);
    const bool is_remote = row_of(path).needs_gloo && size >= row_of(path).least;
    if (row_of(path).has_processes && size > 1)
      expect(group->backend() == (is_remote ? DDP_BACKEND_GLOO : DDP_BACKEND_SHM), "the backend that was asked for");
    body(*group, rank);
  });
}

/// Nothing where so few ranks would be on another transport.
inline void run_if_enough_on(Path path, int size, const std::function<void(group::Group&, int)>& body) {
  if (size >= row_of(path).least) run_freely_on(path, size, body);
}

inline void run_on(Path path, int size, const std::function<void(group::Group&, int)>& body) {
  run_freely_on(path, size, [&](group::Group& group, int rank) {
    body(group, rank);
    group.barrier();  // no rank leaves while others compare
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

/// Without the module every group of processes over Gloo fails with NOT_SUPPORTED; a test then prints it and skips Gloo.
inline bool has_gloo() {
  static const bool there = [] {
    try {
      run_on(Path::kGloo, 2, [](group::Group&, int) {});
      return true;
    } catch (const std::exception& error) {
      if (std::string(error.what()).find("NOT_SUPPORTED") == std::string::npos) throw;
      std::printf("skipped over Gloo: %s\n", error.what());
      return false;
    }
  }();
  return there;
}

inline bool list_on_paths(const char* file, const Paths& paths, const std::string& name,
                          const std::function<void(Path)>& body) {
  for (const Path path : paths)
    list_case(file, name + " " + row_of(path).name, [path, body] {
      if (!row_of(path).needs_gloo || has_gloo()) body(path);
    });
  return true;
}

}  // namespace ddp::test

/// The head of a case that runs on some transports.
#define ddp_case_on(paths, function)                                                                                   \
  void function(ddp::test::Path);                                                                                      \
  [[maybe_unused]] const bool function##_is_listed = ddp::test::list_on_paths(__FILE__, (paths), #function, function); \
  void function([[maybe_unused]] ddp::test::Path path)

/// Its body is that of each rank, with `path`, `group` and `rank`, for some numbers of ranks; `run` is run_on or one like
/// it: ddp_ranks_case_on(kThreePaths, run_on, sums_are_exact, 1, 3) { ... }
#define ddp_ranks_case_on(paths, run, function, ...)                                                    \
  void function(ddp::test::Path, ddp::group::Group&, int);                                              \
  [[maybe_unused]] const bool function##_is_listed =                                                    \
      ddp::test::list_on_paths(__FILE__, (paths), #function, [](ddp::test::Path path) {                 \
        for (const int size : {__VA_ARGS__})                                                            \
          run(path, size, [path](ddp::group::Group& group, int rank) { function(path, group, rank); }); \
      });                                                                                               \
  void function([[maybe_unused]] ddp::test::Path path, [[maybe_unused]] ddp::group::Group& group, [[maybe_unused]] int rank)
