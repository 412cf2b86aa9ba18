// SPDX-License-Identifier: Apache-2.0
// Unequal data: every promise of conformance/weight_semantics.hpp and conformance/join_semantics.hpp on every transport, and
// what ranks that joined learn when a rank is killed.
#include "model/uneven.hpp"

#include <signal.h>

#include "conformance/join_semantics.hpp"
#include "support/suite.hpp"

using namespace ddp;
using namespace ddp::test;

namespace {

ddp_group_options options_of(ddp_backend backend) {
  ddp_group_options options = world_options();
  options.backend = backend;
  return options;
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

}  // namespace

int main(int argc, char** argv) {
  Suite suite(argc, argv);
  suite.promises(kWeightSemantics);
  suite.promises(kJoinSemantics);
  suite.alone({ddp_named(a_killed_rank_is_named_to_those_that_joined)});
  return suite.run();
}
