// SPDX-License-Identifier: Apache-2.0
// Several processes at one folder of checkpoints: two jobs that save, a job that loads while another saves, and ranks that
// read as soon as a save has returned.

#include "checkpoint/folder.hpp"
#include "support/check.hpp"
#include "support/meeting.hpp"
#include "support/procs.hpp"
#include "support/state_world.hpp"

using checkpoint::name_of_step;

std::shared_ptr<group::Group> meet(int port, int rank, int size) {
  ddp_group_options options = world_options(rank, size);
  return group::Group::create(tcp_place(port).c_str(), options);
}

void save_step(const StateWorld& world, const std::string& folder, int64_t step, int64_t keep) {
  checkpoint::save_latest("save", world.parts(), {7, step}, folder, keep, std::nullopt);
}

void wait_for_file(const std::string& path) {
  wait_until([&] { return std::filesystem::exists(path); });
}

void expect_all_well(std::vector<ProcResult> results) {
  for (const ProcResult& result : results) expect(result.exit_code == 0, result.describe());
}

ddp_case(the_second_job_in_a_folder_is_refused_and_nothing_is_mixed) {
  const TemporaryFolder folder, own;
  Procs procs(2, [&](int job, Reporter& report) {
    const auto group = meet(free_port(), 0, 1);
    StateWorld world(*group);
    world.fill(job + 1);
    if (job == 0) {
      save_step(world, folder.path(), 10, 0);
      report.say("saved");
      wait_for_file(own.file("refused"));
      save_step(world, folder.path(), 20, 0);
      return std::string();
    }
    wait_for_file(folder.file(name_of_step(10)));
    const std::string text = expect_error(DDP_ERROR_IO, [&] { save_step(world, folder.path(), 30, 0); });
    save_step(world, own.path(), 30, 0);  // it continues elsewhere
    write_whole(own.file("refused"), "");
    return text;
  });
  const std::vector<ProcResult> results = procs.wait();
  expect_all_well(results);
  expect_contains(results[1].text, "another job saves there, rank 0 (");
  expect_contains(results[1].text, "pid " + std::to_string(procs.pid(0)));
  const std::vector<std::string> wanted = {".ddp-folder.lock", name_of_step(10), name_of_step(20)};
  expect(folder.names() == wanted, "files of the first job");
  run_groups(1, [&](group::Group& group, int) {  // whose processes have ended
    StateWorld world(group);
    save_step(world, folder.path(), 40, 0);
  });
}

// The writer keeps one file, so files that a reader has just listed are often removed.
ddp_case(a_reader_beside_a_writer_sees_whole_checkpoints_only) {
  constexpr int kSteps = 150;
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  std::vector<std::string> contents = {""};
  for (int seed = 1; seed <= kSteps; ++seed) contents.push_back(content_of_seed(seed));
  Procs procs(2, [&](int job, Reporter&) {
    const auto group = meet(free_port(), 0, 1);
    StateWorld world(*group);
    if (job == 0) {
      for (int seed = 1; seed <= kSteps; ++seed) {
        world.fill(seed);
        world.save(folder.file("one"));
        save_step(world, folder.path(), seed, 1);
      }
      return std::string();
    }
    wait_for_file(folder.file(".ddp-folder.lock"));
    wait_until([&] { return !checkpoint::list_steps(folder.path()).empty(); });
    int64_t last = 0, loads = 0, different = 0;
    for (; last < kSteps; ++loads) {
      const int64_t step = checkpoint::load_latest("load", world.parts(), folder.path(), std::nullopt).step;
      expect(step >= last, "step " + std::to_string(step) + " after step " + std::to_string(last));
      expect(world.content() == contents[static_cast<size_t>(step)], "content of step " + std::to_string(step));
      expect(world.model->checkpoint_info().last_load.skipped.empty(), "nothing is skipped");
      different += step != last;
      last = step;
      (void)world.load(folder.file("one"));
      const std::string& note = world.model->checkpoint_info().metadata.at("note");
      expect(world.content() == contents[std::stoul(note.substr(5))], "content of the one file");
    }
    return std::to_string(loads) + " loads of " + std::to_string(different) + " steps";
  });
  const std::vector<ProcResult> results = procs.wait(60'000);
  expect_all_well(results);
}

// Rank 0's disk is slow. The others must not come back before the file is in place.
ddp_case(every_rank_may_read_as_soon_as_a_save_has_returned) {
  const TemporaryFolder folder;
  const std::string wanted = content_of_seed(3);
  const int port = free_port();
  Procs procs(3, [&](int rank, Reporter&) {
    const auto group = meet(port, rank, 3);
    StateWorld world(*group), reader(*group);
    world.fill(3);
    for (int64_t step = 1; step <= 3; ++step) {
      const FileFaults slow({.at = 1, .only = rank == 0 ? "rename" : "none", .before = [] { (void)usleep(200'000); }});
      save_step(world, folder.path(), step, 1);
      const checkpoint::Counters found =
          checkpoint::load_latest("load", reader.parts(), folder.path(), std::nullopt, {.local = true});
      expect_equal(found.step, step, "step");
      expect(reader.content() == wanted, "content");
      group->barrier();  // the next save removes what may be read now
    }
  });
  expect_all_well(procs.wait());
}
