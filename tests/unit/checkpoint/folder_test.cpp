// SPDX-License-Identifier: Apache-2.0
// Which files of a folder are checkpoints of steps, which of them go, and who may save there.
#include "checkpoint/folder.hpp"

#include <sys/file.h>

#include "checkpoint/folder_lock.hpp"
#include "checkpoint/temporary.hpp"
#include "support/check.hpp"
#include "support/file_faults.hpp"

using namespace ddp::checkpoint;
using Names = std::vector<std::string>;

constexpr const char* kForeign[] = {"step-12.safetensors",
                                    "step-0000000000012.safetensors",
                                    "step-.safetensors",
                                    "step--00000000012.safetensors",
                                    "step-+00000000012.safetensors",
                                    "step-00000000001a.safetensors",
                                    "step-000000000012.safetensor",
                                    "astep-000000000012.safetensors",
                                    "step-000000000012.safetensors2",
                                    "step-99999999999999999999.safetensors",
                                    "step-000000000012.safetensors.bak",
                                    "step-0000000000 2.safetensors",
                                    "latest",
                                    "model.safetensors"};

/// Makes files of these steps.
void fill(const TemporaryFolder& folder, std::initializer_list<int64_t> steps) {
  for (const int64_t step : steps) write_whole(folder.file(name_of_step(step)), "x");
}

std::vector<int64_t> steps_in(const TemporaryFolder& folder) {
  std::vector<int64_t> steps;
  for (const SavedStep& each : list_steps(folder.path())) steps.push_back(each.step);
  return steps;
}

ddp_case(names_and_steps_are_one_to_one) {
  expect_equal(name_of_step(1200), std::string("step-000000001200.safetensors"), "name");
  expect_equal(name_of_step(1234567890123), std::string("step-1234567890123.safetensors"), "a long one");
  for (const int64_t step : {int64_t{0}, int64_t{7}, int64_t{999999999999}, int64_t{1000000000000}, INT64_MAX})
    expect(step_of_name(name_of_step(step)) == step, "step " + std::to_string(step));
  for (const char* name : kForeign) expect(!step_of_name(name), name);
}

ddp_case(steps_come_with_the_greatest_first) {
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  expect(steps_in(folder).empty(), "an empty folder");
  fill(folder, {30, 999999999999, 5, 1000000000000, 200});
  for (const char* name : kForeign) write_whole(folder.file(name), "y");
  expect(steps_in(folder) == std::vector<int64_t>({1000000000000, 999999999999, 200, 30, 5}), "steps");
  expect_error(DDP_ERROR_IO, [&] { (void)list_steps(folder.file("none")); }, {"does not exist"});
  expect_error(DDP_ERROR_IO, [&] { (void)list_steps(folder.file("latest")); }, {"latest"});
}

ddp_case(the_newest_stay_and_nothing_else_is_touched) {
  for (const int64_t keep : {0, 1, 2, 3, 9}) {
    const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
    fill(folder, {10, 20, 30, 40, 50});
    for (const char* name : kForeign) write_whole(folder.file(name), "y");
    prune(folder.path(), 40, keep);
    std::vector<int64_t> wanted = {50, 40, 30, 20, 10};  // 50 is not older
    if (keep > 0) wanted.resize(std::min<size_t>(5, static_cast<size_t>(keep) + 1));
    expect(steps_in(folder) == wanted, "steps that stay with keep = " + std::to_string(keep));
    for (const char* name : kForeign) expect(std::filesystem::exists(folder.file(name)), name);
  }
}

ddp_case(what_cannot_be_removed_is_no_failure) {
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  std::filesystem::create_directory(folder.file(name_of_step(1)));
  fill(folder, {2, 3});
  prune(folder.path(), 3, 1);
  expect(steps_in(folder) == std::vector<int64_t>({3, 1}), "the folder with a file's name stays, the file goes");
  prune(folder.file("none"), 3, 1);
}

ddp_case(leftovers_of_any_step_go_unless_their_owner_lives) {
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  fill(folder, {3});
  const std::string dead = temporary_name(name_of_step(1)), living = temporary_name(name_of_step(2));
  const std::string other = temporary_name("model.safetensors");
  for (const std::string& name : {dead, living, other}) write_whole(folder.file(name), "half");
  const int owner = open(folder.file(living).c_str(), O_RDWR | O_CLOEXEC);
  expect(owner >= 0 && flock(owner, LOCK_EX | LOCK_NB) == 0, "locked");
  prune(folder.path(), 3, 0);
  Names wanted = {living, other, name_of_step(3)};
  std::sort(wanted.begin(), wanted.end());
  expect(folder.names() == wanted, "what stays");
  close(owner);
  prune(folder.path(), 3, 0);
  expect(!std::filesystem::exists(folder.file(living)), "its owner has gone");
}

