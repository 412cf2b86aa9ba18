// SPDX-License-Identifier: Apache-2.0
#include "trace/live.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <new>

#include "core/attempt.hpp"
#include "os/clock.hpp"
#include "os/file.hpp"

namespace ddp::trace {
namespace {

constexpr int32_t kLeastRanks = 64;  // a group may grow
constexpr int32_t kMostRanks = 1 << 20;

/// What an older library has not written stays empty.
void read_tail(int fd, const std::string& path, LiveNumbers& found) {
  LiveTail tail;
  if (found.made.most_ranks < 0 || found.made.most_ranks > kMostRanks) return;
  const int64_t at = live_tail_at(found.made.most_ranks);
  if (os::read_at(fd, at, static_cast<void*>(&tail), sizeof tail, path) != int64_t{sizeof tail}) return;
  for (ProgramNumber& number : tail.numbers) {
    if (number.state != ProgramNumber::kNamed) continue;
    number.name[sizeof number.name - 1] = '\0';
    found.program.push_back(number);
  }
  tail.group[sizeof tail.group - 1] = '\0';
  found.group = tail.group;
}

}  // namespace

std::string live_path(const std::string& folder, int32_t number) {
  return folder + "/rank-" + std::to_string(number) + ".live";
}

std::optional<LiveNumbers> read_live(const std::string& path) {
  std::optional<LiveNumbers> numbers;
  static_cast<void>(try_to([&] {
    const os::Fd fd = os::open_file(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    LiveNumbers found;
    if (!fd.is_open()) return;
    LivePage& page = found;
    if (os::read_at(fd.get(), 0, static_cast<void*>(&page), sizeof page, path) != int64_t{sizeof page}) return;
    if (page.made.magic != LivePage::kMagic || page.made.version != LivePage::kVersion ||
        page.made.head_bytes != sizeof page)
      return;
    page.made.host[sizeof page.made.host - 1] = '\0';
    found.waited_ns.resize(static_cast<size_t>(std::clamp(std::min(page.place.size, page.made.most_ranks), 0, kMostRanks)));
    const auto bytes = static_cast<int64_t>(found.waited_ns.size() * sizeof(int64_t));
    if (os::read_at(fd.get(), sizeof page, found.waited_ns.data(), bytes, path) != bytes) return;
    read_tail(fd.get(), path, found);
    numbers = std::move(found);
  }));
  return numbers;
}

std::unique_ptr<LiveFile> LiveFile::make(const std::string& path, const std::string& host, int32_t size) {
  const int32_t most = std::max(2 * size, kLeastRanks);
  MappedFile file = MappedFile::make(path, live_tail_at(most) + int64_t{sizeof(LiveTail)});
  LivePage* const page = new (file.data()) LivePage();
  new (file.data() + live_tail_at(most)) LiveTail();
  LivePage::Made& made = page->made;
  made.version = LivePage::kVersion;
  made.head_bytes = sizeof(LivePage);
  made.pid = getpid();
  made.most_ranks = most;
  made.at_ns = os::now_ns();
  made.realtime_ns = os::realtime_ns();
  host.copy(made.host, sizeof made.host - 1);
  made.magic = LivePage::kMagic;
  page->place.held = 1;
  file.show();
  return std::unique_ptr<LiveFile>(new LiveFile(std::move(file)));
}

/// A page of another process was left by a rank that has died, in whose place this one was started.
std::unique_ptr<LiveFile> LiveFile::claim(const std::string& folder, int32_t number, const std::string& host, int32_t size) {
  const std::string path = live_path(folder, number);
  const std::optional<LiveNumbers> there = read_live(path);
  if (!there || there->made.pid != getpid()) return make(path, host, size);
  std::unique_ptr<LiveFile> old(new LiveFile(MappedFile::open(path, sizeof(LivePage))));
  int32_t free = 0;
  if (std::atomic_ref<int32_t>(old->page().place.held).compare_exchange_strong(free, 1)) return old;
  old->file_ = MappedFile();  // another group's
  return nullptr;
}

LiveFile::~LiveFile() {
  if (file_.data() == nullptr || !is_ours()) return;
  put(page().place.in_call, 0);
  put(page().place.held, 0);
}

void LiveFile::add_wait(int32_t rank, int64_t ns) noexcept {
  if (rank < 0 || rank >= page().made.most_ranks) return;
  auto* const first = reinterpret_cast<int64_t*>(file_.data() + sizeof(LivePage));
  add(first[rank], ns);
}

void LiveFile::set_group(const std::string& name) noexcept {
  auto* const tail = reinterpret_cast<LiveTail*>(file_.data() + live_tail_at(page().made.most_ranks));
  name.copy(tail->group, sizeof tail->group - 1);
}

}  // namespace ddp::trace
