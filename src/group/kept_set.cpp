// SPDX-License-Identifier: Apache-2.0
#include "group/kept_set.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "core/bytes.hpp"
#include "core/hash.hpp"
#include "exchange/arena.hpp"
#include "exchange/transport.hpp"
#include "group/channels.hpp"
#include "group/consensus.hpp"

namespace ddp::group {

/// At the beginning of a buffer. The stores of a killed process remain, in the order of the program; so only the compiler
/// must keep that order.
struct KeptSet::Head {
  int64_t number = 0;  // of the generation; 0: torn
  int64_t note_bytes = 0;

  static constexpr int64_t kBytes = 64;
  [[nodiscard]] static Head& of(std::byte* buffer) noexcept { return *reinterpret_cast<Head*>(buffer); }
  void mark(int64_t value) noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    std::atomic_ref<int64_t>(number).store(value, std::memory_order_seq_cst);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  [[nodiscard]] int64_t get() noexcept { return std::atomic_ref<int64_t>(number).load(std::memory_order_acquire); }
};

KeptSet::KeptSet(Group& group, KeptTable table, int64_t note_room)
    : table_(std::move(table)),
      pieces_(pieces_of(table_.items, table_.ranks, group.rank())),
      rank_(group.rank()),
      note_room_(note_room),
      bytes_(static_cast<size_t>(table_.ranks)),
      ranks_(static_cast<size_t>(table_.ranks)) {}

void KeptSet::allocate(Group& group) {
  const int64_t bytes = Head::kBytes + end_of(pieces_) + (rank_ == 0 ? note_room_ : 0);
  bytes_[static_cast<size_t>(rank_)] = bytes;
  for (Buffer& buffer : ranks_[static_cast<size_t>(rank_)]) {
    const std::shared_ptr<collective::Arena> arena = group.channels().first().arena();
    buffer = Buffer(static_cast<std::byte*>(arena->alloc(bytes)),
                    [arena](std::byte* data) { static_cast<void>(arena->free(data)); });
  }
}

std::string KeptSet::describe(Group& group, const Wish& wish) const {
  ByteWriter writer;
  const std::string table = write_table(table_);
  writer.number(wish.newest.set).number(wish.newest.number);
  writer.number(content_hash(table.data(), table.size())).number(wish.checked);
  const auto own = static_cast<size_t>(group.rank());
  writer.number(bytes_[own]);
  for (const Buffer& buffer : ranks_[own]) writer.number(group.channels().own().place_of(buffer.get(), bytes_[own]));
  return std::move(writer).bytes();
}

/// `told` by rank.
void KeptSet::meet(Group& group, const std::vector<std::string>& told) {
  const collective::Transport& transport = group.channels().own();
  uint64_t table = 0, checked = 0;
  for (int32_t rank = 0; rank < group.size(); ++rank) {
    ByteReader reader(told[static_cast<size_t>(rank)]);
    newest_.set = std::max(newest_.set, reader.number<int64_t>());
    newest_.number = std::max(newest_.number, reader.number<int64_t>());
    const auto theirs = reader.number<uint64_t>(), hash = reader.number<uint64_t>();
    if (rank == 0) table = theirs, checked = hash;
    if (theirs != table || hash != checked)
      throw make_error(DDP_ERROR_MISMATCH, "%s has other tensors to keep than rank 0, or its state has not arrived alike",
                       group.name_of(rank).c_str())
          .about(rank)
          .as_agreed();
    bytes_[static_cast<size_t>(rank)] = reader.number<int64_t>();
    for (Buffer& buffer : ranks_[static_cast<size_t>(rank)])
      if (const auto place = reader.number<int64_t>(); rank != rank_) buffer = transport.reach(rank, place);
  }
  ++newest_.set;
  rounds_ = transport.keep_rounds();
}

/// Bytes of a buffer, by rank.
void KeptSet::allocate_copies(const std::vector<int64_t>& bytes) {
  for (const collective::KeepRound& round : rounds_) {
    Copy& copy = copies_.emplace_back();
    copy.rank = round.received;
    if (round.received < 0) continue;
    for (Buffer& buffer : copy.buffers)
      buffer = Buffer(new std::byte[static_cast<size_t>(bytes[static_cast<size_t>(round.received)])],
                      std::default_delete<std::byte[]>());
  }
  for (const collective::KeepRound& round : rounds_)
    if (round.sent >= 0 && ranks_[static_cast<size_t>(round.sent)][0] == nullptr)
      throw make_error(DDP_ERROR_NOT_SUPPORTED,
                       "ddp_state_keep: the memory of rank %d, which this rank sends to another host, is not mapped here",
                       round.sent);
}

std::unique_ptr<KeptSet> KeptSet::make(Group& group, KeptTable table, const Wish& wish) {
  std::unique_ptr<KeptSet> made;
  const std::vector<std::string> told = all_or_none(group, "kept state", [&] {
    made.reset(new KeptSet(group, std::move(table), wish.note_bytes));
    made->allocate(group);
    return made->describe(group, wish);
  });
  made->meet(group, told);
  all_or_none(group, "memory of kept state", [&] { made->allocate_copies(made->bytes_); });
  return made;
}

void KeptSet::write(const std::vector<KeptTensor>& tensors, std::string_view note, gpu::Transfer& transfer) {
  ++newest_.number;
  std::byte* const buffer = ranks_[static_cast<size_t>(rank_)][slot()].get();
  Head& head = Head::of(buffer);
  head.mark(0);
  for (const KeptPiece& piece : pieces_)
    transfer.read_to(tensors[piece.item].tensor, piece.held, piece.bytes, buffer + Head::kBytes + piece.at);
  if (rank_ == 0) {
    std::memcpy(buffer + Head::kBytes + end_of(pieces_), note.data(), note.size());
    head.note_bytes = static_cast<int64_t>(note.size());
  }
  head.mark(newest_.number);
}

void KeptSet::send(Group& group) {
  for (size_t k = 0; k < rounds_.size(); ++k) {
    const collective::KeepRound& round = rounds_[k];
    const auto whole_of = [&](int32_t rank, const Buffers& buffers) {
      return rank < 0 ? flat_tensor(nullptr, DDP_U8, 0)
                      : flat_tensor(buffers[slot()].get(), DDP_U8, bytes_[static_cast<size_t>(rank)]);
    };
    const Tensor sent = whole_of(round.sent, ranks_[static_cast<size_t>(std::max(round.sent, 0))]);
    Copy& copy = copies_[k];
    copy.numbers[slot()] = 0;
    or_break(group, Part::kExchange, [&] { group.channels().own().keep(round, sent, whole_of(copy.rank, copy.buffers)); });
    copy.numbers[slot()] = newest_.number;
  }
}

int64_t KeptSet::number_of(int32_t rank, size_t slot) const noexcept {
  const Buffer& buffer = ranks_[static_cast<size_t>(rank)][slot];
  const int64_t here = buffer == nullptr ? 0 : Head::of(buffer.get()).get();
  if (here != 0) return here;
  for (const Copy& copy : copies_)
    if (copy.rank == rank) return copy.numbers[slot];
  return 0;
}

const std::byte* KeptSet::whole(int32_t rank, size_t slot, int64_t number) const noexcept {
  const Buffer& buffer = ranks_[static_cast<size_t>(rank)][slot];
  if (buffer != nullptr && Head::of(buffer.get()).get() == number) return buffer.get();
  for (const Copy& copy : copies_)
    if (copy.rank == rank && copy.numbers[slot] == number) return copy.buffers[slot].get();
  return nullptr;
}

const std::byte* KeptSet::find(int32_t rank, int64_t number) const noexcept {
  const std::byte* const buffer = whole(rank, static_cast<size_t>(number % 2), number);
  return buffer == nullptr ? nullptr : buffer + Head::kBytes;
}

std::string_view KeptSet::note(int64_t number) const noexcept {
  const std::byte* const part = find(0, number);
  if (part == nullptr) return {};
  const int64_t data = end_of(pieces_of(table_.items, table_.ranks, 0));
  const auto bytes = Head::of(const_cast<std::byte*>(part - Head::kBytes)).note_bytes;
  return {reinterpret_cast<const char*>(part + data), static_cast<size_t>(bytes)};
}

std::vector<HeldPart> KeptSet::held() const {
  std::vector<HeldPart> parts;
  for (int32_t rank = 0; rank < table_.ranks; ++rank)
    for (const size_t slot : {size_t{0}, size_t{1}})
      if (const int64_t number = number_of(rank, slot); number != 0)
        parts.push_back({{newest_.set, number}, table_.ranks, rank, rank == rank_});
  return parts;
}

int64_t KeptSet::bytes() const noexcept {
  int64_t all = 2 * bytes_[static_cast<size_t>(rank_)];
  for (const Copy& copy : copies_)
    if (copy.rank >= 0) all += 2 * bytes_[static_cast<size_t>(copy.rank)];
  return all;
}

bool KeptSet::is_guarded() const noexcept {
  if (table_.ranks == 1 || !rounds_.empty()) return true;
  for (int32_t rank = 0; rank < table_.ranks; ++rank)
    if (rank != rank_ && ranks_[static_cast<size_t>(rank)][0] != nullptr) return true;
  return false;
}

}  // namespace ddp::group
