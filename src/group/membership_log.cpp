// SPDX-License-Identifier: Apache-2.0
#include "group/membership_log.hpp"

#include <fcntl.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include "core/attempt.hpp"
#include "core/json_text.hpp"
#include "core/virtual_ranks.hpp"
#include "os/file.hpp"
#include "os/log.hpp"
#include "os/own_files.hpp"

namespace ddp::group {
namespace {

constexpr std::string_view kGeneration = "\"generation\":";

std::string utc_now() {
  std::array<char, 32> text{};
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  (void)gmtime_r(&now, &parts);
  (void)std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

/// Of the last line; 0 without lines.
int64_t last_generation(int fd, int64_t size, const std::string& path) {
  std::string end(static_cast<size_t>(std::min<int64_t>(size, 1 << 20)), '\0');
  end.resize(static_cast<size_t>(
      os::read_at(fd, size - static_cast<int64_t>(end.size()), end.data(), static_cast<int64_t>(end.size()), path)));
  const size_t at = end.rfind(kGeneration);
  if (at == std::string::npos) return 0;
  return std::clamp<int64_t>(std::strtoll(end.c_str() + at + kGeneration.size(), nullptr, 10), 0, INT64_MAX - 1);
}

/// The name is as durable as the line.
void sync_folder_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const os::Fd fd = os::open_file(AT_FDCWD, folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (fd.is_open()) (void)os::file_table().sync(fd.get());
}

void append(const std::string& path, const bootstrap::Control& control, const ddp_group_options& options,
            Formation formation) {
  const os::Fd fd = os::open_regular_file(path, O_RDWR | O_CREAT | O_APPEND, 0666);
  struct stat status {};
  if (!fd.is_open() || os::file_table().status(fd.get(), &status) != 0) throw os::file_error("open", path, errno);
  const bool begins = formation.event == Formation::kCreated,
             goes_on = formation.event == Formation::kRecovered || formation.event == Formation::kWentBack;
  if (!begins && status.st_size > 0) {
    const int64_t last = last_generation(fd.get(), status.st_size, path);
    formation.generation = std::max(formation.generation, goes_on ? last + 1 : last);
  }
  const std::string line = membership_line(control, options, formation, utc_now());
  os::write_all(fd.get(), line.data(), static_cast<int64_t>(line.size()), path);
  os::sync_file(fd.get(), path);
  if (status.st_size == 0) sync_folder_of(path);
}

}  // namespace

std::string membership_line(const bootstrap::Control& control, const ddp_group_options& options, const Formation& formation,
                            std::string_view time) {
  const int32_t parts = options.virtual_ranks == 0 ? control.size() : options.virtual_ranks;
  std::string line =
      "{\"event\":" + json_text(formation.event) + ",\"time\":" + json_text(time) + "," + std::string(kGeneration) +
      std::to_string(formation.generation) + ",\"step\":" + (formation.step < 0 ? "null" : std::to_string(formation.step)) +
      ",\"parts\":" + std::to_string(parts) +
      ",\"sum_order\":" + (options.sum_order == DDP_SUM_ORDER_BY_HOST ? "\"host\"" : "\"rank\"") + ",\"ranks\":[";
  for (int32_t rank = 0; rank < control.size(); ++rank) {
    const bootstrap::Member& member = control.member(rank);
    const VirtualRanks mine = VirtualRanks::of(options, rank, control.size());
    line += std::string(rank > 0 ? "," : "") + "{\"rank\":" + std::to_string(rank) + ",\"id\":" + std::to_string(member.id) +
            ",\"host\":" + json_text(member.host) + ",\"pid\":" + std::to_string(member.pid) +
            ",\"first_part\":" + std::to_string(mine.first) + ",\"part_count\":" + std::to_string(mine.count) + "}";
  }
  return line + "]}\n";
}

void log_membership(const bootstrap::Control& control, const ddp_group_options& options, Formation formation) {
  const char* const path = secure_getenv("DDP_MEMBERSHIP_LOG");
  if (control.rank() != 0 || path == nullptr || *path == '\0') return;
  if (control.member(0).world_rank >= 0) return;  // a sub-group
  const std::optional<Error> problem = try_to([&] { append(path, control, options, formation); });
  if (problem) os::log_of(*problem, DDP_LOG_WARNING, "the membership of the group is not logged: %s", problem->what());
}

}  // namespace ddp::group
