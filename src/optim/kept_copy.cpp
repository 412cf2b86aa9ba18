// SPDX-License-Identifier: Apache-2.0
#include "optim/kept_copy.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/attempt.hpp"
#include "core/bytes.hpp"
#include "exchange/outliving.hpp"
#include "exchange/transport.hpp"
#include "group/channels.hpp"
#include "group/consensus.hpp"
#include "optim/part_sender.hpp"
#include "os/log.hpp"

namespace ddp::optim {
namespace {

std::string write_ownership(const Ownership& ownership) {
  ByteWriter writer;
  writer.number(ownership.ranks());
  for (int32_t rank = 0; rank < ownership.ranks(); ++rank) {
    writer.number(static_cast<uint64_t>(ownership.slice(rank).size()));
    for (const OwnedSpan& span : ownership.slice(rank)) writer.number(span.piece).number(span.first).number(span.count);
  }
  return std::move(writer).bytes();
}

Ownership read_ownership(std::string_view bytes) {
  ByteReader reader(bytes);
  std::vector<Ownership::Slice> slices(static_cast<size_t>(reader.number<int32_t>()));
  for (Ownership::Slice& slice : slices)
    for (auto spans = reader.number<uint64_t>(); spans > 0; --spans) {
      OwnedSpan span;
      span.piece = reader.number<int32_t>();
      span.first = reader.number<int64_t>();
      span.count = reader.number<int64_t>();
      slice.push_back(span);
    }
  return Ownership::divided(std::move(slices));
}

/// As ranks tell them: place and bytes.
using AreaPlaces = std::array<std::pair<int64_t, int64_t>, PartArrays::kKinds>;

AreaPlaces read_areas(std::string_view areas) {
  AreaPlaces told;
  ByteReader reader(areas);
  for (auto& [place, bytes] : told) {
    place = reader.number<int64_t>();
    bytes = reader.number<int64_t>();
  }
  return told;
}

}  // namespace

struct KeptCopy::Hand {
  int64_t number = 1;
  int32_t rank = 0;
  Ownership ownership;
  std::vector<std::unique_ptr<PartArrays>> others;  // by rank; NULL: its own, and what is not in reach
  std::unique_ptr<FarCopies> far;                   // NULL: there are no ranks that could keep a copy
  int64_t version = 0;                              // if it is aside
  PartArrays own{0};                                // the same
  std::vector<std::byte> own_values;                // the same: parameters are sent before parts are dealt out
};

KeptCopy::KeptCopy(Of of) : of_(std::move(of)) {}
KeptCopy::~KeptCopy() = default;

void KeptCopy::place_arrays() {
  const auto memory_of = [this](PartArrays::Kind kind) -> StateMemory {
    return [this, kind](int64_t bytes) {
      const std::shared_ptr<collective::Arena> arena = of_.model.group().channels().first().arena();
      std::shared_ptr<std::byte> made(static_cast<std::byte*>(arena->alloc(bytes)),
                                      [arena](std::byte* data) { static_cast<void>(arena->free(data)); });
      areas_[kind] = Area{made, bytes};
      return made;
    };
  };
  // A rank of another host gets the arrays unchanged, so there is one of each.
  const bool two_sides = outliving() == nullptr || outliving()->keep_rounds().empty();
  of_.store.keep_two_sides(two_sides);
  of_.masters.keep_two_sides(two_sides);
  of_.store.lie_in(memory_of(PartArrays::kStore));
  of_.masters.lie_in(memory_of(PartArrays::kMasters));
  of_.undo.lie_in(memory_of(PartArrays::kUndo));
}

/// NULL: the transport knows no such thing.
collective::Outliving* KeptCopy::outliving() const noexcept {
  return dynamic_cast<collective::Outliving*>(&of_.model.group().channels().own());
}

void KeptCopy::start_ledger(int64_t version) noexcept {
  Ledger* const ledger = of_.undo.ledger();
  if (ledger == nullptr) return;
  Ledger::put(ledger->step, 0);
  Ledger::put(ledger->most, version + 1);
  Ledger::put(ledger->counted, version);
}

std::string KeptCopy::describe_areas() const {
  const collective::Outliving* const memory = outliving();
  ByteWriter writer;
  for (const Area& area : areas_)
    writer.number(memory == nullptr ? collective::Outliving::kNoPlace : memory->place_of(area.memory.get(), area.bytes))
        .number(area.bytes);
  return std::move(writer).bytes();
}

/// NULL: they are not in reach.
std::unique_ptr<PartArrays> KeptCopy::find_slice(int32_t rank, const Ownership& ownership, std::string_view areas) const {
  const collective::Outliving* const others = outliving();
  if (others == nullptr) return nullptr;
  const AreaPlaces told = read_areas(areas);
  std::unique_ptr<PartArrays> slice;
  const std::optional<Error> problem = try_to([&] {
    slice = view(of_.layout(), rank, ownership, true, [&](PartArrays::Kind kind, int64_t bytes) {
      std::shared_ptr<std::byte> memory = told[kind].second == bytes ? others->reach(rank, told[kind].first) : nullptr;
      if (memory == nullptr) throw Error(DDP_ERROR_NOT_SUPPORTED, "the memory of another rank is not in reach");
      return memory;
    });
  });
  if (problem && problem->status() != DDP_ERROR_NOT_SUPPORTED) throw Error(*problem);
  return slice;
}

/// NULL: no rank keeps a copy.
std::unique_ptr<FarCopies> KeptCopy::make_far_copies(const Ownership& ownership) const {
  if (outliving() == nullptr) return nullptr;
  std::vector<collective::KeepRound> rounds = outliving()->keep_rounds();
  return rounds.empty() ? nullptr : std::make_unique<FarCopies>(of_.layout(), ownership, std::move(rounds));
}

/// The arrays of this rank, and of others of its host for which it sends; `areas`: the announcements of the ranks about
/// theirs.
void KeptCopy::lend_arrays(Hand& hand, const std::vector<std::string>& areas) const {
  for (size_t round = 0; round < hand.far->rounds().size(); ++round) {
    const int32_t rank = hand.far->rounds()[round].sent;
    if (rank < 0) continue;
    const AreaPlaces told = read_areas(areas[static_cast<size_t>(rank)]);
    for (const PartArrays::Kind kind : {PartArrays::kStore, PartArrays::kMasters}) {
      FarCopies::Lent lent{areas_[kind].memory, areas_[kind].bytes};
      if (rank != hand.rank) lent = {outliving()->reach(rank, told[kind].first), told[kind].second};
      if (lent.memory == nullptr && lent.bytes > 0)
        throw make_error(DDP_ERROR_NOT_SUPPORTED, "keep_copy: the memory of rank %d cannot be mapped for another host",
                         rank);
      hand.far->lend(round, kind, std::move(lent));
    }
  }
}

void KeptCopy::send_copy(int64_t version) {
  if (hand_ == nullptr || hand_->far == nullptr) return;
  group::or_break(of_.model.group(), group::Part::kExchange, [&] { hand_->far->exchange(*outliving(), version); });
}

void KeptCopy::send_copy() { send_copy(of_.steps() + 1); }

/// `hash`: of all that has arrived in a deal. All ranks have their parts, and then know the places of the others' parts.
void KeptCopy::exchange_areas(Hand& hand, uint64_t hash) {
  std::vector<std::string> areas;
  for (const std::string& theirs :
       of_.model.group().gather("kept parts", ByteWriter().number(hash).bytes() + describe_areas())) {
    ByteReader reader(theirs);
    if (reader.number<uint64_t>() != hash)
      throw Error(
          DDP_ERROR_MISMATCH,
          "ddp_group_recover: the parts of the optimizer's state did not arrive alike on all ranks; load a checkpoint "
          "with the optimizer");
    areas.emplace_back(reader.rest());
  }
  hand.others.clear();
  bool in_reach = areas.size() == 1 || hand.far != nullptr;
  for (int32_t rank = 0; rank < static_cast<int32_t>(areas.size()); ++rank) {
    hand.others.push_back(rank == hand.rank ? nullptr : find_slice(rank, hand.ownership, areas[static_cast<size_t>(rank)]));
    in_reach = in_reach || hand.others.back() != nullptr;
  }
  if (!in_reach)
    os::log(
        DDP_LOG_WARNING,
        "no other rank reaches the memory of rank %d, which is alone on its host or shares none: when it dies its part of "
        "the optimizer's state is lost in spite of keep_copy, and a checkpoint must be loaded",
        hand.rank);
  if (hand.far != nullptr) group::all_or_none(of_.model.group(), "memory of kept parts", [&] { lend_arrays(hand, areas); });
}

void KeptCopy::meet() {
  if (hand_ != nullptr) return;
  group::all_or_none(of_.model.group(), "memory for kept parts", [&] { of_.allocate(); });
  start_ledger(of_.steps());
  auto made = std::make_unique<Hand>();
  made->rank = of_.model.group().rank();
  made->ownership = of_.ownership();
  group::all_or_none(of_.model.group(), "memory for kept parts", [&] { made->far = make_far_copies(made->ownership); });
  exchange_areas(*made, 0);
  hand_ = std::move(made);
  send_copy(of_.steps());
  int64_t bytes = 0;
  for (const Area& area : areas_) bytes += area.bytes;
  if (hand_->far != nullptr) bytes += hand_->far->bytes();
  os::log(DDP_LOG_INFO,
          "the optimizer's part of rank %d is kept for the others (keep_copy): with it %.1f MiB are used there", hand_->rank,
          static_cast<double>(bytes) / (1 << 20));
}

void KeptCopy::count() noexcept {
  const Ledger* const ledger = of_.undo.ledger();
  if (ledger != nullptr) of_.undo.count(of_.steps());
}

void KeptCopy::forget() noexcept {
  clear();
  aside_.reset();
  deals_ = false;
}

void KeptCopy::begin_load() noexcept {
  has_loaded_ = true;
  if (hand_ != nullptr && hand_->far != nullptr) hand_->far->forget();
  if (Ledger* const ledger = of_.undo.ledger(); ledger != nullptr) Ledger::put(ledger->counted, -1);
}

void KeptCopy::end_load() {
  start_ledger(of_.steps());
  send_copy(of_.steps());
}

void KeptCopy::leave() noexcept {
  if (of_.undo.ledger() != nullptr) of_.undo.restore(of_.model.table());
}

Versions KeptCopy::own_versions() const noexcept {
  const Ledger* const ledger = of_.undo.ledger();
  if (ledger == nullptr || ledger->counted < 0) return {};
  const bool can_go_back = ledger->step == ledger->counted && ledger->counted > 0;
  return {can_go_back ? ledger->counted - 1 : ledger->counted, ledger->counted};
}

Versions KeptCopy::versions_of(const Hand& hand, int32_t rank) const noexcept {
  if (const auto& other = hand.others[static_cast<size_t>(rank)]; other != nullptr) return other->undo.ledger()->versions();
  return hand.far == nullptr ? Versions() : hand.far->versions_of(rank);
}

Holdings::Hand KeptCopy::holdings_of(const Hand& hand, const Versions& own) const {
  Holdings::Hand told{hand.number, hand.rank, {}};
  for (int32_t rank = 0; rank < static_cast<int32_t>(hand.others.size()); ++rank)
    told.versions.push_back(versions_of(hand, rank));
  told.versions[static_cast<size_t>(hand.rank)] = own;
  return told;
}

std::string KeptCopy::tell() const {
  Holdings holdings;
  holdings.is_fresh = !has_loaded_ && of_.steps() == 0;
  if (hand_ != nullptr) holdings.hands.push_back(holdings_of(*hand_, own_versions()));
  if (aside_ != nullptr) holdings.hands.push_back(holdings_of(*aside_, {aside_->version, aside_->version}));
  return write_holdings(holdings);
}

/// The arrays of this rank in the current deal, moved away from the place of new ones.
void KeptCopy::put_aside() {
  if (hand_ != nullptr && hand_->number == deal_.number) {
    if (of_.undo.ledger()->counted == deal_.version + 1) {
      of_.undo.go_back(of_.model.table());
      of_.go_back();
    }
    hand_->version = deal_.version;
    copy_values(of_.model.table(), hand_->ownership.slice(hand_->rank), hand_->own_values);
    hand_->own.store = std::exchange(of_.store, OptimizerState(of_.store.arrays()));
    hand_->own.masters = of_.masters.take();
    aside_ = std::move(hand_);
  }
  clear();
}

/// The optimizer has no arrays then.
void KeptCopy::clear() noexcept {
  hand_.reset();
  of_.store.clear();
  of_.masters.clear();
  of_.undo = Undo();
  areas_ = {};
}

void KeptCopy::agree(const std::vector<std::string>& told) {
  std::vector<Holdings> all;
  all.reserve(told.size());
  for (const std::string& each : told) all.push_back(read_holdings(each));
  deal_ = find_deal(all);
  deals_ = deal_.kind == Deal::Kind::kParts;
  if (deals_) put_aside();
  if (deal_.kind == Deal::Kind::kFresh) clear();
}

void KeptCopy::deal() {
  if (!deals_) return;
  group::Group& group = of_.model.group();
  const bool tells = group.rank() == deal_.teller;
  const std::vector<std::string> divisions =
      group.gather("division of kept parts", tells ? write_ownership(aside_->ownership) : std::string());
  const Ownership before = read_ownership(divisions[static_cast<size_t>(deal_.teller)]);
  group::all_or_none(group, "memory for kept parts", [&] { of_.allocate(); });
  PartSender sender(of_.layout(), of_.model.group(), of_.ownership(), {of_.store, of_.masters.store()}, deal_.version);
  for (int32_t rank = 0; rank < before.ranks(); ++rank) {
    const int32_t giver = deal_.givers[static_cast<size_t>(rank)];
    PartSource from;
    if (group.rank() == giver && aside_->rank == rank) {
      from = {&aside_->own.store, &aside_->own.masters, nullptr, aside_->own_values.data()};
    } else if (group.rank() == giver && aside_->others[static_cast<size_t>(rank)] != nullptr) {
      PartArrays& other = *aside_->others[static_cast<size_t>(rank)];
      from = {&other.store, &other.masters, &other.undo};
    } else if (group.rank() == giver) {
      const FarCopies::Copy& copy = *aside_->far->find(rank, deal_.version);
      from = {&copy.slice->store, &copy.slice->masters, nullptr, copy.values.data()};
    }
    sender.send(before.slice(rank), from, giver);
  }
  take_hand(sender.hash());
}

/// All has arrived on this rank. It keeps what it had until it knows that of all.
void KeptCopy::take_hand(uint64_t hash) {
  group::Group& group = of_.model.group();
  start_ledger(deal_.version);
  auto made = std::make_unique<Hand>();
  made->number = deal_.number + 1;
  made->rank = group.rank();
  made->ownership = of_.ownership();
  made->others.resize(static_cast<size_t>(group.size()));
  group::all_or_none(group, "memory for kept parts", [&] { made->far = make_far_copies(made->ownership); });
  hand_ = std::move(made);
  exchange_areas(*hand_, hash);
  send_copy(deal_.version);
  static_cast<void>(group.gather("kept parts have come", ""));
  aside_.reset();
  deals_ = false;
}

}  // namespace ddp::optim
