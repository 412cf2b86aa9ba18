// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/source.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "checkpoint/missing_file.hpp"

namespace ddp::checkpoint {
namespace {

constexpr int64_t kPullBytes = int64_t{1} << 20;

/// A file that has no name: in the folder for temporary files, or in memory where no folder can do that.
os::Fd make_anonymous() {
  const char* asked = std::getenv("TMPDIR");
  for (const char* folder : {asked, "/var/tmp", "/tmp"}) {
    if (folder == nullptr) continue;
    os::Fd fd = os::open_file(AT_FDCWD, folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd.is_open()) return fd;
  }
  os::Fd fd(::memfd_create("ddp-checkpoint", MFD_CLOEXEC));
  if (!fd.is_open()) throw os::file_error("make a temporary file in", asked == nullptr ? "/var/tmp" : asked, errno);
  return fd;
}

}  // namespace

Source Source::from_file(const std::string& path) {
  Source source("checkpoint \"" + path + "\"", path);
  source.file_ =
      os::open_file(AT_FDCWD, path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);  // NONBLOCK: do not wait at a pipe
  if (!source.file_.is_open() && errno == ENOENT) throw missing_file(path);
  if (!source.file_.is_open()) throw os::file_error("open", path, errno);
  struct stat status {};
  if (os::file_table().status(source.file_.get(), &status) != 0) throw os::file_error("look at", path, errno);
  if (S_ISDIR(status.st_mode)) throw os::file_error("read", path, EISDIR);
  if (!S_ISREG(status.st_mode))
    throw Error(DDP_ERROR_IO,
                "cannot read \"" + path + "\": it is a device, pipe or socket; use ddp_state_load for a stream");
  source.bytes_ = status.st_size;
  return source;
}

Source Source::from_stream(PullFn pull) {
  Source source("the checkpoint stream", "the stream's temporary file");
  source.file_ = make_anonymous();
  source.pull_ = std::move(pull);
  return source;
}

int64_t Source::size(int64_t limit) {
  pull_until(limit + 1);
  return bytes_;
}

void Source::read(int64_t offset, void* data, int64_t bytes) {
  pull_until(offset + bytes);
  if (os::read_at(file_.get(), offset, data, bytes, path_) != bytes)
    throw Error(DDP_ERROR_IO, name_ + " ends before byte " + std::to_string(offset + bytes) + "; it is truncated");
}

void Source::pull_until(int64_t end) {
  if (!pull_ || bytes_ >= end) return;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kPullBytes, end - bytes_)));
  while (bytes_ < end) {
    const int64_t ask = std::min(static_cast<int64_t>(buffer.size()), end - bytes_);
    const int64_t got = pull_(buffer.data(), ask);
    if (got < 0 || got > ask)
      throw make_error(DDP_ERROR_CALLBACK, "the read callback of %s returned %lld for %lld bytes after byte %lld",
                       name_.c_str(), static_cast<long long>(got), static_cast<long long>(ask),
                       static_cast<long long>(bytes_));
    if (got == 0) {
      pull_ = nullptr;
      return;
    }
    os::write_all(file_.get(), buffer.data(), got, path_);
    bytes_ += got;
  }
}

}  // namespace ddp::checkpoint
