// SPDX-License-Identifier: Apache-2.0
#include "trace/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "core/attempt.hpp"
#include "os/file.hpp"
#include "os/own_files.hpp"
#include "os/process.hpp"

namespace ddp::trace {

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
  if (!beside_.empty() && is_ours()) (void)os::file_table().unlink(AT_FDCWD, beside_.c_str());
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  path_.swap(other.path_);
  beside_.swap(other.beside_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(process_, other.process_);
  return *this;
}

bool MappedFile::is_ours() const noexcept { return process_ == os::process_number(); }

void MappedFile::map(int fd) {
  void* const place = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (place == MAP_FAILED) throw os::file_error("map", path_, errno);
  data_ = static_cast<std::byte*>(place);
  (void)madvise(place, static_cast<size_t>(bytes_), MADV_DONTDUMP);
}

MappedFile MappedFile::make(const std::string& path, int64_t bytes) {
  MappedFile file;
  file.path_ = path;
  file.process_ = os::process_number();
  file.bytes_ = bytes;
  const std::string beside = path + "." + std::to_string(getpid()) + ".new";
  // Of this user alone: another who cut it would end the process by SIGBUS.
  const os::Fd fd = os::make_new_file(beside, O_RDWR, 0600);
  file.beside_ = beside;
  const std::array<std::byte, 4096> zeros{};
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(zeros.size()))
    os::write_all(fd.get(), zeros.data(), std::min<int64_t>(bytes - at, static_cast<int64_t>(zeros.size())), beside);
  file.map(fd.get());
  return file;
}

MappedFile MappedFile::open(const std::string& path, int64_t least) {
  MappedFile file;
  file.path_ = path;
  file.process_ = os::process_number();
  const os::Fd fd = os::open_own_file(path, O_RDWR, 0);
  struct stat info {};
  if (!fd.is_open() || os::file_table().status(fd.get(), &info) != 0) throw os::file_error("open", path, errno);
  if (info.st_size < least) throw os::file_error("open", path, EINVAL);
  file.bytes_ = info.st_size;
  file.map(fd.get());
  return file;
}

void MappedFile::show() {
  if (os::file_table().rename(AT_FDCWD, beside_.c_str(), AT_FDCWD, path_.c_str()) != 0)
    throw os::file_error("rename", beside_, errno);
  beside_.clear();
}

}  // namespace ddp::trace
