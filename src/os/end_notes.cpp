// SPDX-License-Identifier: Apache-2.0
#include "os/end_notes.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace ddp::os {

std::string end_note_name(const std::string& life) {
  std::string name = "ended-" + life;
  std::replace(name.begin(), name.end(), '/', '-');
  return name;
}

bool has_end_note(const std::string& folder, const std::string& life) {
  struct stat about {};
  if (life.empty() || ::lstat(folder.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != geteuid() ||
      (about.st_mode & 077) != 0)
    return false;
  return ::lstat((folder + "/" + end_note_name(life)).c_str(), &about) == 0 && S_ISREG(about.st_mode);
}

}  // namespace ddp::os
