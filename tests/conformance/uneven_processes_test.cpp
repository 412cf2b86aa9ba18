// SPDX-License-Identifier: Apache-2.0
// Unequal data between processes, over shared memory, over Gloo, and on several hosts: every promise of
// conformance/uneven_semantics.hpp, and what those that joined learn when a rank is killed.
#include <signal.h>

#include "conformance/uneven_semantics.hpp"
#include "model/uneven.hpp"
#include "support/group_paths.hpp"

namespace ddp::test {
namespace {

ddp_group_options options_of(ddp_backend backend) {
  ddp_group_options options = world_options();
  options.backend = backend;
  return options;
}

template <size_t kIndex, ddp_backend kBackend>
void on_processes(void**) {
  if (kBackend == DDP_BACKEND_GLOO && !has_gloo()) return;
  kUnevenSemantics[kIndex].run([](int size, const std::function<void(group::Group&, int)>& body) {
    if (size > 1) run_group_procs(size, options_of(kBackend), body);
  });
}

/// The first two ranks on one host, the others on a second: shared memory inside, a rail between them.
template <size_t kIndex>
void on_hosts(void**) {
  if (!has_gloo()) return;
  kUnevenSemantics[kIndex].run([](int size, const std::function<void(group::Group&, int)>& body) {
    if (size < 3) return;
    const Folder folder;
    Procs procs(size, [&](int rank, Reporter&) {
      setenv("DDP_TEST_HOST", rank < 2 ? "a" : "b", 1);
      const auto group = join_process_group(folder, rank, size, options_of(DDP_BACKEND_AUTO));
      expect(group->backend() == DDP_BACKEND_GLOO, "two hosts");
      body(*group, rank);
      return std::string("done");
    });
    for (const ProcResult& result : procs.wait(60'000)) expect(result.exit_code == 0, result.describe());
  });
}

void a_killed_rank_is_named_to_those_that_joined(void**) {
  for (const ddp_backend backend : {DDP_BACKEND_SHM, DDP_BACKEND_GLOO}) {
    if (backend == DDP_BACKEND_GLOO && !has_gloo()) continue;
    const Folder folder;
    Procs procs(3, [&](int rank, Reporter& report) {
      const auto group = join_process_group(folder, rank, 3, options_of(backend));
      Learner learner(*group, uneven_options());
      learner.backward(rank, 0);
      report.say("trained");
      if (rank == 1) {
        for (;;) pause();
      }
      expect_contains(expect_error(DDP_ERROR_PEER_FAILED, [&] { join(*learner.model); }), "rank 1");
      return std::string("told");
    });
    for (int rank = 0; rank < 3; ++rank) procs.wait_for(rank, "trained");
    procs.signal(1, SIGKILL);
    for (const int rank : {0, 2}) expect(procs.wait_one(rank).text == "told", procs.wait_one(rank).describe());
  }
}

template <size_t... kIndex>
int run_all(std::index_sequence<kIndex...>) {
  const CMUnitTest tests[] = {
      {kUnevenSemantics[kIndex].name, &guarded<&on_processes<kIndex, DDP_BACKEND_SHM>>, nullptr, nullptr, nullptr}...,
      {kUnevenSemantics[kIndex].name, &guarded<&on_processes<kIndex, DDP_BACKEND_GLOO>>, nullptr, nullptr, nullptr}...,
      {kUnevenSemantics[kIndex].name, &guarded<&on_hosts<kIndex>>, nullptr, nullptr, nullptr}...,
      ddp_test(a_killed_rank_is_named_to_those_that_joined),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

}  // namespace
}  // namespace ddp::test

int main() { return ddp::test::run_all(std::make_index_sequence<std::size(ddp::test::kUnevenSemantics)>()); }
