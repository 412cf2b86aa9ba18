// SPDX-License-Identifier: Apache-2.0
#include "discovery/place.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "control/auth.hpp"
#include "control/net.hpp"
#include "core/callback.hpp"
#include "core/error.hpp"

namespace ddp::bootstrap {
namespace {

constexpr int kGenerations = 64;
// As /proc shows them, cut to 15 letters. Scripts may stand between them and the rank.
constexpr std::array<std::string_view, 8> kLaunchers = {"hydra_pmi_proxy", "pmi_proxy", "orted",         "prted",
                                                        "mpirun",          "mpiexec",   "mpiexec.hydra", "slurmstepd"};

struct Process {
  std::string name;
  pid_t parent = 0;
  std::string start;  // in clock ticks since the boot: a number that is used again differs in it
};

std::optional<Process> look_at(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t open = text.find('('), close = text.rfind(')');  // the name between them may hold anything
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  std::istringstream rest(text.substr(close + 1));
  std::vector<std::string> fields;  // from the third on
  for (std::string field; rest >> field;) fields.push_back(std::move(field));
  constexpr size_t kParent = 4 - 3, kStart = 22 - 3;
  if (fields.size() <= kStart) return std::nullopt;
  return Process{text.substr(open + 1, close - open - 1), static_cast<pid_t>(std::stol(fields[kParent])), fields[kStart]};
}

std::string identity(pid_t pid) {
  const auto process = look_at(pid);
  return std::to_string(pid) + "/" + (process.has_value() ? process->start : "");
}

// Which process started the ranks of this host. It tells two runs apart where the launcher gives a run no name: equal for
// all ranks that one launcher started on this host, and for no others: number and start time of the nearest ancestor that
// is a known launcher, or else of the parent.
std::string launcher_process() {
  pid_t pid = getppid();
  for (int i = 0; i < kGenerations && pid > 1; ++i) {
    const auto process = look_at(pid);
    if (!process.has_value()) break;
    if (std::find(kLaunchers.begin(), kLaunchers.end(), process->name) != kLaunchers.end()) return identity(pid);
    pid = process->parent;
  }
  return identity(getppid());
}

constexpr std::string_view kFirstLine = "libddp meets here, 2";
constexpr size_t kNoteBytes = 2048;

std::string read_some(int fd) {
  std::string text(kNoteBytes, '\0');
  size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t got = ::read(fd, text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    filled += static_cast<size_t>(got);
  }
  text.resize(filled);
  return text;
}

Error cannot_meet(const std::string& path, int error) {
  return make_error(status_of_errno(error, DDP_ERROR_IO), "the ranks cannot meet at the file %s: %s%s", path.c_str(),
                    std::strerror(error), advice_of_errno(error));
}

// Written under a temporary name and renamed: no reader gets half a record, and a stale one is replaced, even of another
// process.
void write_file(const std::string& path, const std::string& record) {
  const std::string beside = path + "." + std::to_string(getpid()) + "." + auth::random_token().substr(0, 16);
  net::Socket file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  const bool written = file && ::write(file.get(), record.data(), record.size()) == static_cast<ssize_t>(record.size());
  if (written && ::rename(beside.c_str(), path.c_str()) == 0) return;
  const int error = errno;
  if (file) ::unlink(beside.c_str());
  throw cannot_meet(path, error);
}

std::string read_file(const std::string& path, int64_t wait_ms) {
  const net::Socket file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!file && errno != ENOENT && errno != ESTALE) throw cannot_meet(path, errno);
  if (!file) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min<int64_t>(wait_ms, 20)));
    return "";
  }
  struct stat about {};
  if (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return "";
  if (about.st_uid != geteuid())
    throw make_error(DDP_ERROR_IO, "the file %s, where the ranks should meet, belongs to another user: choose another path",
                     path.c_str());
  return read_some(file.get());
}

