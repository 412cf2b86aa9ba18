// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/source.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

namespace ddp::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int kMostEntries = 10'000;  // of a folder that are looked at
constexpr size_t kShownNames = 3;
constexpr size_t kLongName = 255;

/// How many characters must be put in, taken out or changed to get from one name to the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error);
  for (int seen = 0; !error && entry != fs::directory_iterator() && seen < kMostEntries; entry.increment(error), ++seen)
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string in_quotes(std::string_view text) { return "\"" + std::string(text) + "\""; }

/// "; did you mean "x"?", or the checkpoints that there are, or "".
std::string what_there_is(const fs::path& folder, const std::string& wanted) {
  const std::vector<std::string> names = names_in(folder);
  const std::string* closest = nullptr;
  size_t fewest = std::max<size_t>(wanted.size() / 4, std::min<size_t>(wanted.size() / 2, 2)) + 1;
  for (const std::string& name : names) {
    const size_t changes = wanted.size() > kLongName ? fewest : distance(wanted, name);
    if (changes < fewest) {
      fewest = changes;
      closest = &name;
    }
  }
  if (closest != nullptr) return "; did you mean " + in_quotes((folder / *closest).string()) + "?";
  std::vector<std::string> checkpoints;
  for (const std::string& name : names)
    if (name.ends_with(".safetensors")) checkpoints.push_back(name);
  if (checkpoints.empty()) return "; the folder " + in_quotes(folder.string()) + " has no .safetensors file";
  std::string text = "; the folder " + in_quotes(folder.string()) + " has ";
  for (size_t i = 0; i < std::min(checkpoints.size(), kShownNames); ++i)
    text += (i > 0 ? ", " : "") + in_quotes(checkpoints[i]);
  if (checkpoints.size() > kShownNames) text += " and " + std::to_string(checkpoints.size() - kShownNames) + " more";
  return text;
}

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

Error missing_file(const std::string& path) {
  std::error_code error;
  std::string text = "cannot open " + in_quotes(path) + ": there is no such file";
  const fs::path whole(path);
  const fs::path current = fs::current_path(error);
  if (whole.is_relative() && !error) text += " in the working folder " + in_quotes(current.string());
  const fs::path folder = whole.has_parent_path() ? whole.parent_path() : fs::path(".");
  if (fs::is_directory(folder, error)) {
    text += what_there_is(folder, whole.filename().string());
  } else {
    text += "; the folder " + in_quotes(folder.string()) + " does not exist";
  }
  if (text.back() != '?') text += "; check the path";
  return Error(DDP_ERROR_IO, std::move(text));
}

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
