// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/latest.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "checkpoint/folder.hpp"
#include "core/attempt.hpp"
#include "os/log.hpp"

namespace ddp::checkpoint {
namespace {

constexpr int kLooks = 100;  // at a folder from which files vanish

bool is_gone(const std::string& path) {
  struct stat status {};
  return os::file_table().status_at(AT_FDCWD, path.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
}

/// One scan of the folder. Returns nothing if a listed file has vanished, unless this is the last scan.
std::optional<Picked> look(const std::string& folder, const VerifyFn& verify, bool is_last) {
  const std::vector<SavedStep> steps = list_steps(folder);
  if (steps.empty())
    throw Error(DDP_ERROR_NO_CHECKPOINT,
                "the folder \"" + folder + "\" has no checkpoint (no file such as " + name_of_step(1200) + ")");
  std::vector<std::string> skipped;
  for (const SavedStep& each : steps) {
    const std::string path = path_in(folder, each.name);
    std::optional<Picked> picked;
    const std::optional<Error> problem = try_to([&] {
      Source source = Source::from_file(path);
      Opened opened = verify(source, true);
      picked.emplace(Picked{std::move(source), std::move(opened), path, {}});
    });
    if (problem && problem->status() != DDP_ERROR_IO) throw Error(*problem);
    if (problem && is_gone(path) && !is_last) return std::nullopt;
    if (problem) {
      skipped.push_back(problem->text());
      continue;
    }
    for (const std::string& text : skipped) os::log(DDP_LOG_WARNING, "skipped a newer file: %s", text.c_str());
    picked->skipped = std::move(skipped);
    return picked;
  }
  throw Error(DDP_ERROR_IO, "none of the " + std::to_string(steps.size()) + " checkpoints in the folder \"" + folder +
                                "\" is valid; the newest: " + skipped.front());
}

}  // namespace

Picked pick_latest(const std::string& folder, const VerifyFn& verify) {
  for (int left = kLooks;; --left)
    if (std::optional<Picked> picked = look(folder, verify, left <= 1)) return std::move(*picked);
}

}  // namespace ddp::checkpoint
