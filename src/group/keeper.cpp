// SPDX-License-Identifier: Apache-2.0
#include "group/keeper.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "core/bytes.hpp"
#include "core/differing_ranks.hpp"
#include "core/hash.hpp"
#include "exchange/transport.hpp"
#include "group/channels.hpp"
#include "group/consensus.hpp"
#include "group/group.hpp"
#include "group/relayout.hpp"
#include "group/survival.hpp"
#include "os/log.hpp"

namespace ddp::group {
namespace {

constexpr int64_t kSpareBytes = 4096;    // numbers of the note may grow
constexpr int64_t kPresent = INT64_MAX;  // in the place of a set: newer than all that was kept

/// What ranks compare at the beginning of a keep; the greatest of each is taken.
struct Words {
  enum Word : size_t { kProblem, kAnew, kEpoch, kNoEpoch, kStep, kNoStep, kWords };
  std::array<int64_t, kWords> values{};
};

/// Throws MISMATCH unless the tensors are those that were kept, of all models that are `torn`.
void require_alike(const KeptTable& kept, const KeptTable& now, const std::vector<int32_t>& torn) {
  for (const int32_t place : torn)
    if (std::find(kept.followers.begin(), kept.followers.end(), place) == kept.followers.end())
      throw Error(DDP_ERROR_MISMATCH, "a model that is not whole was not among those of ddp_state_keep");
  if (kept.ends != now.ends) throw Error(DDP_ERROR_MISMATCH, "the models have other optimizers or averages");
  for (size_t k = 0; k < kept.items.size(); ++k)
    if (kept.items[k].name != now.items[k].name || kept.items[k].dtype != now.items[k].dtype ||
        kept.items[k].count != now.items[k].count)
      throw make_error(DDP_ERROR_MISMATCH, "\"%s\" was kept, and there is \"%s\"", kept.items[k].name.c_str(),
                       now.items[k].name.c_str());
}

void settle(const std::vector<KeptTensor>& tensors) {
  if (const gpu::Device* const device = device_of(tensors)) device->synchronize();
}

}  // namespace

Keeper::State Keeper::collect(const Followers& kept, const Followers& all, KeptNote note) {
  State state;
  for (const auto& follower : kept) {
    const auto place = std::find(all.begin(), all.end(), follower);
    state.table.followers.push_back(static_cast<int32_t>(place - all.begin()));
    for (KeptTensor& each : follower->kept_tensors()) {
      state.table.items.push_back(item_of(each));
      state.tensors.push_back(std::move(each));
    }
    state.table.ends.push_back(state.tensors.size());
    note.fields.push_back(follower->kept_fields());
  }
  state.note = write_note(note);
  return state;
}

/// Is it what the buffers in use were made for?
bool Keeper::fits(const State& state) const noexcept {
  if (!is_current_ || static_cast<int64_t>(state.note.size()) > sets_.back().buffers->note_room()) return false;
  const KeptTable& table = sets_.back().buffers->table();
  if (table.followers != state.table.followers || table.ends != state.table.ends) return false;
  return std::equal(table.items.begin(), table.items.end(), state.tensors.begin(), state.tensors.end(),
                    [](const KeptItem& item, const KeptTensor& tensor) { return item.is_alike(tensor); });
}

gpu::Transfer& Keeper::transfer(const std::vector<KeptTensor>& tensors) {
  if (transfer_ == nullptr) transfer_ = std::make_unique<gpu::Transfer>(device_of(tensors));
  return *transfer_;
}

void Keeper::keep(Group& group, const Followers& kept, const Followers& all, KeptNote note,
                  const std::optional<Error>& refusal) {
  const int64_t epoch = note.epoch, step = note.step;
  State state;
  std::optional<Error> problem = refusal;
  if (!problem)
    problem = try_to([&] {
      state = collect(kept, all, std::move(note));
      settle(state.tensors);
    });
  using W = Words;
  std::array<int64_t, W::kWords> words{problem ? 1 : 0, fits(state) ? 0 : 1, epoch, -epoch, step, -step};
  or_break(group, Part::kExchange,
           [&] { group.channels().own().all_reduce(flat_tensor(words.data(), DDP_I64, W::kWords), DDP_MAX); });
  if (words[W::kProblem] != 0) agree(group, "kept state", problem ? &*problem : nullptr);
  if (words[W::kEpoch] != -words[W::kNoEpoch] || words[W::kStep] != -words[W::kNoStep]) {
    const auto steps = group.gather("kept steps", std::to_string(epoch) + " " + std::to_string(step));
    throw make_error(
        DDP_ERROR_MISMATCH,
        "ddp_state_keep: the ranks keep the steps %lld to %lld of the epochs %lld to %lld; all keep the same one",
        static_cast<long long>(-words[W::kNoStep]), static_cast<long long>(words[W::kStep]),
        static_cast<long long>(-words[W::kNoEpoch]), static_cast<long long>(words[W::kEpoch]))
        .with(ranks_that_differ(steps.size(), [&](size_t rank) { return steps[rank] != steps[0]; }))
        .as_agreed();
  }
  if (words[W::kAnew] != 0) return keep_anew(group, kept, std::move(state), 0);
  write(group, state);
}

/// All ranks have the generation before.
void Keeper::write(Group& group, const State& state) {
  KeptSet& set = *sets_.back().buffers;
  or_break(group, Part::kOwn, [&] { set.write(state.tensors, state.note, transfer(state.tensors)); });
  transfer_.reset();  // the next state may be on another device, and memory of a GPU must not outlive that
  newest_ = set.newest();
  set.send(group);
}

/// Into buffers that are made now. The older sets of buffers are freed when all ranks have this one.
void Keeper::keep_anew(Group& group, const Followers& kept, State state, uint64_t checked) {
  state.table.ranks = group.size();
  const auto room = 2 * static_cast<int64_t>(state.note.size()) + kSpareBytes;
  Set made;
  made.buffers = KeptSet::make(group, std::move(state.table), {newest_, room, checked});
  made.followers.assign(kept.begin(), kept.end());
  sets_.push_back(std::move(made));
  is_current_ = false;
  write(group, state);
  static_cast<void>(group.gather("kept state is whole", ""));
  sets_.erase(sets_.begin(), sets_.end() - 1);
  is_current_ = true;
  const KeptSet& set = *sets_.back().buffers;
  if (!set.is_guarded() && !std::exchange(warned_, true))
    os::log(DDP_LOG_WARNING,
            "no other rank reaches the memory of rank %d, which is alone on its host or shares none: when it dies, what "
            "ddp_state_keep has kept is lost, and a checkpoint must be loaded",
            group.rank());
  os::log(DDP_LOG_DEBUG, "the kept state of the group takes %.1f MiB on rank %d",
          static_cast<double>(set.bytes()) / (1 << 20), group.rank());
}

void Keeper::forget() noexcept {
  sets_.clear();
  is_current_ = false;
}

void Keeper::set_aside(const Group& group, const Followers& all) noexcept {
  if (present_ != nullptr) return;  // by an attempt before, which may have changed the models since
  if (try_to([&] { copy_present(group, all); })) present_.reset();
}

void Keeper::copy_present(const Group& group, const Followers& all) {
  if (group.size() < 2) return;
  State state = collect(all, all, {-1, -1, {}, {}});
  const auto is_cut = [](const KeptItem& item) { return !item.parts.empty(); };
  if (std::none_of(state.table.items.begin(), state.table.items.end(), is_cut)) return;
  state.table.ranks = group.size();
  Hasher hasher;
  const auto add = [&](const std::string& text) { hasher.add(text.data(), text.size()); };
  add(write_table(state.table));
  for (const auto& follower : all) {
    const std::string version = follower->version();
    if (version.empty()) return;
    add(version);
  }
  const std::vector<KeptPiece> pieces = pieces_of(state.table.items, group.size(), group.rank());
  present_ = std::make_unique<Present>();
  present_->part = {{kPresent, static_cast<int64_t>(hasher.value() >> 1)}, group.size(), group.rank(), true};
  present_->bytes.resize(static_cast<size_t>(end_of(pieces)));
  gpu::Transfer copies(nullptr);
  for (const KeptPiece& piece : pieces)
    copies.read_to(state.tensors[piece.item].tensor, piece.held, piece.bytes, present_->bytes.data() + piece.at);
  present_->table = std::move(state.table);
  present_->note = std::move(state.note);
}

void Keeper::leave(int64_t steps) noexcept {
  is_current_ = false;
  transfer_.reset();
  steps_ = std::max(steps_, steps);
}

/// Where the models that were kept are now; -1: it is destroyed.
void Keeper::find_places(const Followers& all) {
  for (Set& set : sets_) {
    std::vector<int32_t> places;
    for (const auto& follower : set.followers) {
      const auto at = std::find(all.begin(), all.end(), follower.lock());
      places.push_back(at == all.end() ? -1 : static_cast<int32_t>(at - all.begin()));
    }
    set.buffers->set_places(std::move(places));
  }
}

Holdings Keeper::holdings(const Followers& all) const {
  Holdings mine;
  mine.steps = steps_;
  mine.newest = newest_;
  for (size_t place = 0; place < all.size(); ++place)
    if (!all[place]->is_whole()) mine.torn.push_back(static_cast<int32_t>(place));
  for (const Set& set : sets_) {
    const std::vector<int32_t>& places = set.buffers->table().followers;
    if (std::any_of(places.begin(), places.end(), [](int32_t place) { return place < 0; })) continue;
    for (const HeldPart& part : set.buffers->held()) mine.parts.push_back(part);
  }
  if (present_ != nullptr) mine.parts.push_back(present_->part);
  return mine;
}

const std::byte* Keeper::find(const GenerationName& generation, int32_t part) const noexcept {
  if (generation.set == kPresent)
    return present_ != nullptr && present_->part.rank == part ? present_->bytes.data() : nullptr;
  for (const Set& each : sets_)
    if (each.buffers->newest().set == generation.set) return each.buffers->find(part, generation.number);
  return nullptr;
}

std::string Keeper::describe(const GenerationName& generation) const {
  ByteWriter writer;
  if (generation.set == kPresent) writer.text(present_->note).text(write_table(present_->table));
  for (const Set& each : sets_)
    if (each.buffers->newest().set == generation.set)
      writer.text(each.buffers->note(generation.number)).text(write_table(each.buffers->table()));
  return std::move(writer).bytes();
}

void Keeper::restore(Group& group, const Followers& all) {
  const bootstrap::CallState::In inside(group.calls(), bootstrap::UserCall::kCommit);
  find_places(all);
  std::vector<Holdings> by_rank;
  for (const std::string& told : group.gather("kept generations", write_holdings(holdings(all))))
    by_rank.push_back(read_holdings(told));
  std::vector<int32_t> torn;
  int64_t steps = -1;
  for (const Holdings& each : by_rank) {
    torn.insert(torn.end(), each.torn.begin(), each.torn.end());
    steps = std::max(steps, each.steps);
    newest_ = {std::max(newest_.set, each.newest.set), std::max(newest_.number, each.newest.number)};
  }
  outcome_ = Outcome();
  if (torn.empty()) return;
  const std::optional<Found> found = find_generation(by_rank);
  if (!found) return;
  go_back(group, all, *found, torn, steps);
}

/// The state of the generation replaces that of all its models. If the models are others now, nothing changes.
void Keeper::go_back(Group& group, const Followers& all, const Found& found, const std::vector<int32_t>& torn,
                     int64_t steps) {
  const int32_t teller = found.givers[0];
  const std::string told =
      group.gather("kept table", group.rank() == teller ? describe(found.generation) : "")[static_cast<size_t>(teller)];
  ByteReader reader(told);
  const std::string text(reader.text());
  const KeptNote note = read_note(text);
  const KeptTable table = read_table(reader.text());
  Followers kept;
  State state;
  const std::optional<Error> differs = try_to([&] {
    all_or_none(group, "kept tensors", [&] {
      for (const int32_t place : table.followers) kept.push_back(all.at(static_cast<size_t>(place)));
      state = collect(kept, all, note);
      require_alike(table, state.table, torn);
    });
  });
  if (differs && !differs->is_agreed()) throw Error(*differs);
  if (differs)
    return os::log_of(*differs, DDP_LOG_WARNING, "what was kept does not fit the models of now: %s", differs->what());
  for (const auto& follower : kept) follower->begin_back();
  const uint64_t hash = load_tensors(group, table, found, state.tensors);
  all_or_none(group, "kept fields", [&] {
    for (size_t k = 0; k < kept.size(); ++k) kept[k]->end_back(note.fields[k]);
  });
  if (found.generation.set == kPresent) return;
  int64_t now = -1;
  for (const auto& follower : kept) now = std::max(now, follower->steps());
  outcome_ = {now < 0 ? 0 : std::max<int64_t>(steps - now, 0), note.epoch, note.step};
  bytes_ = note.bytes;
  state.note = text;
  keep_anew(group, kept, std::move(state), hash);
}

/// Gives the hash of all that has arrived.
uint64_t Keeper::load_tensors(Group& group, const KeptTable& table, const Found& found,
                              const std::vector<KeptTensor>& tensors) {
  const auto part = [&](int32_t number) { return find(found.generation, number); };
  or_break(group, Part::kOwn, [&] { static_cast<void>(transfer(tensors)); });
  const uint64_t hash = give_parts(group, table, found.givers, part, tensors, *transfer_);
  transfer_.reset();
  return hash;
}

Keeper::Outcome Keeper::end_recovery() noexcept {
  steps_ = -1;
  present_.reset();
  return std::exchange(outcome_, Outcome());
}

}  // namespace ddp::group
