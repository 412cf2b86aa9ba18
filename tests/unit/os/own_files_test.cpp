// SPDX-License-Identifier: Apache-2.0
// Names that another user has made first are refused with a sentence, at once. Root plays the other user; without root
// what needs him is left out.
#include "os/own_files.hpp"

#include <sys/file.h>

#include "support/check.hpp"
#include "support/file_faults.hpp"

constexpr uid_t kOther = 65534;

void expect_refused(const std::function<void()>& body, const std::string& why) {
  try {
    body();
  } catch (const Error& error) {
    expect(error.text().find(why) != std::string::npos, why + ": " + error.text());
    return;
  }
  expect(false, "refused: " + why);
}

ddp_case(a_folder_is_made_for_this_user_alone) {
  const TemporaryFolder folder;
  const std::string path = folder.file("rings");
  os::make_own_folder(path);
  struct stat info {};
  expect(stat(path.c_str(), &info) == 0 && (info.st_mode & 0777) == 0700, "mode 700");
  os::make_own_folder(path);  // a second rank finds it
}

ddp_case(a_folder_of_others_is_refused) {
  const TemporaryFolder folder;
  const std::string path = folder.file("rings"), link = folder.file("link"), file = folder.file("file");
  os::make_own_folder(path);
  expect(symlink(path.c_str(), link.c_str()) == 0, "a link");
  expect_refused([&] { os::make_own_folder(link); }, "is no folder");
  write_whole(file, "x");
  expect_refused([&] { os::make_own_folder(file); }, "is no folder");
  expect(chmod(path.c_str(), 0777) == 0, "chmod");
  expect_refused([&] { os::make_own_folder(path); }, "can be written to by other users");
  expect(chmod(path.c_str(), 0770) == 0, "chmod");
  expect_refused([&] { os::check_own_folder(path); }, "can be written to by other users");
  if (geteuid() != 0) return;
  expect(chmod(path.c_str(), 0700) == 0 && chown(path.c_str(), kOther, kOther) == 0, "given away");
  expect_refused([&] { os::make_own_folder(path); }, "belongs to another user");
}

ddp_case(a_new_file_is_no_link_and_not_the_old_one) {
  const TemporaryFolder folder;
  const std::string kept = folder.file("kept"), path = folder.file("new");
  write_whole(kept, "precious");
  for (const bool is_link : {true, false}) {
    if (is_link)
      expect(symlink(kept.c_str(), path.c_str()) == 0, "a link");
    else
      expect(link(kept.c_str(), path.c_str()) == 0, "a second name");
    const os::Fd file = os::make_new_file(path, O_RDWR, 0600);
    os::write_all(file.get(), "mine", 4, path);
    expect_equal(read_whole(kept), "precious", "what the name led to");
    expect_equal(read_whole(path), "mine", "the new file");
    expect(std::filesystem::remove(path), "removed");
  }
}

ddp_case(what_is_no_regular_file_is_refused_at_once) {
  const TemporaryFolder folder;
  expect(mkfifo(folder.file("fifo").c_str(), 0666) == 0, "a FIFO");
  expect(mkdir(folder.file("folder").c_str(), 0777) == 0, "a folder");
  expect(symlink(folder.file("nowhere").c_str(), folder.file("link").c_str()) == 0, "a link");
  for (const char* name : {"fifo", "folder", "link"})
    for (const int access : {O_RDONLY, O_WRONLY | O_CREAT, O_RDWR | O_CREAT})
      if (access != O_RDONLY || std::string(name) != "folder")
        expect_refused([&] { static_cast<void>(os::open_own_file(folder.file(name), access, 0600)); }, "is no regular file");
  expect_refused([&] { static_cast<void>(os::open_own_file(folder.file("folder"), O_RDONLY, 0)); }, "is no regular file");
  expect(!os::open_own_file(folder.file("none"), O_RDWR, 0).is_open() && errno == ENOENT, "no such file");
  if (geteuid() != 0) return;
  write_whole(folder.file("theirs"), "x");
  expect(chown(folder.file("theirs").c_str(), kOther, kOther) == 0, "given away");
  expect_refused([&] { static_cast<void>(os::open_own_file(folder.file("theirs"), O_RDWR, 0)); }, "another user");
}

ddp_case(a_lock_that_stays_locked_is_an_error_in_time) {
  const TemporaryFolder folder;
  const std::string path = folder.file("lock");
  const os::Fd first = os::open_own_file(path, O_RDWR | O_CREAT, 0600), second = os::open_own_file(path, O_RDWR, 0);
  os::lock_file(first, path, 1000);
  expect_refused([&] { os::lock_file(second, path, 30); }, "has locked \"" + path + "\" for 30 ms");
  expect(flock(first.get(), LOCK_UN) == 0, "unlocked");
  os::lock_file(second, path, 1000);
}
