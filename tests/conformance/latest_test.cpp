// SPDX-License-Identifier: Apache-2.0
// A folder of checkpoints: the newest valid file is loaded on all ranks, whatever other files are there; newer,
// damaged files are reported; and a save keeps the files that it must keep.

#include "checkpoint/folder.hpp"
#include "checkpoint/temporary.hpp"
#include "support/check.hpp"
#include "support/state_world.hpp"

using checkpoint::name_of_step;

void save_step(const StateWorld& world, const std::string& folder, int64_t step, int64_t keep = 0) {
  checkpoint::save_latest("save", world.parts(), {7, step}, folder, keep, std::nullopt);
}

int64_t load_latest(const StateWorld& world, const std::string& folder) {
  return checkpoint::load_latest("load", world.parts(), folder, std::nullopt).step;
}

/// Steps 10, 20, ... saved by `size` ranks, each with the seed step / 10.
void save_steps(const TemporaryFolder& folder, int count, int size = 1, int64_t keep = 0) {
  run_groups(size, [&](group::Group& group, int) {
    StateWorld world(group);
    for (int i = 1; i <= count; ++i) {
      world.fill(i);
      save_step(world, folder.path(), i * 10, keep);
    }
  });
}

/// All of `size` ranks load step `step` with its content and have `skipped` lines; gives these, of rank 0.
std::vector<std::string> expect_loaded(const TemporaryFolder& folder, int64_t step, size_t skipped, int size = 2) {
  const std::string wanted = content_of_seed(static_cast<int>(step / 10));
  std::vector<std::string> lines;
  run_groups(size, [&](group::Group& group, int rank) {
    StateWorld world(group);
    world.fill(50 + rank);
    expect_equal(load_latest(world, folder.path()), step, "step");
    expect(world.content() == wanted, "content");
    const model::LoadReport& report = world.model->checkpoint_info().last_load;
    expect(report.file == folder.file(name_of_step(step)), "file");
    expect_equal(report.skipped.size(), skipped, "skipped");
    if (rank == 0) lines = report.skipped;
  });
  return lines;
}

/// A load fails on both ranks with one text, changes nothing, and the group continues.
std::string refused_latest(const std::string& folder, ddp_status status) {
  Texts texts;
  run_groups(2, [&](group::Group& group, int rank) {
    StateWorld world(group);
    world.fill(10 + rank);
    const std::string before = world.content();
    texts.add(expect_error(status, [&] { (void)load_latest(world, folder); }));
    expect(world.content() == before, "something was touched");
    group.barrier();
  });
  return texts.one();
}

ddp_case(the_newest_is_loaded_at_any_number_of_ranks) {
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  save_steps(folder, 3, 3);
  for (const int size : {1, 2, 4}) (void)expect_loaded(folder, 30, 0, size);
}

ddp_case(a_save_keeps_the_newest) {
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  save_steps(folder, 5, 2, 2);
  const std::vector<std::string> wanted = {".ddp-folder.lock", name_of_step(40), name_of_step(50)};
  expect(folder.names() == wanted, "files");
}

ddp_case(whatever_is_wrong_with_the_newest_the_one_before_is_loaded) {
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  save_steps(folder, 3);
  const std::string newest = folder.file(name_of_step(30)), whole = read_whole(newest);
  for (const size_t length : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    write_whole(newest, whole.substr(0, length));
    expect_contains(expect_loaded(folder, 20, 1).front(), newest);
  }
  for (size_t at = 0; at < whole.size(); at += 41) {  // a flipped bit in every part of the file
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << at % 8);
    write_whole(newest, damaged);
    (void)expect_loaded(folder, 20, 1, 1);
  }
  write_whole(newest, std::string(whole.size(), '\0'));
  (void)expect_loaded(folder, 20, 1);
  write_whole(newest, whole + "x");
  (void)expect_loaded(folder, 20, 1);
  write_whole(newest, "{\"loss\": 3}");
  (void)expect_loaded(folder, 20, 1);
  write_whole(newest, whole);
  (void)expect_loaded(folder, 30, 0);
}

ddp_case(what_is_no_file_is_skipped) {
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  save_steps(folder, 1);
  std::filesystem::create_directory(folder.file(name_of_step(40)));
  expect(mkfifo(folder.file(name_of_step(50)).c_str(), 0600) == 0, "a pipe");
  std::filesystem::create_symlink("nowhere", folder.file(name_of_step(60)));
  const std::vector<std::string> skipped = expect_loaded(folder, 10, 3);
  expect_contains(skipped[0], name_of_step(60));
  expect_contains(skipped[1], "device, pipe or socket");
  expect_contains(skipped[2], name_of_step(40));
}

ddp_case(weights_of_other_programs_are_skipped) {
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  save_steps(folder, 1);
  const std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  std::string plain(8, '\0');
  plain[0] = static_cast<char>(header.size());
  write_whole(folder.file(name_of_step(90)), plain + header + std::string(4, '\0'));
  run_groups(1, [&](group::Group& group, int) {  // one that fits the model
    StateWorld world(group);
    expect_equal(load_latest(world, folder.path()), int64_t{10}, "step");
    std::vector<float> x(1);
    model::Model model(borrowed(group), state_model_options());
    model.add_parameter("x", flat_tensor(x.data(), DDP_F32, 1), nullptr);
    expect_error(DDP_ERROR_MISMATCH, [&] { (void)checkpoint::load_latest("load", {model}, folder.path(), std::nullopt); },
                 {name_of_step(10)});
  });
}

