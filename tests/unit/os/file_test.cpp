// SPDX-License-Identifier: Apache-2.0
#include "os/file.hpp"

#include <sys/resource.h>

#include "support/check.hpp"
#include "support/file_faults.hpp"

os::Fd create(const std::string& path) { return os::open_file(AT_FDCWD, path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600); }

ddp_case(short_writes_are_continued) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  {
    const FileFaults faults({.at = 1, .count = 1000, .cut_short = true});
    const os::Fd fd = create(path);
    os::write_all(fd.get(), "hello world", 11, path);
  }
  expect_equal(read_whole(path), "hello world", "the file");
}

ddp_case(interrupted_calls_are_repeated) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  for (int64_t at = 1; at <= 5; ++at) {
    const FileFaults faults({.at = at, .count = 3, .code = EINTR});
    const os::Fd fd = create(path);
    expect(fd.is_open(), "open survives EINTR");
    os::write_all(fd.get(), "x", 1, path);
    os::reserve_space(fd.get(), 10, path);
    os::sync_file(fd.get(), path);
    char byte = 0;
    expect_equal(os::read_at(fd.get(), 0, &byte, 1, path), 1, "bytes read");
  }
}

ddp_case(reading_past_the_end_gives_what_is_there) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  write_whole(path, "abcde");
  const os::Fd fd = create(path);
  char bytes[8] = {};
  expect_equal(os::read_at(fd.get(), 3, bytes, 8, path), 2, "bytes read");
  expect_equal(std::string(bytes), "de", "what was read");
}

ddp_case(an_error_names_path_cause_and_remedy) {
  const Error full = os::file_error("write", "/data/model.st", ENOSPC);
  expect_equal(static_cast<int>(full.status()), static_cast<int>(DDP_ERROR_IO), "status");
  expect_equal(full.text(), "cannot write \"/data/model.st\": No space left on device; free some space or save elsewhere",
               "text");
  expect_equal(static_cast<int>(os::file_error("open", "x", EMFILE).status()), static_cast<int>(DDP_ERROR_OUT_OF_MEMORY),
               "status");
}

ddp_case(a_failed_sync_is_not_tried_again) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  const os::Fd fd = create(path);
  const FileFaults faults({.at = 1, .count = 1, .code = EIO});
  (void)expect_error(DDP_ERROR_IO, [&] { os::sync_file(fd.get(), path); });
  expect_equal(faults.calls(), 1, "calls of sync");
}

ddp_case(a_file_system_without_reservation_is_no_error) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  const os::Fd fd = create(path);
  const FileFaults faults({.at = 1, .count = 1, .code = EOPNOTSUPP});
  os::reserve_space(fd.get(), 1000, path);
}

// In a child, because the limit stays.
ddp_case(a_file_size_limit_is_an_error_and_not_a_signal) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{1000, 1000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    int refused = 0;
    try {
      const os::Fd fd = create(path);
      try {
        os::write_all(fd.get(), std::string(4096, 'x').data(), 4096, path);
      } catch (const Error& error) {
        refused += error.status() == DDP_ERROR_IO && error.text().find("ulimit -f") != std::string::npos ? 1 : 0;
      }
      try {
        os::reserve_space(fd.get(), 4096, path);
      } catch (const Error&) {
        ++refused;
      }
    } catch (...) {
    }
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    ::_exit(refused == 2 && sigismember(&pending, SIGXFSZ) == 0 ? 0 : 1);
  }
  int status = 0;
  expect(::waitpid(child, &status, 0) == child, "wait for the child");
  expect(!WIFSIGNALED(status), "the child was ended by a signal");
  expect_equal(WEXITSTATUS(status), 0, "exit code");
}
