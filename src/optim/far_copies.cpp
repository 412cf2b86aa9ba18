// SPDX-License-Identifier: Apache-2.0
#include "optim/far_copies.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ddp::optim {
namespace {

constexpr uintptr_t kLine = 64;

std::byte* aligned(std::vector<std::byte>& room) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(room.data());
  return room.data() + (kLine - address % kLine) % kLine;
}

/// What it was made for.
int64_t bytes_in(const std::vector<std::byte>& room) noexcept {
  return room.empty() ? 0 : static_cast<int64_t>(room.size() - kLine);
}

}  // namespace

void copy_values(const Parameters& table, const Ownership::Slice& spans, std::vector<std::byte>& to) {
  const auto part_of = [&](const OwnedSpan& span) {
    return flat_part(table.parameter(span.piece).value, span.first, span.count);
  };
  int64_t bytes = 0;
  for (const OwnedSpan& span : spans) bytes += part_of(span).bytes();
  to.resize(static_cast<size_t>(bytes));
  std::byte* next = to.data();
  for (const OwnedSpan& span : spans) {
    const Tensor part = part_of(span);
    if (part.bytes() > 0) std::memcpy(next, part.data, static_cast<size_t>(part.bytes()));
    next += part.bytes();
  }
}

FarCopies::FarCopies(const PartLayout& layout, const Ownership& ownership, std::vector<collective::KeepRound> rounds)
    : table_(layout.table), has_masters_(layout.has_masters), rounds_(std::move(rounds)), lent_(rounds_.size()) {
  for (const collective::KeepRound& round : rounds_)
    kept_.push_back(round.received < 0 ? nullptr : room_for(layout, ownership, round.received));
}

std::unique_ptr<FarCopies::Kept> FarCopies::room_for(const PartLayout& layout, const Ownership& ownership,
                                                     int32_t from) const {
  auto kept = std::make_unique<Kept>();
  kept->from = from;
  kept->spans = ownership.slice(from);
  for (Copy& copy : kept->copies) {
    copy_values(table_, kept->spans, copy.values);
    copy.slice = view(layout, from, ownership, false, [&](PartArrays::Kind kind, int64_t size) {
      copy.arrays[kind].resize(static_cast<size_t>(size) + kLine);
      return std::shared_ptr<std::byte>(std::shared_ptr<std::byte>(), aligned(copy.arrays[kind]));
    });
  }
  return kept;
}

void FarCopies::exchange(collective::Outliving& others, int64_t version) {
  for (size_t round = 0; round < rounds_.size(); ++round) {
    Copy nothing;
    Copy& copy = kept_[round] == nullptr ? nothing : kept_[round]->copies[static_cast<size_t>(version % 2)];
    copy.version = -1;
    for (const PartArrays::Kind kind : {PartArrays::kStore, PartArrays::kMasters}) {
      if (kind == PartArrays::kMasters && !has_masters_) continue;
      const Lent& lent = lent_[round][kind];
      std::vector<std::byte>& room = copy.arrays[kind];
      others.keep(rounds_[round], flat_tensor(lent.memory.get(), DDP_U8, lent.bytes),
                  flat_tensor(room.empty() ? nullptr : aligned(room), DDP_U8, bytes_in(room)));
    }
    if (kept_[round] == nullptr) continue;
    copy_values(table_, kept_[round]->spans, copy.values);
    copy.version = version;
  }
}

Versions FarCopies::versions_of(int32_t rank) const noexcept {
  Versions versions;
  for (const std::unique_ptr<Kept>& kept : kept_) {
    if (kept == nullptr || kept->from != rank) continue;
    for (const Copy& copy : kept->copies) {
      if (copy.version < 0) continue;
      const bool is_any = versions.last >= versions.first;
      if (is_any && copy.version == versions.last + 1)
        versions.last = copy.version;
      else if (is_any && copy.version == versions.first - 1)
        versions.first = copy.version;
      else
        versions = {copy.version, copy.version};
    }
  }
  return versions;
}

const FarCopies::Copy* FarCopies::find(int32_t rank, int64_t version) const noexcept {
  for (const std::unique_ptr<Kept>& kept : kept_) {
    if (kept == nullptr || kept->from != rank) continue;
    for (const Copy& copy : kept->copies)
      if (copy.version == version && version >= 0) return &copy;
  }
  return nullptr;
}

void FarCopies::forget() noexcept {
  for (const std::unique_ptr<Kept>& kept : kept_)
    if (kept != nullptr)
      for (Copy& copy : kept->copies) copy.version = -1;
}

int64_t FarCopies::bytes() const noexcept {
  size_t bytes = 0;
  for (const std::unique_ptr<Kept>& kept : kept_) {
    if (kept == nullptr) continue;
    for (const Copy& copy : kept->copies) {
      bytes += copy.values.size();
      for (const std::vector<std::byte>& array : copy.arrays) bytes += array.size();
    }
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace ddp::optim
