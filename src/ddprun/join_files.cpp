// SPDX-License-Identifier: Apache-2.0
// A rank writes its record under a temporary name and renames it: no reader uses "join.123.0123456789abcdef". A scan reads a
// directory and a small file for each group; a machine has one or two. Tested by unit/ddprun/orders_test.cpp.
#include "ddprun/join_files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ddprun/fd.hpp"

namespace ddp::ddprun {
namespace {

constexpr int64_t kLookMs = 200;
constexpr size_t kMostBytes = 2048;
constexpr size_t kTokenDigits = 16;
constexpr const char* kBeside = ".new";

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_unfinished(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return false;
  return name.substr(dot) == kBeside || (name.size() - dot - 1 == kTokenDigits && is_hex(name.substr(dot + 1)));
}

}  // namespace

int64_t JoinFiles::due_ms() const noexcept { return folder_.empty() ? INT64_MAX : next_.left_ms(); }

std::vector<std::pair<std::string, std::string>> JoinFiles::changed() {
  std::vector<std::pair<std::string, std::string>> found;
  if (folder_.empty() || !next_.passed()) return found;
  next_ = os::Deadline::in_ms(kLookMs);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (is_unfinished(name) || !entry.is_regular_file(ignored)) continue;
    std::ostringstream bytes;
    bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    if (bytes.str().empty() || bytes.str().size() > kMostBytes || known_[name] == bytes.str()) continue;
    known_[name] = bytes.str();
    found.emplace_back(name, bytes.str());
  }
  return found;
}

void JoinFiles::put(const std::string& name, const std::string& bytes) {
  if (folder_.empty()) return;
  const std::string path = folder_ + "/" + name, beside = path + kBeside;
  const Fd file(open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.open() || write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) return;
  known_[name] = bytes;
  static_cast<void>(rename(beside.c_str(), path.c_str()));
}

}  // namespace ddp::ddprun
