// SPDX-License-Identifier: Apache-2.0
// Whatever happens during a save, the target holds the former bytes or the new ones, whole; and nothing is left behind for
// good.
#include "checkpoint/durable.hpp"

#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "support/check.hpp"
#include "support/file_faults.hpp"

using checkpoint::DurableFile;

const std::string kOld(3000, 'o');
const std::string kNew(5000, 'n');

void save(const std::string& path, const std::string& bytes) {
  DurableFile file(path, static_cast<int64_t>(bytes.size()));
  for (size_t at = 0; at < bytes.size(); at += 1000)
    file.write(bytes.data() + at, static_cast<int64_t>(std::min<size_t>(1000, bytes.size() - at)));
  file.commit();
}

unsigned mode_of(const std::string& path) {
  struct stat status {};
  expect(::lstat(path.c_str(), &status) == 0, "status of " + path);
  return status.st_mode & 07777U;
}

/// Run in a child; its exit code, or minus the signal.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 99;
    try {
      code = body();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  expect(::waitpid(child, &status, 0) == child, "wait for the child");
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int64_t calls_of_a_save() {
  const TemporaryFolder folder;
  write_whole(folder.file("a"), kOld);
  const FileFaults faults({});
  save(folder.file("a"), kNew);
  return faults.calls();
}

ddp_case(a_save_makes_and_replaces_a_file) {
  const TemporaryFolder folder;
  save(folder.file("a"), kOld);
  expect(read_whole(folder.file("a")) == kOld, "first save");
  save(folder.file("a"), kNew);
  expect(read_whole(folder.file("a")) == kNew, "second save");
  expect_equal(folder.names().size(), 1U, "files");
}

ddp_case(without_commit_nothing_changes) {
  const TemporaryFolder folder;
  write_whole(folder.file("a"), kOld);
  {
    DurableFile file(folder.file("a"), 10);
    file.write("x", 1);
    expect_equal(folder.names().size(), 2U, "files during the save");
  }
  expect(read_whole(folder.file("a")) == kOld, "the former file");
  expect_equal(folder.names().size(), 1U, "files");
}

ddp_case(a_commit_before_all_bytes_is_refused) {
  const TemporaryFolder folder;
  DurableFile file(folder.file("a"), 10);
  file.write("x", 1);
  (void)expect_error(DDP_ERROR_INTERNAL, [&] { file.commit(); });
}

ddp_case(the_file_is_synced_before_the_rename_and_the_folder_after) {
  const TemporaryFolder folder;
  const FileFaults faults({});
  save(folder.file("a"), kNew);
  std::vector<std::string> order;
  for (const std::string& call : faults.log())
    if (call == "reserve" || call == "write" || call.substr(0, 4) == "sync" || call == "rename")
      if (order.empty() || order.back() != call) order.push_back(call);
  const std::vector<std::string> wanted = {"reserve", "write", "sync file", "rename", "sync folder"};
  expect(order == wanted, "the order of calls");
}

ddp_case(a_new_file_gets_what_the_umask_leaves) {
  const TemporaryFolder folder;
  const auto code = in_child([&] {
    ::umask(027);
    save(folder.file("a"), kNew);
    return 0;
  });
  expect_equal(code, 0, "exit code");
  expect_equal(mode_of(folder.file("a")), 0640U, "permissions");
}

ddp_case(a_replaced_file_keeps_its_permissions) {
  const TemporaryFolder folder;
  write_whole(folder.file("a"), kOld);
  expect(::chmod(folder.file("a").c_str(), 0604) == 0, "chmod");
  {
    const DurableFile file(folder.file("a"), 1);
    for (const std::string& name : folder.names())
      if (name != "a") expect_equal(mode_of(folder.file(name)), 0600U, "permissions while it is written");
  }
  save(folder.file("a"), kNew);
  expect_equal(mode_of(folder.file("a")), 0604U, "permissions");
}

ddp_case(a_link_is_replaced_and_not_followed) {
  const TemporaryFolder folder;
  write_whole(folder.file("elsewhere"), kOld);
  expect(::symlink("elsewhere", folder.file("a").c_str()) == 0, "symlink");
  save(folder.file("a"), kNew);
  expect(read_whole(folder.file("elsewhere")) == kOld, "what the link pointed to");
  expect(read_whole(folder.file("a")) == kNew, "the new file");
}

ddp_case(folders_devices_and_missing_folders_are_refused) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("d"));
  expect(::mkfifo(folder.file("f").c_str(), 0600) == 0, "mkfifo");
  for (const std::string& path :
       {folder.file("d"), folder.file("d") + "/", folder.file("f"), std::string("/dev/null"), folder.file("missing/a"),
        folder.file("f") + "/a", std::string(), std::string("/"), folder.path() + "/.."})
    (void)expect_error(DDP_ERROR_IO, [&] { save(path, kNew); });
  expect_equal(folder.names().size(), 2U, "files");
}

ddp_case(a_long_name_can_be_saved) {
  const TemporaryFolder folder;
  const std::string path = folder.file(std::string(255, 'a'));
  save(path, kOld);
  save(path, kNew);
  expect(read_whole(path) == kNew, "the file");
  (void)expect_error(DDP_ERROR_IO, [&] { save(path + "a", kNew); });
}

