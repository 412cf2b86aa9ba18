// SPDX-License-Identifier: Apache-2.0
#include "hosts/bucket.hpp"

#include <algorithm>
#include <cstring>

#include "control/consensus.hpp"
#include "shm/share.hpp"

namespace ddp::hierarchy {
namespace {

constexpr int64_t kAlignment = 64;
constexpr size_t kOffsetsAtOnce = static_cast<size_t>(shm::kInlineBytes) / sizeof(int64_t);

int64_t rounded(int64_t bytes) noexcept { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Bucket::Bucket(Host& host, const collective::ExchangeSpec& spec, os::Deadline deadline)
    : host_(host),
      phases_{spec.collects, spec.gives},
      own_(spec.ownership == nullptr ? nullptr : &spec.ownership->slice(host.group_control().rank())),
      work_(spec.work),
      stamp_(collective::stamp_of(spec.kind(), spec)),
      pieces_(spec.pieces.size()) {
  header_.used.resize(spec.used_words());
  const cpu::ReduceRule rule = spec.collects ? spec.rule : cpu::ReduceRule{spec.rule.dtype, DDP_SUM, 1};
  const std::vector<int64_t> offsets = place_pieces(spec, deadline);
  mine_ =
      std::make_unique<HostReduceInput>(rule, meet_pieces(spec, offsets), host.layout().map, host.layout().local_ranks());
  if (spec.ownership == nullptr) {
    crossing_ = host.all_reduce(stamp_.count, rule, spec.used_words());
  } else {
    crossing_ =
        host.exchange(socket::flat_slices(*spec.ownership, spec.pieces), stamp_.count, rule, spec.used_words(), phases_);
    mine_->set_owned(crossing_.owned, !spec.gives);
  }
  if (!host.layout().owns_rail()) return;
  const shm::Share share = shm::share_of(stamp_.count, dtype_size(rule.dtype), host.layout().local, host.layout().rails);
  mine_->populate(socket::Span{share.begin, share.end - share.begin});
}

// The offset of each piece in the own region; private ones get a place.
std::vector<int64_t> Bucket::place_pieces(const collective::BucketSpec& spec, os::Deadline deadline) {
  shm::Region& region = host_.region();
  std::vector<int64_t> offsets;
  int64_t needed = 0;
  for (const collective::BucketSpec::Piece& piece : spec.pieces) {
    const int64_t bytes = piece.count * dtype_size(spec.rule.dtype);
    offsets.push_back(piece.data == nullptr ? shm::kNotInReach : region.whole_place_of(piece.data, bytes));
    if (offsets.back() != shm::kNotInReach) {
      if (auto hold = region.hold(piece.data, bytes)) holds_.push_back(std::move(hold));
      continue;
    }
    private_.push_back(Private{offsets.size() - 1, piece.data, nullptr, bytes});
    needed += rounded(bytes);
  }
  std::byte* next = nullptr;
  bootstrap::all_or_none(host_.group_control(), "bucket memory", deadline, [&] { next = host_.place(needed); });
  for (Private& piece : private_) {
    piece.copy = next;
    offsets[piece.piece] = next == nullptr ? 0 : region.offset_of(next, piece.bytes);
    if (next != nullptr) next += rounded(piece.bytes);
  }
  return offsets;
}

// The ranks of the host tell each other where their pieces are, as many at a time as an announcement has room for.
HostArray Bucket::meet_pieces(const collective::BucketSpec& spec, const std::vector<int64_t>& offsets) {
  shm::Engine& engine = host_.engine();
  HostArray array;
  array.ranks = engine.size();
  int64_t first = 0;
  for (const collective::BucketSpec::Piece& piece : spec.pieces) {
    array.pieces.push_back(HostArray::Piece{first, piece.count});
    first += piece.count;
  }
  collective::Stamp stamp;
  stamp.kind = collective::Collective::kAllGather;
  stamp.dtype = DDP_I64;
  stamp.count = static_cast<int64_t>(pieces_);
  host_.or_break([&] {
    for (size_t done = 0; done < pieces_; done += kOffsetsAtOnce) {
      const size_t number = std::min(kOffsetsAtOnce, pieces_ - done);
      const uint64_t sequence = engine.meet(
          stamp, 0, [&](shm::Slot& slot) { std::memcpy(slot.payload, offsets.data() + done, number * sizeof(int64_t)); });
      for (size_t piece = 0; piece < number; ++piece)
        for (int32_t rank = 0; rank < array.ranks; ++rank) {
          int64_t offset = 0;
          std::memcpy(&offset, engine.slot(rank, sequence).payload + piece * sizeof offset, sizeof offset);
          array.bases.push_back(engine.mesh().base(rank) + offset);
        }
      engine.advance(shm::Counter::kFinished, sequence);
    }
  });
  return array;
}

void Bucket::start(const collective::BucketHeader& mine) {
  header_.incomplete = mine.incomplete;
  header_.participation = mine.participation;
  std::copy(mine.used.begin(), mine.used.end(), header_.used.begin());
}

bool Bucket::try_announce() {
  return host_.engine().try_announce(sequence_, [this](shm::Slot& slot) {
    slot.stamp = stamp_;
    slot.incomplete = header_.incomplete ? 1 : 0;
    slot.participation = header_.participation;
    std::copy(header_.used.begin(), header_.used.end(), slot.used);
  });
}

void Bucket::combine_headers() {
  for (int32_t rank = 0; rank < host_.engine().size(); ++rank) {
    const shm::Slot& slot = host_.engine().slot(rank, sequence_);
    header_.incomplete = header_.incomplete || slot.incomplete != 0;
    mine_->participations()[static_cast<size_t>(rank)] = slot.participation;
    for (size_t word = 0; word < header_.used.size(); ++word) header_.used[word] |= slot.used[word];
  }
}

/// copy(first byte, bytes) for what this rank owns of a piece.
template <class Copy>
void Bucket::each_own(const Private& piece, const Copy& copy) const {
  const int64_t size = dtype_size(stamp_.dtype);
  for (const OwnedSpan& span : *own_)
    if (static_cast<size_t>(span.piece) == piece.piece && span.count > 0) copy(span.first * size, span.count * size);
}

// A piece without an address has nothing to add. Of values only the own ones are sent.
void Bucket::copy_in() noexcept {
  for (const Private& piece : private_) {
    const auto copy = [&](int64_t at, int64_t bytes) {
      std::memcpy(piece.copy + at, piece.data + at, static_cast<size_t>(bytes));
    };
    if (piece.bytes == 0) continue;
    if (piece.data == nullptr)
      std::memset(piece.copy, 0, static_cast<size_t>(piece.bytes));
    else if (phases_.collect)
      copy(0, piece.bytes);
    else
      each_own(piece, copy);
  }
}

void Bucket::copy_out() noexcept {
  for (const Private& piece : private_) {
    const auto copy = [&](int64_t at, int64_t bytes) {
      std::memcpy(piece.data + at, piece.copy + at, static_cast<size_t>(bytes));
    };
    if (!is_used(piece.piece) || piece.data == nullptr || piece.bytes == 0) continue;
    if (phases_.give)
      copy(0, piece.bytes);
    else
      each_own(piece, copy);
  }
}

void Bucket::work_on_slice() noexcept {
  if (own_ == nullptr || !work_) return;
  for (const OwnedSpan& span : *own_)
    if (is_used(static_cast<size_t>(span.piece))) work_.on_block(span.piece, span.first, span.count);
}

collective::Progress Bucket::advance(int64_t) {
  throw make_error(DDP_ERROR_INTERNAL, "a bucket between hosts was polled; it is reduced by finish()");
}

// Of values the header is the same on all ranks, so a void one ends the exchange everywhere.
void Bucket::finish() {
  if (!phases_.collect) {
    if (header_.is_void()) return;
    work_on_slice();
    mine_->learn(header_);
  }
  host_.or_break([&] {
    sequence_ = host_.engine().next_sequence();
    copy_in();
    if (!try_announce()) host_.engine().wait([&] { return try_announce(); }, sequence_);
    host_.gather_here(sequence_);
    combine_headers();
    host_.run(sequence_, stamp_, *mine_, crossing_, header_);
  });
  if (header_.is_void()) return;
  copy_out();
  if (phases_.collect) work_on_slice();
}

bool Bucket::set_address(int32_t piece, std::byte* data) noexcept {
  for (Private& own : private_) {
    if (own.piece != static_cast<size_t>(piece)) continue;
    own.data = data;
    return true;
  }
  return false;
}

std::string Bucket::describe() const {
  if (private_.empty()) return host_.describe() + ", in place";
  return host_.describe() + ", " + std::to_string(private_.size()) + " of " + std::to_string(pieces_) + " copied";
}

}  // namespace ddp::hierarchy
