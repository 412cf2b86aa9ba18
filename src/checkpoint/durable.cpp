// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/durable.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "checkpoint/temporary.hpp"
#include "os/log.hpp"

namespace ddp::checkpoint {
namespace {

constexpr int kAttempts = 16;

}  // namespace

DurableFile::DurableFile(const std::string& path, int64_t bytes) : path_(path), bytes_(bytes) {
  find_target();
  sweep();
  create_temporary();
}

DurableFile::Temporary::~Temporary() {
  if (!name.empty()) (void)os::file_table().unlink(folder.get(), name.c_str());
}

void DurableFile::find_target() {
  const size_t slash = path_.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path_.substr(0, slash);
  base_ = slash == std::string::npos ? path_ : path_.substr(slash + 1);
  if (base_.empty() || base_ == "." || base_ == "..") throw os::file_error("write", path_, EISDIR);
  folder_ = os::open_file(AT_FDCWD, folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (!folder_.is_open() && errno == ENOENT)
    throw Error(DDP_ERROR_IO, "cannot write \"" + path_ + "\": the folder \"" + folder + "\" does not exist; make it first");
  if (!folder_.is_open()) throw os::file_error("open the folder of", path_, errno);
  struct stat status {};
  if (os::file_table().status_at(folder_.get(), base_.c_str(), &status, 0) == 0) {
    if (S_ISDIR(status.st_mode)) throw os::file_error("write", path_, EISDIR);
    if (!S_ISREG(status.st_mode))
      throw Error(DDP_ERROR_IO, "cannot write \"" + path_ + "\": it is a device, pipe or socket; give the path of a file");
  } else if (errno != ENOENT && errno != ELOOP) {
    throw os::file_error("look at", path_, errno);
  }
  struct stat itself {};
  replaces_ =
      os::file_table().status_at(folder_.get(), base_.c_str(), &itself, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(itself.st_mode);
  mode_ = replaces_ ? itself.st_mode & 0777U : 0;
}

void DurableFile::sweep() const {
  sweep_temporaries(
      folder_.get(), [&](const std::string& name) { return is_temporary_of(name, base_); }, path_);
}

void DurableFile::create_temporary() {
  for (int attempt = 0; attempt < kAttempts && !file_.is_open(); ++attempt) try_temporary(temporary_name(base_));
  if (!file_.is_open()) throw os::file_error("create a temporary file beside", path_, EEXIST);
  os::reserve_space(file_.get(), bytes_, path_);
}

// Creating a file as 0666 gives it what the umask (and the folder's default access list) leaves, without asking for the
// umask, which can not be done without changing it for the whole process. Where a file is replaced, its own permissions are
// given at commit.
void DurableFile::try_temporary(const std::string& name) {
  os::Fd fd = os::open_file(folder_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                            replaces_ ? 0600 : 0666);
  if (!fd.is_open()) {
    if (errno == EEXIST) return;
    throw os::file_error("create a temporary file beside", path_, errno);
  }
  struct stat status {};
  const bool taken = os::file_table().lock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (taken || (os::file_table().status(fd.get(), &status) == 0 && status.st_nlink == 0)) {
    (void)os::file_table().unlink(folder_.get(), name.c_str());  // another save swept it between open and lock
    return;
  }
  temporary_.name = name;
  file_ = std::move(fd);
}

void DurableFile::write(const void* data, int64_t bytes) {
  os::write_all(file_.get(), data, bytes, path_);
  written_ += bytes;
}

std::string DurableFile::temporary_path() const { return path_.substr(0, path_.size() - base_.size()) + temporary_.name; }

void DurableFile::sync() {
  if (written_ != bytes_)
    throw make_error(DDP_ERROR_INTERNAL, "\"%s\" got %lld of %lld bytes", path_.c_str(), static_cast<long long>(written_),
                     static_cast<long long>(bytes_));
  const os::FileTable& files = os::file_table();
  if (replaces_ && files.change_mode(file_.get(), mode_) != 0)
    os::log(DDP_LOG_INFO, "\"%s\" keeps the permissions of a new file: its file system refused the old ones", path_.c_str());
  os::sync_file(file_.get(), path_);
  // Some file systems report a lost write only at close. Closing a copy asks them, while the original keeps the lock.
  const int copy = files.duplicate(file_.get());
  if (copy < 0) throw os::file_error("write", path_, errno);
  if (files.close(copy) != 0 && errno != EINTR) throw os::file_error("close", path_, errno);
  synced_ = true;
}

void DurableFile::commit() {
  if (!synced_) sync();
  const os::FileTable& files = os::file_table();
  if (files.rename(folder_.get(), temporary_.name.c_str(), folder_.get(), base_.c_str()) != 0)
    throw os::file_error("replace", path_, errno);
  temporary_.name.clear();
  int synced = 0;
  while ((synced = files.sync(folder_.get())) != 0 && errno == EINTR) {
  }
  if (synced != 0 && errno != EINVAL && errno != EOPNOTSUPP && errno != ENOSYS) {
    const Error cause = os::file_error("sync the folder of", path_, errno);
    throw Error(cause.status(), cause.text() + " (the new file is in place but may not survive a power cut)");
  }
}

}  // namespace ddp::checkpoint
