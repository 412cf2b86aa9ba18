// SPDX-License-Identifier: Apache-2.0
#include "discovery/record_store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "control/auth.hpp"
#include "control/net.hpp"
#include "core/callback.hpp"
#include "core/error.hpp"
#include "discovery/launcher_process.hpp"

namespace ddp::bootstrap {
namespace {

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

class FileBoard final : public RecordStore {
 public:
  explicit FileBoard(std::string path) : path_(std::move(path)) {}

  void put(const std::string& record) override {
    // Written under a temporary name and renamed: no reader gets half a record, and a stale one is replaced, even of another
    // process.
    const std::string beside = path_ + "." + std::to_string(getpid()) + "." + auth::random_token().substr(0, 16);
    net::Socket file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    const bool written = file && ::write(file.get(), record.data(), record.size()) == static_cast<ssize_t>(record.size());
    if (written && ::rename(beside.c_str(), path_.c_str()) == 0) return;
    const int error = errno;
    if (file) ::unlink(beside.c_str());
    throw cannot_meet(error);
  }

  std::string get(int64_t wait_ms) override {
    const net::Socket file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
    if (!file && errno != ENOENT && errno != ESTALE) throw cannot_meet(errno);
    if (!file) {
      std::this_thread::sleep_for(std::chrono::milliseconds(std::min<int64_t>(wait_ms, 20)));
      return "";
    }
    struct stat about {};
    if (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return "";
    if (about.st_uid != geteuid())
      throw make_error(DDP_ERROR_IO,
                       "the file %s, where the ranks should meet, belongs to another user: choose another path",
                       path_.c_str());
    return read_some(file.get());
  }

  void remove(const std::string& record) noexcept override {
    const net::Socket file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
    std::array<char, kNoteBytes> there{};
    if (!file || ::read(file.get(), there.data(), there.size()) != static_cast<ssize_t>(record.size())) return;
    if (std::memcmp(there.data(), record.data(), record.size()) == 0) ::unlink(path_.c_str());
  }

 private:
  [[nodiscard]] Error cannot_meet(int error) const {
    return make_error(status_of_errno(error, DDP_ERROR_IO), "the ranks cannot meet at the file %s: %s%s", path_.c_str(),
                      std::strerror(error), advice_of_errno(error));
  }
  std::string path_;
};

class StoreBoard final : public RecordStore {
 public:
  StoreBoard(const ddp_store& store, std::string key) : store_(store), key_(std::move(key)) {}

  void put(const std::string& record) override {
    const int32_t failed = call_program("options->store->set", [&] {
      return store_.set(store_.user_data, key_.c_str(), record.data(), static_cast<int64_t>(record.size()));
    });
    if (failed != 0)
      throw make_error(DDP_ERROR_CALLBACK, "options->store->set failed with %d for the key %s", failed, key_.c_str());
  }

  std::string get(int64_t wait_ms) override {
    std::string text(kNoteBytes, '\0');
    int64_t bytes = 0;
    const int32_t failed = call_program("options->store->get", [&] {
      return store_.get(store_.user_data, key_.c_str(), text.data(), static_cast<int64_t>(text.size()), wait_ms, &bytes);
    });
    if (failed == 1) return "";
    if (failed != 0)
      throw make_error(DDP_ERROR_CALLBACK, "options->store->get failed with %d for the key %s", failed, key_.c_str());
    if (bytes < 0 || bytes > static_cast<int64_t>(text.size())) return "";
    text.resize(static_cast<size_t>(bytes));
    return text;
  }

  void remove(const std::string&) noexcept override {}  // a store has no way to remove a key

 private:
  ddp_store store_;
  std::string key_;
};

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

std::unique_ptr<RecordStore> open_file_board(const std::string& path) { return std::make_unique<FileBoard>(path); }

std::unique_ptr<RecordStore> open_join_board(const Meeting& meeting, const ddp_group_options& options, int32_t id) {
  return std::make_unique<StoreBoard>(*options.store, "ddp/" + meeting.group_name + "/join/" + std::to_string(id));
}

std::unique_ptr<RecordStore> open_board(const Meeting& meeting, const ddp_group_options& options) {
  if (meeting.kind == Meeting::Kind::kStore)
    return std::make_unique<StoreBoard>(*options.store, "ddp/" + meeting.group_name + "/rank0");
  if (meeting.private_place) return std::make_unique<FileBoard>(private_path(meeting));
  return std::make_unique<FileBoard>(meeting.group_name.empty() ? meeting.place : meeting.place + "." + meeting.group_name);
}

}  // namespace ddp::bootstrap
