// SPDX-License-Identifier: Apache-2.0
// A file is written under a temporary name and renamed, so that no reader sees half of it, and an older one stays until
// then. Tested by process/ddprun_report_test.sh.
#include "ddprun/report_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "ddprun/fd.hpp"
#include "ddprun/page.hpp"
#include "ddprun/run_json.hpp"

namespace ddp::ddprun {
namespace {

/// A new file in the same folder, with its name in `path`.
Fd make_beside(std::string& path) {
  path += ".XXXXXX";
  return Fd(mkstemp(path.data()));
}

}  // namespace

std::string write_whole(const std::string& path, const std::string& text) {
  std::string beside = path;
  const Fd file = make_beside(beside);
  if (!file.open()) return strerror(errno);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(file.get(), text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<size_t>(written);
  }
  const mode_t mask = umask(0);
  umask(mask);
  if (done == text.size() && fchmod(file.get(), 0666 & ~mask) == 0 && rename(beside.c_str(), path.c_str()) == 0) return "";
  std::string cause = strerror(errno);
  unlink(beside.c_str());
  return cause;
}

std::string json_path(const std::string& page_path) {
  const bool html = page_path.ends_with(".html") || page_path.ends_with(".htm");
  return (html ? page_path.substr(0, page_path.rfind('.')) : page_path) + ".json";
}

std::string refuse_file(const std::string& option, const std::string& path) {
  struct stat there {};
  if (path.empty() || path.back() == '/' || (stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)))
    return option + " needs a file, not " + path + ".";
  std::string beside = path;
  const Fd file = make_beside(beside);
  if (!file.open()) return option + ": the file " + path + " cannot be written: " + strerror(errno) + ".";
  unlink(beside.c_str());
  return "";
}

std::string refuse_report(const std::string& page_path) {
  const std::string text = refuse_file("--report", page_path);
  return text.empty() ? refuse_file("--report", json_path(page_path)) : text;
}

std::string save_report(const Run& run, const std::string& page_path) {
  const std::string numbers = json_path(page_path);
  const std::string name = numbers.substr(numbers.rfind('/') + 1);
  std::string cause = write_whole(page_path, write_page(run, name));
  if (!cause.empty()) return "the report " + page_path + " could not be written: " + cause;
  cause = write_whole(numbers, write_json(run));
  if (!cause.empty()) return "the numbers " + numbers + " could not be written: " + cause;
  return "the report is in " + page_path + ", its numbers are in " + numbers;
}

}  // namespace ddp::ddprun
