// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
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
  std::string job, process, name;
  int64_t generation = 0;
};

Owner read_owner(const os::Fd& file, const std::string& path) {
  std::string record(kRecordBytes, '\0');
  record.resize(static_cast<size_t>(os::read_at(file.get(), 0, record.data(), static_cast<int64_t>(record.size()), path)));
  Owner owner;
  std::string generation;
  size_t at = 0;
  for (std::string* line : {&owner.job, &owner.process, &owner.name, &generation}) {
    const size_t end = std::min(record.find('\n', at), record.size());
    *line = record.substr(at, end - at);
    at = std::min(end + 1, record.size());
  }
  std::from_chars(generation.data(), generation.data() + generation.size(), owner.generation);
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

FolderLock::FolderLock(const std::string& folder) : folder_(folder), file_(open_lock(folder)) {
  if (file_.is_open()) closed_in_forks_.emplace(file_.get());
}

void FolderLock::look_at_kernel() {
  if (lock_ == Kernel::kOurs || lock_ == Kernel::kNoLocks) return;
  if (os::file_table().lock(file_.get(), LOCK_EX | LOCK_NB) == 0) {
    lock_ = Kernel::kOurs;
  } else if (errno == EWOULDBLOCK) {
    lock_ = Kernel::kTheirs;
  } else {
    os::log(DDP_LOG_INFO, "the folder \"%s\" cannot be locked against other jobs: %s", folder_.c_str(),
            std::strerror(errno));
    lock_ = Kernel::kNoLocks;  // logged once
  }
}

void FolderLock::claim(const Saver& saver) {
  if (!file_.is_open()) return;  // the save itself reports the problem of the folder
  look_at_kernel();
  const Owner owner = read_owner(file_, folder_);
  const bool is_this_process = owner.process == process_text();
  const std::string start = "cannot save to the folder \"" + folder_ + "\": ";
  if (owner.job == saver.job && !is_this_process && owner.generation >= saver.generation)
    throw Error(DDP_ERROR_IO, start + "another part of this group has gone on and saves there, " + owner.name +
                                  " in generation " + std::to_string(owner.generation) +
                                  ", and this part is in generation " + std::to_string(saver.generation) +
                                  "; end the processes of one part");
  if (owner.job != saver.job && !is_this_process && lock_ == Kernel::kTheirs)
    throw Error(DDP_ERROR_IO, start + "another job saves there, " +
                                  (owner.name.empty() ? "which has just begun" : owner.name) +
                                  "; give each job a folder of its own");
  if (owner.job != saver.job || !is_this_process || owner.generation != saver.generation) write_owner(saver);
}

void FolderLock::write_owner(const Saver& saver) const {
  std::string record =
      saver.job + "\n" + process_text() + "\n" + saver.name + "\n" + std::to_string(saver.generation) + "\n";
  record.resize(kRecordBytes, '\n');
  (void)::lseek(file_.get(), 0, SEEK_SET);
  const std::optional<Error> problem =
      try_to([&] { os::write_all(file_.get(), record.data(), static_cast<int64_t>(record.size()), folder_); });
  if (problem) os::log(DDP_LOG_INFO, "nobody can see who saves to the folder: %s", problem->text().c_str());
}

}  // namespace ddp::checkpoint
