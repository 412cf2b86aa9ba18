// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "checkpoint/temporary.hpp"
#include "core/attempt.hpp"
#include "os/file.hpp"
#include "os/log.hpp"

namespace ddp::checkpoint {
namespace {

constexpr std::string_view kBegin = "step-", kSuffix = ".safetensors", kTemporary = ".ddp-";
constexpr size_t kDigits = 12;

std::vector<SavedStep> steps_among(const std::vector<std::string>& names) {
  std::vector<SavedStep> steps;
  for (const std::string& name : names)
    if (const std::optional<int64_t> step = step_of_name(name)) steps.push_back({*step, name});
  std::sort(steps.begin(), steps.end(), [](const SavedStep& a, const SavedStep& b) { return a.step > b.step; });
  return steps;
}

/// Is it what a killed save of any step has left?
bool is_temporary_of_step(const std::string& name) {
  const size_t end = name.find(kTemporary);
  if (end == std::string::npos || end < 1) return false;
  const std::string base = name.substr(1, end - 1);
  return step_of_name(base).has_value() && is_temporary_of(name, base);
}

os::Fd open_folder(const std::string& folder) {
  return os::open_file(AT_FDCWD, folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
}

void remove_old(const os::Fd& place, const std::string& folder, const std::vector<SavedStep>& steps, int64_t step,
                int64_t keep) {
  int64_t kept = 0;
  for (const SavedStep& each : steps) {
    if (each.step > step)
      os::log(DDP_LOG_WARNING,
              "\"%s\" is of a later step than the %lld that was saved, and a load of the latest would take it; remove it if "
              "the training has gone back",
              path_in(folder, each.name).c_str(), static_cast<long long>(step));
    if (each.step > step || kept++ < keep) continue;
    if (os::file_table().unlink(place.get(), each.name.c_str()) != 0 && errno != ENOENT)
      os::log(DDP_LOG_WARNING, "the old checkpoint \"%s\" cannot be removed: %s", path_in(folder, each.name).c_str(),
              std::strerror(errno));
  }
}

}  // namespace

std::string name_of_step(int64_t step) {
  const std::string digits = std::to_string(step);
  const std::string zeros(digits.size() < kDigits ? kDigits - digits.size() : 0, '0');
  return std::string(kBegin) + zeros + digits + std::string(kSuffix);
}

std::optional<int64_t> step_of_name(std::string_view name) {
  if (!name.starts_with(kBegin) || !name.ends_with(kSuffix) || name.size() < kBegin.size() + kSuffix.size() + kDigits)
    return std::nullopt;
  const std::string_view digits = name.substr(kBegin.size(), name.size() - kBegin.size() - kSuffix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc{} || end != digits.data() + digits.size() || step < 0 || name_of_step(step) != name)
    return std::nullopt;
  return step;
}

std::string path_in(const std::string& folder, const std::string& name) {
  return folder.ends_with('/') ? folder + name : folder + "/" + name;
}

std::vector<SavedStep> list_steps(const std::string& folder) {
  const os::Fd place = open_folder(folder);
  if (!place.is_open() && errno == ENOENT)
    throw Error(DDP_ERROR_IO,
                "the folder \"" + folder + "\" does not exist; check the path, or make it before the first save");
  const auto names = place.is_open() ? names_in(place.get()) : std::nullopt;
  if (!names) throw os::file_error("list the folder", folder, errno);
  return steps_among(*names);
}

void prune(const std::string& folder, int64_t step, int64_t keep) {
  const std::optional<Error> problem = try_to([&] {
    const os::Fd place = open_folder(folder);
    const auto names = place.is_open() ? names_in(place.get()) : std::nullopt;
    if (!names) throw os::file_error("list the folder", folder, errno);
    if (keep > 0) remove_old(place, folder, steps_among(*names), step, keep);
    sweep_temporaries(place.get(), is_temporary_of_step, folder);
  });
  if (problem) os::log(DDP_LOG_WARNING, "old checkpoints stay: %s", problem->text().c_str());
}

}  // namespace ddp::checkpoint
