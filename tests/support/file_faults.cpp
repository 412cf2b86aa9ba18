// SPDX-License-Identifier: Apache-2.0
#include "support/file_faults.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <stdexcept>

namespace ddp::test {
namespace {

struct Shared {
  std::mutex mutex;  // guards the rest
  FilePlan plan;
  int64_t calls = 0;
  std::vector<std::string> log;
};

Shared& shared() {
  static Shared value;
  return value;
}

const os::FileTable& real() { return os::system_file_table(); }

/// Counts a call; returns true if it must fail, with errno set.
bool disturb(const char* call, bool* cut_short = nullptr) {
  const std::lock_guard lock(shared().mutex);
  const FilePlan& plan = shared().plan;
  if (!plan.only.empty() && plan.only != call) return false;
  const int64_t now = ++shared().calls;
  if (plan.at == 0 || now < plan.at || now - plan.at >= plan.count) return false;
  if (plan.before) plan.before();
  if (plan.kill) (void)std::raise(SIGKILL);
  if (plan.cut_short && cut_short != nullptr) *cut_short = true;
  if (plan.code == 0) return false;
  errno = plan.code;
  return true;
}

template <class Result>
Result noted(Result result, const std::string& what) {
  const int code = errno;
  if (result >= 0) {
    const std::lock_guard lock(shared().mutex);
    shared().log.push_back(what);
  }
  errno = code;
  return result;
}

int fail_open(int dir, const char* path, int flags, unsigned mode) {
  return disturb("open") ? -1 : noted(real().open(dir, path, flags, mode), std::string("open ") + path);
}
int fail_close(int fd) {
  // A descriptor is closed after close(), whatever close() returns.
  const bool fails = disturb("close");
  const int code = errno;
  const int result = real().close(fd);
  if (!fails) return noted(result, "close");
  errno = code;
  return -1;
}
int fail_duplicate(int fd) { return disturb("duplicate") ? -1 : noted(real().duplicate(fd), "duplicate"); }
ssize_t fail_read(int fd, void* data, size_t bytes, int64_t offset) {
  bool cut = false;
  if (disturb("read", &cut)) return -1;
  return noted(real().read(fd, data, cut ? std::min<size_t>(bytes, 1) : bytes, offset), "read");
}
ssize_t fail_write(int fd, const void* data, size_t bytes) {
  bool cut = false;
  if (disturb("write", &cut)) return -1;
  return noted(real().write(fd, data, cut ? std::min<size_t>(bytes, 1) : bytes), "write");
}
int fail_reserve(int fd, int64_t bytes) { return disturb("reserve") ? -1 : noted(real().reserve(fd, bytes), "reserve"); }
int fail_sync(int fd) {
  if (disturb("sync")) return -1;
  struct stat status {};
  (void)real().status(fd, &status);
  return noted(real().sync(fd), S_ISDIR(status.st_mode) ? "sync folder" : "sync file");
}
int fail_status(int fd, struct stat* out) { return disturb("status") ? -1 : noted(real().status(fd, out), "status"); }
int fail_status_at(int dir, const char* path, struct stat* out, int flags) {
  return disturb("status_at") ? -1 : noted(real().status_at(dir, path, out, flags), "status_at");
}
int fail_change_mode(int fd, unsigned mode) {
  return disturb("change_mode") ? -1 : noted(real().change_mode(fd, mode), "change_mode");
}
int fail_lock(int fd, int operation) { return disturb("lock") ? -1 : noted(real().lock(fd, operation), "lock"); }
int fail_rename(int from_dir, const char* from, int to_dir, const char* to) {
  return disturb("rename") ? -1 : noted(real().rename(from_dir, from, to_dir, to), "rename");
}
int fail_unlink(int dir, const char* path) { return disturb("unlink") ? -1 : noted(real().unlink(dir, path), "unlink"); }

constexpr os::FileTable kTable = {
    .open = fail_open,
    .close = fail_close,
    .duplicate = fail_duplicate,
    .read = fail_read,
    .write = fail_write,
    .reserve = fail_reserve,
    .sync = fail_sync,
    .status = fail_status,
    .status_at = fail_status_at,
    .change_mode = fail_change_mode,
    .lock = fail_lock,
    .rename = fail_rename,
    .unlink = fail_unlink,
};

}  // namespace

FileFaults::FileFaults(const FilePlan& plan) {
  shared().plan = plan;
  shared().calls = 0;
  shared().log.clear();
  os::set_file_table(&kTable);
}
FileFaults::~FileFaults() { os::set_file_table(nullptr); }

int64_t FileFaults::calls() const noexcept {
  const std::lock_guard lock(shared().mutex);
  return shared().calls;
}
std::vector<std::string> FileFaults::log() const {
  const std::lock_guard lock(shared().mutex);
  return shared().log;
}

TemporaryFolder::TemporaryFolder(Where where) {
  const bool in_memory = where == Where::kMemory && std::filesystem::is_directory("/dev/shm");
  std::string pattern =
      ((in_memory ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path()) / "ddp-test-XXXXXX")
          .string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
  path_ = pattern;
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}
std::vector<std::string> TemporaryFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
void write_whole(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);  // quicker than to truncate it: some file systems sync a file that was truncated
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace ddp::test
