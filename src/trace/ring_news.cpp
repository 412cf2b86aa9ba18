// SPDX-License-Identifier: Apache-2.0
#include "trace/ring_news.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "core/attempt.hpp"
#include "os/file.hpp"

namespace ddp::trace {
namespace {

constexpr auto kSlotBytes = static_cast<int64_t>(sizeof(Slot));
constexpr uint64_t kAgain = 1024;  // events behind one that its writer has left out, which are taken once more
constexpr int64_t kMostBytes = kSlotsAt + kMostEvents * kSlotBytes;

std::string read_piece(const os::Fd& file, int64_t offset, int64_t bytes, const std::string& path) {
  std::string text(static_cast<size_t>(bytes), '\0');
  text.resize(static_cast<size_t>(os::read_at(file.get(), offset, text.data(), bytes, path)));
  return text;
}

/// How many events of these slots are whole; the first one is the n-th.
uint64_t whole_ones(std::string_view slots, uint64_t n) {
  uint64_t whole = 0;
  for (; (whole + 1) * sizeof(Slot) <= slots.size(); ++whole) {
    uint64_t turn = 0;
    std::memcpy(&turn, slots.data() + whole * sizeof(Slot), sizeof turn);
    if (turn < 2 * (n + whole) + 2) break;
  }
  return whole;
}

}  // namespace

std::vector<Piece> RingNews::take() {
  std::vector<Piece> pieces;
  for (const std::string& path : ring_files(folder_)) static_cast<void>(try_to([&] { take_of(path, pieces); }));
  return pieces;
}

// The head last: it never promises more than is there.
void RingNews::take_of(const std::string& path, std::vector<Piece>& pieces) {
  const os::Fd file = os::open_file(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
  if (!file.is_open()) return;
  std::string head_bytes = read_piece(file, 0, sizeof(RingHead), path);
  RingHead head;
  if (head_bytes.size() != sizeof head) return;
  std::memcpy(static_cast<void*>(&head), head_bytes.data(), sizeof head);
  if (!is_head(head)) return;
  Seen& seen = seen_[path];
  const std::string name = std::filesystem::path(path).filename().string();
  if (!seen.is_known) pieces.push_back({name, kSlotsAt - 1, std::string(1, '\0')});  // it is long enough
  const auto capacity = static_cast<uint64_t>(head.capacity);
  uint64_t at = std::max(seen.events, head.head - std::min(head.head, capacity));
  bool all_whole = true;
  while (at < head.head) {
    const uint64_t slot = at % capacity;
    const uint64_t count = std::min({head.head - at, capacity - slot, static_cast<uint64_t>(kPieceBytes / kSlotBytes)});
    const int64_t offset = kSlotsAt + static_cast<int64_t>(slot) * kSlotBytes;
    Piece piece{name, offset, read_piece(file, offset, static_cast<int64_t>(count) * kSlotBytes, path)};
    const uint64_t whole = whole_ones(piece.bytes, at);
    if (all_whole) seen.events = at + whole;
    all_whole = all_whole && whole == count;
    at += count;
    pieces.push_back(std::move(piece));
  }
  seen.events = std::max(seen.events, head.head - std::min(head.head, kAgain));
  for (int64_t from = seen.name_bytes; from < head.name_bytes; from += kPieceBytes) {
    const auto offset = static_cast<int64_t>(sizeof head) + from;
    pieces.push_back({name, offset, read_piece(file, offset, std::min(kPieceBytes, head.name_bytes - from), path)});
  }
  if (!seen.is_known || head.head != seen.head || head.name_bytes != seen.name_bytes || head.owner.ended != 0)
    pieces.push_back({name, 0, std::move(head_bytes)});
  seen.is_known = true;
  seen.head = head.head;
  seen.name_bytes = head.name_bytes;
}

bool put_piece(const std::string& folder, const Piece& piece) noexcept {
  bool is_put = false;
  const std::optional<Error> failed = try_to([&] {
    const auto bytes = static_cast<int64_t>(piece.bytes.size());
    if (!piece.file.ends_with(".ring") || piece.file.find('/') != std::string::npos || piece.offset < 0 ||
        bytes > kPieceBytes || piece.offset > kMostBytes - bytes)
      return;
    const std::string path = folder + "/" + piece.file;
    const os::Fd file = os::open_file(AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    is_put = file.is_open() && ::pwrite(file.get(), piece.bytes.data(), piece.bytes.size(), piece.offset) == bytes;
  });
  return is_put && !failed;
}

}  // namespace ddp::trace
