// SPDX-License-Identifier: Apache-2.0
#include "parts/step/guarded_values.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "os/log.hpp"

namespace ddp::parts {
namespace {

struct Pages {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

/// Those that the array fills.
Pages pages_of(const Tensor& array) noexcept {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(array.data);
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + static_cast<uintptr_t>(array.bytes())) / page * page;
  if (last <= first) return {};
  return {array.data + (first - begin), last - first};
}

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) noexcept {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

bool GuardedValues::are_wanted() noexcept {
  const char* const set = secure_getenv("DDP_GUARD_VALUES");
  return set != nullptr && std::strcmp(set, "1") == 0;
}

GuardedValues::GuardedValues(const Parameters& table, const Plan& plan)
    : table_(table), pieces_(table.parameters().size()), closed_(table.parameters().size()) {
  constexpr size_t kLine = 64;
  const auto room = [&](const PlannedBucket& bucket, const PlannedPiece& piece) {
    const size_t bytes = static_cast<size_t>(piece.count * dtype_size(bucket.dtype));
    return (bytes + kLine - 1) / kLine * kLine;
  };
  size_t needed = 0;
  for (const PlannedBucket& bucket : plan)
    for (const PlannedPiece& piece : bucket.pieces) needed += room(bucket, piece);
  memory_ = os::LargeArray(needed + kLine, "values that are not to be read yet");
  std::byte* next = memory_.data();
  for (size_t b = 0; b < plan.size(); ++b)
    for (size_t k = 0; k < plan[b].pieces.size(); ++k) {
      const PlannedPiece& piece = plan[b].pieces[k];
      const Tensor values = flat_part(table.parameter(piece.parameter).value, piece.first, piece.count);
      pieces_[static_cast<size_t>(piece.parameter)].push_back(
          Piece{b, k, values.data, next, static_cast<size_t>(values.bytes())});
      next += room(plan[b], piece);
    }
}

void GuardedValues::divert(size_t bucket, collective::ExchangeSpec& gather) const noexcept {
  for (const std::vector<Piece>& pieces : pieces_)
    for (const Piece& piece : pieces) {
      if (piece.bucket != bucket) continue;
      gather.pieces[piece.place].data = piece.copy;
      gather.pieces[piece.place].owned = false;
    }
}

void GuardedValues::close(const std::function<bool(int32_t parameter)>& given) {
  for (size_t index = 0; index < pieces_.size(); ++index) {
    if (pieces_[index].empty() || !given(static_cast<int32_t>(index))) continue;
    for (const Piece& piece : pieces_[index]) copy_bytes(piece.copy, piece.value, piece.bytes);
    closed_[index] = true;
    const Pages pages = pages_of(table_.parameter(static_cast<int32_t>(index)).value);
    if (pages.bytes == 0 || mprotect(pages.data, pages.bytes, PROT_NONE) == 0 || complained_) continue;
    complained_ = true;
    os::log(DDP_LOG_WARNING, "DDP_GUARD_VALUES: values are not guarded, because the system refuses it: %s",
            std::strerror(errno));
  }
}

void GuardedValues::unlock(int32_t index) noexcept {
  const Pages pages = pages_of(table_.parameter(index).value);
  if (pages.bytes > 0) static_cast<void>(mprotect(pages.data, pages.bytes, PROT_READ | PROT_WRITE));
  closed_[static_cast<size_t>(index)] = false;
}

void GuardedValues::open(int32_t index) noexcept {
  if (!closed_[static_cast<size_t>(index)]) return;
  unlock(index);
  for (const Piece& piece : pieces_[static_cast<size_t>(index)]) copy_bytes(piece.value, piece.copy, piece.bytes);
}

void GuardedValues::open_all() noexcept {
  for (size_t index = 0; index < pieces_.size(); ++index) open(static_cast<int32_t>(index));
}

void GuardedValues::give_up() noexcept {
  for (size_t index = 0; index < pieces_.size(); ++index)
    if (closed_[index]) unlock(static_cast<int32_t>(index));
}

}  // namespace ddp::parts
