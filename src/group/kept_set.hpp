// SPDX-License-Identifier: Apache-2.0
// The buffers of a group's peer checkpoints while its ranks and tensors stay the same: two of this rank's own, in memory
// that the other ranks of the host have mapped, and copies of those of ranks of other hosts, if there are any.
//
// A generation is written into the older of the two buffers: its number is cleared first and set after the last byte. So at
// each moment in which this rank may die the other ranks find one generation whole at least. Where ranks do not share
// memory, each buffer also goes to a rank of the next host (exchange/keeping.hpp), which holds two as well.
// Threads: as the group's collectives. Tested by capi/keep_test.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/gpu/transfer.hpp"
#include "exchange/keeping.hpp"
#include "group/generation.hpp"
#include "group/group.hpp"

namespace ddp::group {

class KeptSet {
 public:
  /// What a rank asks for when a set is made.
  struct Wish {
    GenerationName newest{};  // the greatest set and number of which it knows
    int64_t note_bytes = 0;   // room for the note, in the part of rank 0
    uint64_t checked = 0;     // equal on all ranks, else MISMATCH
  };
  /// Its set number and its first generation are greater than what any rank knows. Collective; throws the same on all ranks:
  /// OUT_OF_MEMORY, MISMATCH.
  [[nodiscard]] static std::unique_ptr<KeptSet> make(Group& group, KeptTable table, const Wish& wish);

  [[nodiscard]] const KeptTable& table() const noexcept { return table_; }
  /// Models were destroyed, so those that were kept have other places.
  void set_places(std::vector<int32_t> followers) noexcept { table_.followers = std::move(followers); }
  [[nodiscard]] const GenerationName& newest() const noexcept { return newest_; }
  [[nodiscard]] int64_t note_room() const noexcept { return note_room_; }

  /// The next generation, into the older buffer: allowed once all ranks have the one before. `tensors` as in the table.
  /// Local.
  void write(const std::vector<KeptTensor>& tensors, std::string_view note, gpu::Transfer& transfer);
  /// What was written, to the ranks that keep a copy. Collective.
  void send(Group& group);

  /// Parts that this rank can give.
  [[nodiscard]] std::vector<HeldPart> held() const;
  /// The part of a rank of the set; NULL: it is not here.
  [[nodiscard]] const std::byte* find(int32_t rank, int64_t number) const noexcept;
  /// Of part 0.
  [[nodiscard]] std::string_view note(int64_t number) const noexcept;
  /// Bytes of all buffers that this rank holds.
  [[nodiscard]] int64_t bytes() const noexcept;
  /// Does a part outlive this rank?
  [[nodiscard]] bool is_guarded() const noexcept;

 private:
  struct Head;
  using Buffer = std::shared_ptr<std::byte>;
  using Buffers = std::array<Buffer, 2>;
  /// A copy of the part of a rank of another host.
  struct Copy {
    int32_t rank = -1;
    Buffers buffers;
    std::array<int64_t, 2> numbers{};  // 0: torn
  };

  KeptSet(Group& group, KeptTable table, int64_t note_room);
  void allocate(Group& group);
  [[nodiscard]] std::string describe(Group& group, const Wish& wish) const;
  void meet(Group& group, const std::vector<std::string>& told);
  void allocate_copies(const std::vector<int64_t>& bytes);
  [[nodiscard]] const std::byte* whole(int32_t rank, size_t slot, int64_t number) const noexcept;
  [[nodiscard]] int64_t number_of(int32_t rank, size_t slot) const noexcept;
  [[nodiscard]] size_t slot() const noexcept { return static_cast<size_t>(newest_.number % 2); }

  KeptTable table_;
  const std::vector<KeptPiece> pieces_;  // of this rank
  const int32_t rank_;
  const int64_t note_room_;
  GenerationName newest_;       // the last that was written, or is being written
  std::vector<int64_t> bytes_;  // of a buffer, by rank
  std::vector<Buffers> ranks_;  // by rank: the own ones, and those in reach
  std::vector<collective::KeepRound> rounds_;
  std::vector<Copy> copies_;  // by round
};

}  // namespace ddp::group