void write_store(const ddp_store& store, const std::string& key, const std::string& record) {
  const int32_t failed = call_program("options->store->set", [&] {
    return store.set(store.user_data, key.c_str(), record.data(), static_cast<int64_t>(record.size()));
  });
  if (failed != 0)
    throw make_error(DDP_ERROR_CALLBACK, "options->store->set failed with %d for the key %s", failed, key.c_str());
}

std::string read_store(const ddp_store& store, const std::string& key, int64_t wait_ms) {
  std::string text(kNoteBytes, '\0');
  int64_t bytes = 0;
  const int32_t failed = call_program("options->store->get", [&] {
    return store.get(store.user_data, key.c_str(), text.data(), static_cast<int64_t>(text.size()), wait_ms, &bytes);
  });
  if (failed == 1) return "";
  if (failed != 0)
    throw make_error(DDP_ERROR_CALLBACK, "options->store->get failed with %d for the key %s", failed, key.c_str());
  if (bytes < 0 || bytes > static_cast<int64_t>(text.size())) return "";
  text.resize(static_cast<size_t>(bytes));
  return text;
}

// A folder of this user alone. Others may make names under /tmp, but not one that passes this check.
std::string private_folder() {
  std::string path = "/tmp/libddp-" + std::to_string(geteuid());
  struct stat about {};
  (void)::mkdir(path.c_str(), 0700);
  if (::lstat(path.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != geteuid() ||
      (about.st_mode & 077) != 0)
    throw make_error(DDP_ERROR_IO,
                     "the ranks need the folder %s, of this user alone (mode 700), to meet: remove what is there",
                     path.c_str());
  return path;
}

std::string private_path(const Meeting& meeting) {
  std::string start = meeting.place;
  if (meeting.needs_parent) start += "/" + launcher_process();
  const auth::GroupId id = auth::group_id(meeting.job, start, meeting.group_name);
  return private_folder() + "/" + auth::hex({reinterpret_cast<const char*>(id.data()), id.size()});
}

}  // namespace

std::string write_record(const Record& record) {
  std::string text(kFirstLine);
  for (const std::string* line : {&record.address, &record.word, &record.token, &record.host, &record.boot_id, &record.life})
    text += "\n" + *line;
  return text + "\n";
}

std::optional<Record> read_record(std::string_view text) {
  std::vector<std::string> lines;
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1))
    lines.emplace_back(text.substr(0, end));
  if (lines.size() != 7 || !text.empty() || lines[0] != kFirstLine) return std::nullopt;
  return Record{lines[1], lines[2], lines[3], lines[4], lines[5], lines[6]};
}

Place Place::of(const Meeting& meeting, const ddp_group_options& options) {
  if (meeting.kind == Meeting::Kind::kStore) return Place(*options.store, "ddp/" + meeting.group_name + "/rank0");
  if (meeting.private_place) return file(private_path(meeting));
  return file(meeting.group_name.empty() ? meeting.place : meeting.place + "." + meeting.group_name);
}

Place Place::of_rank(const Meeting& meeting, const ddp_group_options& options, int32_t id) {
  return Place(*options.store, "ddp/" + meeting.group_name + "/join/" + std::to_string(id));
}

void Place::publish(const std::string& record) const {
  store_.has_value() ? write_store(*store_, name_, record) : write_file(name_, record);
}

std::string Place::find(int64_t wait_ms) const {
  return store_.has_value() ? read_store(*store_, name_, wait_ms) : read_file(name_, wait_ms);
}

void Place::withdraw(const std::string& record) const noexcept {
  if (store_.has_value()) return;  // a store has no way to remove a key
  const net::Socket file(::open(name_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  std::array<char, kNoteBytes> there{};
  if (!file || ::read(file.get(), there.data(), there.size()) != static_cast<ssize_t>(record.size())) return;
  if (std::memcmp(there.data(), record.data(), record.size()) == 0) ::unlink(name_.c_str());
}

}  // namespace ddp::bootstrap