/// Saves in another process, for the job, and returns the result.
std::string save_elsewhere(const TemporaryFolder& folder, const std::string& job, int64_t generation = 1) {
  int ends[2];
  expect(pipe(ends) == 0, "pipe");
  const pid_t child = fork();
  if (child == 0) {
    std::string text = "saves";
    try {
      FolderLock(folder.path()).claim({job, "rank 0 (host b, pid 7)", generation});
    } catch (const Error& error) {
      text = error.text();
    }
    (void)!write(ends[1], text.data(), text.size());
    _exit(0);
  }
  close(ends[1]);
  std::string text(1000, '\0');
  const ssize_t bytes = read(ends[0], text.data(), text.size());
  close(ends[0]);
  (void)waitpid(child, nullptr, 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  return text;
}

ddp_case(one_job_saves_to_a_folder) {
  const TemporaryFolder folder;
  {
    FolderLock mine(folder.path());
    expect(mine.is_of(folder.path()) && !mine.is_of("another"), "of this folder");
    mine.claim({"job a", "rank 0 (host a, pid 5)", 1});
    const std::string refused = save_elsewhere(folder, "job b");
    expect_contains(refused, "another job saves there, rank 0 (host a, pid 5); give each job a folder of its own");
    FolderLock(folder.path()).claim({"job c", "rank 0 (host a, pid 5)", 1});  // the same process may
    mine.claim({"job a", "rank 0 (host a, pid 5)", 1});
  }
  expect_equal(save_elsewhere(folder, "job b"), std::string("saves"), "the holder has gone");
}

/// A group is divided, and each part takes itself for the whole: the first part that saves in a generation has the folder.
ddp_case(one_part_of_a_job_saves_to_a_folder) {
  const TemporaryFolder folder;
  FolderLock mine(folder.path());
  mine.claim({"job", "rank 0 (host a, pid 5)", 2});
  expect_contains(save_elsewhere(folder, "job", 2),
                  "another part of this group has gone on and saves there, rank 0 (host a, pid 5) in generation 2");
  expect_contains(save_elsewhere(folder, "job", 1), "and this part is in generation 1; end the processes of one part");
  mine.claim({"job", "rank 0 (host a, pid 5)", 2});
  expect_equal(save_elsewhere(folder, "job", 3), std::string("saves"), "it has replaced this process, which is stopped");
  for (int i = 0; i < 2; ++i)
    expect_error(DDP_ERROR_IO,
                 [&] {
                   mine.claim({"job", "rank 0 (host a, pid 5)", 2});
                 },
                 {"rank 0 (host b, pid 7) in generation 3"});
  mine.claim({"job", "rank 0 (host a, pid 5)", 4});
}

ddp_case(a_fork_does_not_keep_the_lock) {
  const TemporaryFolder folder;
  int ends[2];
  int begun[2];
  expect(pipe(ends) == 0 && pipe(begun) == 0, "pipe");
  std::optional<FolderLock> mine(std::in_place, folder.path());
  mine->claim({"job a", "rank 0", 1});
  const pid_t child = fork();
  char byte = 0;
  if (child == 0) {
    close(ends[1]);
    (void)!write(begun[1], &byte, 1);
    (void)!read(ends[0], &byte, 1);  // until the test is done
    _exit(0);
  }
  expect(read(begun[0], &byte, 1) == 1, "the fork runs");  // fork() may return here before the child has closed the lock
  for (const int end : begun) close(end);
  mine.reset();
  expect_equal(save_elsewhere(folder, "job b"), std::string("saves"), "while a fork of the holder lives");
  close(ends[1]);
  (void)waitpid(child, nullptr, 0);
  close(ends[0]);
}

ddp_case(a_folder_without_locks_is_not_guarded) {
  const TemporaryFolder folder;
  const FileFaults faults({.at = 1, .code = ENOLCK, .only = "lock"});
  FolderLock(folder.path()).claim({"job", "rank 0", 1});
  expect_equal(save_elsewhere(folder, "job b"), std::string("saves"), "goes on");
}

ddp_case(a_lock_that_is_no_file_is_refused) {
  const TemporaryFolder folder;
  const std::string path = folder.file(".ddp-folder.lock");
  for (const char* kind : {"FIFO", "folder", "link"}) {
    const bool is_fifo = kind[1] == 'I', is_link = kind[0] == 'l';
    const int made = is_fifo   ? mkfifo(path.c_str(), 0666)
                     : is_link ? symlink("/dev/null", path.c_str())
                               : mkdir(path.c_str(), 0777);
    expect(made == 0, kind);
    expect_error(DDP_ERROR_IO,
                 [&] {
                   FolderLock(folder.path()).claim({"job", "rank 0", 1});
                 },
                 {path + "\" is no regular file"});
    expect(std::filesystem::remove(path), "removed");
  }
}
