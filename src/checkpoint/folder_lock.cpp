// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "checkpoint/folder.hpp"
#include "core/attempt.hpp"
#include "os/log.hpp"
#include "os/own_files.hpp"

namespace ddp::checkpoint {
namespace {

constexpr size_t kRecordBytes = 512;

/// Of this process, as long as it lives.
std::string process_text() {
  std::array<char, 256> host{};
  (void)gethostname(host.data(), host.size() - 1);
  return std::string(host.data()) + " " + std::to_string(getpid());
}

struct Owner {
  std::string job, process, who;
};

Owner read_owner(const os::Fd& file, const std::string& path) {
  std::string record(kRecordBytes, '\0');
  record.resize(static_cast<size_t>(os::read_at(file.get(), 0, record.data(), static_cast<int64_t>(record.size()), path)));
  Owner owner;
  size_t at = 0;
  for (std::string* line : {&owner.job, &owner.process, &owner.who}) {
    const size_t end = std::min(record.find('\n', at), record.size());
    *line = record.substr(at, end - at);
    at = std::min(end + 1, record.size());
  }
  return owner;
}

os::Fd open_lock(const std::string& folder) {
  const std::string path = path_in(folder, ".ddp-folder.lock");
  os::Fd file = os::open_regular_file(path, O_RDWR | O_CREAT, 0666);
  if (!file.is_open() && errno == EACCES) file = os::open_regular_file(path, O_RDONLY, 0);  // another user's
  if (!file.is_open() && errno == EACCES)
    os::log(DDP_LOG_WARNING, "the folder \"%s\" cannot be locked against other jobs: its .ddp-folder.lock cannot be read",
            folder.c_str());
  return file;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, const std::string& job, const std::string& who)
    : folder_(folder), file_(open_lock(folder)) {
  if (!file_.is_open()) return;  // the save itself says what is wrong with the folder
  closed_in_forks_.emplace(file_.get());
  if (os::file_table().lock(file_.get(), LOCK_EX | LOCK_NB) == 0) {
    is_held_ = true;
    write_owner(job, who);
  } else if (errno == EWOULDBLOCK) {
    refuse_other(job);
  } else {
    os::log(DDP_LOG_INFO, "the folder \"%s\" cannot be locked against other jobs: %s", folder.c_str(), std::strerror(errno));
    is_held_ = true;  // said once
  }
}

void FolderLock::refuse_other(const std::string& job) const {
  const Owner owner = read_owner(file_, folder_);
  if (owner.job == job || owner.process == process_text()) return;
  throw Error(DDP_ERROR_IO, "cannot save to the folder \"" + folder_ + "\": another job saves there, " +
                                (owner.who.empty() ? "which has just begun" : owner.who) +
                                "; give each job a folder of its own");
}

void FolderLock::write_owner(const std::string& job, const std::string& who) const {
  std::string record = job + "\n" + process_text() + "\n" + who + "\n";
  record.resize(kRecordBytes, '\n');
  const std::optional<Error> problem =
      try_to([&] { os::write_all(file_.get(), record.data(), static_cast<int64_t>(record.size()), folder_); });
  if (problem) os::log(DDP_LOG_INFO, "nobody can see who saves to the folder: %s", problem->text().c_str());
}

}  // namespace ddp::checkpoint
