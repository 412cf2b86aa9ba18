// SPDX-License-Identifier: Apache-2.0
// Rank 0 is killed at any file call of a save: the other rank learns it by name, and the path holds the former checkpoint or
// the new one, whole. The next job loads it, saves again and leaves nothing else behind.

#include "support/check.hpp"
#include "support/meeting.hpp"
#include "support/procs.hpp"
#include "support/state_world.hpp"

std::shared_ptr<group::Group> meet(int port, int rank, int size) {
  ddp_group_options options = world_options(rank, size);
  return group::Group::create(tcp_place(port).c_str(), options);
}

/// What the file at `path` holds, loaded and saved again by one rank; how many calls a save makes.
std::string load_and_save(const std::string& path, int64_t* calls) {
  const auto group = meet(free_port(), 0, 1);
  StateWorld world(*group);
  (void)world.load(path);
  const FileFaults faults({});
  world.save(path);
  *calls = faults.calls();
  return world.model->checkpoint_info().metadata.at("note");
}

ddp_case(a_rank_killed_while_it_saves_leaves_a_whole_checkpoint) {
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  const std::string path = folder.file("a");
  int former = 0, fresh = 0;
  int64_t calls = 1;
  for (int64_t at = 1; at <= calls; ++at) {
    {
      const auto group = meet(free_port(), 0, 1);
      StateWorld world(*group);
      world.fill(1);
      world.save(path);
    }
    const int port = free_port();
    Procs procs(2, [&](int rank, Reporter&) {
      const auto group = meet(port, rank, 2);
      StateWorld world(*group);
      world.fill(2);
      const FileFaults faults({.at = at, .kill = true});
      world.save(path);
    });
    const auto results = procs.wait();
    expect_equal(results[0].signal, SIGKILL, "the end of rank 0");
    expect_equal(results[1].exit_code, 1, "rank 1: " + results[1].describe());
    expect_contains(results[1].text, "DDP_ERROR_PEER_FAILED");
    expect_contains(results[1].text, "rank 0 (");
    expect(results[1].seconds < 5, "rank 1 learns it soon: " + std::to_string(results[1].seconds) + " s");
    const std::string note = load_and_save(path, &calls);
    expect(note == "seed 1" || note == "seed 2", "killed at call " + std::to_string(at) + ": " + note);
    (note == "seed 1" ? former : fresh) += 1;
    expect_equal(folder.names().size(), 1U, "files");
  }
  expect(former > 10 && fresh > 0, "both outcomes were seen");
}