// Every call in turn, each error once and for good: afterwards the file is whole, and a save without faults works and leaves
// no other.
ddp_case(after_any_failed_call_the_former_file_is_whole) {
  const int64_t calls = calls_of_a_save();
  expect(calls > 15, "the save makes calls");
  int refused = 0;
  for (const int code : {ENOSPC, EDQUOT, EIO, EINTR, EACCES, EROFS, EMFILE, ENOMEM}) {
    for (const int64_t count : {int64_t{1}, code == EINTR ? int64_t{5} : INT64_MAX}) {
      for (int64_t at = 1; at <= calls; ++at) {
        const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
        const std::string path = folder.file("a");
        write_whole(path, kOld);
        bool committed = true;
        {
          const FileFaults faults({.at = at, .count = count, .code = code});
          try {
            save(path, kNew);
          } catch (const Error& error) {
            committed = error.text().find("is in place") != std::string::npos;
            refused += committed ? 0 : 1;
            expect_contains(error.text(), path);
          }
        }
        const std::string where = "errno " + std::to_string(code) + " at call " + std::to_string(at);
        expect(read_whole(path) == (committed ? kNew : kOld), where + ": the file");
        if (count == 1) expect_equal(folder.names().size(), 1U, where + ": files");
        save(path, kNew + "!");
        expect(read_whole(path) == kNew + "!", where + ": the next save");
        expect_equal(folder.names().size(), 1U, where + ": files after the next save");
      }
    }
  }
  expect(refused > 50, "faults were reached");
}

// Network file systems may tell of a lost write only there.
ddp_case(an_error_of_close_is_an_error_of_the_save) {
  const TemporaryFolder folder;
  write_whole(folder.file("a"), kOld);
  const FileFaults faults({.at = 1, .code = EIO, .only = "close"});
  expect_error(DDP_ERROR_IO, [&] { save(folder.file("a"), kNew); }, {"cannot close"});
  expect(read_whole(folder.file("a")) == kOld, "the former file");
  expect_equal(folder.names().size(), 1U, "files");
}

ddp_case(a_process_killed_at_any_call_leaves_a_whole_file) {
  const int64_t calls = calls_of_a_save();
  int old_seen = 0, new_seen = 0;
  for (int64_t at = 1; at <= calls; ++at) {
    const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
    const std::string path = folder.file("a");
    write_whole(path, kOld);
    const int code = in_child([&] {
      const FileFaults faults({.at = at, .kill = true});
      save(path, kNew);
      return 0;
    });
    expect_equal(code, -SIGKILL, "the child's end");
    const std::string now = read_whole(path);
    expect(now == kOld || now == kNew,
           "killed at call " + std::to_string(at) + ": the file is neither the former nor the new one");
    (now == kOld ? old_seen : new_seen) += 1;
    save(path, kNew);
    expect(read_whole(path) == kNew, "the next save");
    expect_equal(folder.names().size(), 1U, "files after the next save");
  }
  expect(old_seen > 0 && new_seen > 0, "both outcomes were seen");
}

ddp_case(left_overs_of_this_target_alone_are_removed) {
  const TemporaryFolder folder;
  const std::string end = ".ddp-4711-0123456789abcdef.tmp";
  const std::vector<std::string> kept = {".b" + end, ".a.ddp-4711-0123456789abcde.tmp", ".a.ddp-x-0123456789abcdef.tmp",
                                         ".a" + end + ".ddp-1-0123456789abcdef.tmp", ".a" + end + "x"};
  for (const std::string& name : kept) write_whole(folder.file(name), "kept");
  write_whole(folder.file(".a" + end), "left over");
  save(folder.file("a"), kNew);
  std::vector<std::string> wanted = kept;
  wanted.emplace_back("a");
  std::sort(wanted.begin(), wanted.end());
  expect(folder.names() == wanted, "what is left");
}

ddp_case(two_saves_to_one_target_do_not_disturb_each_other) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  DurableFile first(path, static_cast<int64_t>(kOld.size()));
  first.write(kOld.data(), static_cast<int64_t>(kOld.size()));
  save(path, kNew);  // sweeps, but the first holds its lock
  expect(read_whole(path) == kNew, "the second");
  first.commit();
  expect(read_whole(path) == kOld, "the first, which came last");
  expect_equal(folder.names().size(), 1U, "files");
}

ddp_case(a_file_size_limit_ends_the_save_and_not_the_process) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  write_whole(path, kOld);
  const int code = in_child([&] {
    const rlimit limit{4000, 4000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    expect_error(DDP_ERROR_IO, [&] { save(path, kNew); }, {"ulimit -f"});
    return 0;
  });
  expect_equal(code, 0, "exit code");
  expect(read_whole(path) == kOld, "the former file");
  expect_equal(folder.names().size(), 1U, "files");
}

// On a file system of its own, where the process may mount one.
ddp_case(a_full_disk_is_found_before_anything_is_written) {
  const TemporaryFolder folder;
  const int code = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0)
      return 77;
    const std::string path = folder.file("a");
    save(path, kOld);
    const FileFaults faults({});
    expect_error(DDP_ERROR_IO, [&] { save(path, std::string(200'000, 'x')); }, {"No space left on device; free"});
    for (const std::string& call : faults.log()) expect(call != "write", "nothing is written");
    expect(read_whole(path) == kOld, "the former file");
    expect_equal(folder.names().size(), 1U, "files");
    return 0;
  });
  if (code == 77) {
    print_message("skipped: this process may not mount a file system\n");
    skip();
  }
  expect_equal(code, 0, "exit code");
}