ddp_case(a_folder_without_a_checkpoint_has_a_status_of_its_own) {
  const TemporaryFolder folder;
  write_whole(folder.file("model.safetensors"), "not ours");
  expect_contains(refused_latest(folder.path(), DDP_ERROR_NO_CHECKPOINT), "load, on rank 0 (");
  expect_contains(refused_latest(folder.path(), DDP_ERROR_NO_CHECKPOINT),
                  "the folder \"" + folder.path() + "\" has no checkpoint (no file such as step-000000001200.safetensors)");
  expect_contains(refused_latest(folder.file("none"), DDP_ERROR_IO), "none\" does not exist");
}

ddp_case(a_folder_with_none_that_is_valid_is_no_empty_folder) {
  const TemporaryFolder folder;
  for (const int64_t step : {1, 2, 3}) write_whole(folder.file(name_of_step(step)), std::string(50, 'x'));
  const std::string text = refused_latest(folder.path(), DDP_ERROR_IO);
  expect_contains(text, "none of the 3 checkpoints in the folder");
  expect_contains(text, name_of_step(3));
}

ddp_case(a_valid_file_of_another_model_is_not_skipped) {
  const TemporaryFolder folder;
  save_steps(folder, 1);
  run_groups(1, [&](group::Group& group, int) {
    StateWorld other(group, 7);
    save_step(other, folder.path(), 20);
  });
  expect_contains(refused_latest(folder.path(), DDP_ERROR_MISMATCH), "it is of another model");
}

ddp_case(leftovers_of_killed_saves_go_with_the_next_save) {
  const TemporaryFolder folder;
  save_steps(folder, 1);
  for (const int64_t step : {10, 15, 20}) write_whole(folder.file(checkpoint::temporary_name(name_of_step(step))), "half");
  (void)expect_loaded(folder, 10, 0);
  save_steps(folder, 2);
  const std::vector<std::string> wanted = {".ddp-folder.lock", name_of_step(10), name_of_step(20)};
  expect(folder.names() == wanted, "files");
}

ddp_case(a_later_step_is_left_alone) {
  const TemporaryFolder folder;
  write_whole(folder.file(name_of_step(99)), "damaged");
  save_steps(folder, 3, 1, 1);
  const std::vector<std::string> wanted = {".ddp-folder.lock", name_of_step(30), name_of_step(99)};
  expect(folder.names() == wanted, "files");
  (void)expect_loaded(folder, 30, 1);
}

ddp_case(a_folder_that_can_not_be_written_fails_everywhere) {
  const TemporaryFolder folder;
  save_steps(folder, 1);
  Texts texts;
  {
    const FileFaults faults({.at = 1, .count = 1000, .code = EROFS, .only = "open"});
    run_groups(2, [&](group::Group& group, int) {
      StateWorld world(group);
      texts.add(expect_error(DDP_ERROR_IO, [&] { save_step(world, folder.path(), 20); }));
      group.barrier();
    });
  }
  expect_contains(texts.one(), "Read-only file system");
  (void)expect_loaded(folder, 10, 0);
}

ddp_case(of_a_thousand_files_the_newest_is_loaded) {
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  save_steps(folder, 1);
  const std::string bytes = read_whole(folder.file(name_of_step(10)));
  for (int64_t step = 1000; step < 2000; ++step) write_whole(folder.file(name_of_step(step)), step == 1500 ? bytes : "x");
  run_groups(2, [&](group::Group& group, int) {
    StateWorld world(group);
    expect_equal(load_latest(world, folder.path()), int64_t{10}, "the step in the file");
    expect(world.model->checkpoint_info().last_load.file == folder.file(name_of_step(1500)), "file");
    expect_equal(world.model->checkpoint_info().last_load.skipped.size(), 499U, "skipped");
    save_step(world, folder.path(), 2000, 1);
  });
  expect_equal(folder.names().size(), 2U, "files");
}

// Whichever call of a save fails: the newest valid file is the old one or the new one, all ranks know, and the next save
// succeeds.
ddp_case(after_any_failed_call_the_newest_is_whole) {
  int failed = 0;
  for (int64_t at = 1, calls = 1; at <= calls; ++at) {
    const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
    save_steps(folder, 2);
    bool has_failed = false;
    {
      const FileFaults faults({.at = at, .code = EIO});
      run_groups(2, [&](group::Group& group, int rank) {
        StateWorld world(group);
        world.fill(3);
        bool threw = false;
        try {
          save_step(world, folder.path(), 30, 1);
        } catch (const Error& error) {
          expect(error.status() == DDP_ERROR_IO, error.text());
          threw = true;
        }
        if (rank == 0) has_failed = threw;
        group.barrier();
      });
      calls = std::max(calls, faults.calls());
    }
    failed += has_failed ? 1 : 0;
    const bool is_new = std::filesystem::exists(folder.file(name_of_step(30)));
    expect(is_new || has_failed, "a save that succeeded is there, call " + std::to_string(at));
    (void)expect_loaded(folder, is_new ? 30 : 20, 0, 1);
  }
  expect(failed > 5, "failures: " + std::to_string(failed));
}
