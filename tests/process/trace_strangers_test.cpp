// SPDX-License-Identifier: Apache-2.0
// DDP_TRACE and DDP_WATCH_DIR in a folder of others: another user who makes the folder first, owns its files or holds its
// lock neither ends nor delays a rank, and gets nothing. Root plays the other user; without root, a folder that all users
// can write to replaces his.
#include <sys/file.h>

#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/public_api.hpp"

constexpr uid_t kOther = 65534;
constexpr int64_t kLimitMs = 20'000;  // a lock without a limit is waited for longer

void make_folder_of_others(const std::string& path) {
  expect(mkdir(path.c_str(), 0777) == 0 && chmod(path.c_str(), 0777) == 0, "a folder that all can write to");
  if (geteuid() == 0) expect(chown(path.c_str(), kOther, kOther) == 0, "given away");
}

/// Two ranks make a group, meet in it and end it, with this variable.
void run_ranks(const Folder& folder, const char* variable, const std::string& value) {
  Procs procs(2, [&](int rank, Reporter&) {
    setenv(variable, value.c_str(), 1);
    ddp_group* const group = create_group("file://" + folder.path() + "/meet", patient_options(rank, 2));
    for (int i = 0; i < 20; ++i) OK(ddp_group_barrier(group));
    ddp_group_destroy(group);
  });
  expect_success(procs, kLimitMs);
}

size_t files_in(const std::string& path) {
  const std::filesystem::directory_iterator first(path);
  return static_cast<size_t>(std::distance(begin(first), end(first)));
}

ddp_case(who_holds_the_lock_of_his_own_folder_delays_nobody) {
  const Folder folder;
  const std::string rings = folder.path() + "/t.json.ranks";
  make_folder_of_others(rings);
  const int lock = open((rings + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  expect(lock >= 0 && flock(lock, LOCK_EX) == 0, "locked");
  run_ranks(folder, "DDP_TRACE", folder.path() + "/t.json");
  expect_equal(files_in(rings), size_t{1}, "files in the folder of others: the lock");
  close(lock);
}

ddp_case(nothing_is_written_into_a_folder_of_others) {
  for (const char* variable : {"DDP_TRACE", "DDP_WATCH_DIR"}) {
    const Folder folder;
    const bool watched = std::string(variable) == "DDP_WATCH_DIR";
    const std::string place = folder.path() + (watched ? "/watch" : "/t.json.ranks");
    make_folder_of_others(place);
    run_ranks(folder, variable, watched ? place : folder.path() + "/t.json");
    expect_equal(files_in(place), size_t{0}, std::string("files of ") + variable);
  }
}

ddp_case(a_link_to_an_own_folder_is_not_followed) {
  const Folder folder;
  const std::string precious = folder.path() + "/precious";
  expect(mkdir(precious.c_str(), 0700) == 0, "an own folder");
  expect(symlink(precious.c_str(), (folder.path() + "/t.json.ranks").c_str()) == 0, "a link to it");
  const int kept = open((precious + "/kept").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  expect(kept >= 0 && close(kept) == 0, "a file in it");
  run_ranks(folder, "DDP_TRACE", folder.path() + "/t.json");
  expect_equal(files_in(precious), size_t{1}, "what stays in the own folder");
}

ddp_case(an_own_folder_is_used) {
  const Folder folder;
  run_ranks(folder, "DDP_TRACE", folder.path() + "/t.json");
  expect(std::filesystem::file_size(folder.path() + "/t.json") > 1000, "a trace");
  expect(!std::filesystem::exists(folder.path() + "/t.json.ranks"), "the folder is gone");
}
