// SPDX-License-Identifier: Apache-2.0
// A rank that dies inside a hook: the others learn who it was, in the hook and at the end of the pass, whatever the hook
// makes of the error.

#include "conformance/hook_world.hpp"
#include "support/check.hpp"
#include "support/goes_on.hpp"
#include "support/on_processes.hpp"

void a_rank_that_dies_inside_a_hook_is_named(Hosts hosts, bool is_pulled) {
  if (hosts != Hosts::kShared && !gloo_is_there()) return;
  const Folder folder;
  Procs procs(3, [&](int rank, Reporter&) {
    const auto group = join_process_group(folder, rank, 3, options_on(hosts));
    bool told = false;
    int calls = 0;
    const auto body = [&](parts::HookBucket& bucket) {
      if (rank == 1 && ++calls == 5) kill(getpid(), SIGKILL);
      try {
        average(bucket);
      } catch (const Error& error) {
        told = error.status() == DDP_ERROR_PEER_FAILED;
        throw Error(DDP_ERROR_CALLBACK, "something went wrong");  // as a callback in C would
      }
    };
    const HookWorld world(*group, is_pulled ? pulled() : callback(body));
    for (int pass = 0; pass < 100; ++pass) try {
        world.mark(rank, pass);
        while (is_pulled) {
          const auto bucket = model::next_bucket(*world.model, true);
          if (bucket == nullptr) break;
          body(*bucket);
          model::finish_bucket(*world.model, std::nullopt);
        }
        world.model->end_backward();
      } catch (const Error& error) {
        if (is_pulled && error.status() == DDP_ERROR_CALLBACK)
          expect_error(DDP_ERROR_PEER_FAILED, [&] { world.model->end_backward(); }, {"rank 1"});
        else
          expect(error.status() == DDP_ERROR_PEER_FAILED && error.text().find("rank 1") != std::string::npos, error.text());
        expect_error(DDP_ERROR_PEER_FAILED, [&] { group->barrier(); }, {"rank 1"});
        and_goes_on(folder, rank == 0 ? 0 : 1, 2, options_on(hosts));
        return std::string(told ? "told inside" : "told outside");
      }
    return std::string("never told");
  });
  for (const int rank : {0, 2}) {
    const ProcResult& result = procs.wait_one(rank);
    expect(result.exit_code == 0 && result.text.find("told") == 0,
           "rank " + std::to_string(rank) + ": " + result.describe());
  }
}

ddp_case_of(a_rank_that_dies_inside_a_hook_is_named(Hosts::kShared, false));
ddp_case_of(a_rank_that_dies_inside_a_hook_is_named(Hosts::kShared, true));
ddp_case_of(a_rank_that_dies_inside_a_hook_is_named(Hosts::kGloo, false));
ddp_case_of(a_rank_that_dies_inside_a_hook_is_named(Hosts::kGloo, true));
