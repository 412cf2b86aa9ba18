// SPDX-License-Identifier: Apache-2.0
// ServerState for a recovery: ids instead of ranks, new ranks, a group that forms with the present ranks, and the end of one
// that has broken. And letters.
#include <algorithm>
#include <utility>

#include "control/identity.hpp"
#include "control/limits.hpp"
#include "control/server_state.hpp"
#include "core/attempt.hpp"
#include "os/clock.hpp"

namespace ddp::bootstrap {

std::vector<int32_t> ServerState::present() const {
  std::vector<int32_t> ids;
  for (int32_t rank = 0; phase_ == Phase::kForming && rank < config_.size; ++rank)
    if (slots_[static_cast<size_t>(rank)].state == MemberSlot::State::kTaken) ids.push_back(rank);
  return ids;
}

// A member of a group that has broken saw it on its own host. It may come when the group has formed without the dead one.
void ServerState::witness(int32_t id) {
  if (!config_.recovers || id < 0 || id >= limits::kRanks)
    throw Error(DDP_ERROR_IO, "the end of a rank that does not exist");
  if (std::find(witnessed_.begin(), witnessed_.end(), id) == witnessed_.end()) witnessed_.push_back(id);
}

void ServerState::form(const std::vector<int32_t>& ids) {
  const auto most = static_cast<size_t>(config_.most_ranks);
  for (std::vector<int32_t> here = present(); most > 0 && here.size() > most; here.pop_back()) {
    refuse(
        slot_of(here.back()).connection,
        make_error(DDP_ERROR_INVALID_ARGUMENT,
                   "ddp_group_create: the group has %d virtual ranks and as many ranks: there is nothing for one more to do",
                   config_.most_ranks));
    free_slot(here.back());
  }
  if (phase_ != Phase::kForming || ids != present()) return;  // a rank has come or left meanwhile
  renumber();
  form();
}

void ServerState::dismiss(const Error& why) {
  for (const int32_t id : present()) {
    refuse(slot_of(id).connection, why);
    free_slot(id);
  }
}

/// A rank that wants to join asks here where the group is.
void ServerState::point(ConnectionId id) {
  send(id, FrameType::kPlace, std::make_shared<const Body>(std::string(config_.signpost)));
  finish(id);
}

bool ServerState::is_fenced(int32_t id) const {
  return std::find(config_.fenced.begin(), config_.fenced.end(), id) != config_.fenced.end();
}

std::optional<Error> ServerState::kept_out(const Member& newcomer, int64_t now_ns) const {
  const std::string host = lasting_host(newcomer.host, newcomer.boot_id);
  for (const ServerConfig::KeptOut& each : config_.kept_out)
    if (each.host == host && each.until_ns > now_ns)
      return texts::kept_out(newcomer.host, each.deaths, (each.until_ns - now_ns + 999'999) / 1'000'000);
  return std::nullopt;
}

/// Those who are here become ranks 0, 1, ... in the order of their ids. Without memory for it nothing has changed.
void ServerState::renumber() {
  std::vector<Member> members;
  std::vector<MemberSlot> slots;
  for (const int32_t id : present()) {
    slots.push_back(slot_of(id));
    members.push_back(member(id));
    members.back().rank = static_cast<int32_t>(slots.size()) - 1;
  }
  members_.swap(members);
  on_error(
      [&] {
        GatherRounds gathers(members_);
        deadlocks_ = DeadlockWatch(members_);
        gathers_ = std::move(gathers);
      },
      [&](const Error&) { members_.swap(members); });
  slots_ = std::move(slots);
  config_.size = static_cast<int32_t>(members_.size());
  for (int32_t rank = 0; rank < config_.size; ++rank) connections_[slot_of(rank).connection].rank = rank;
}

/// In a recovery: for a rank that is new, which gets the next id, or that knows of more ranks than this one. Gives why it
/// may not come.
std::optional<Error> ServerState::make_room(int32_t& id, const Member& of, int64_t now_ns) {
  if (!config_.recovers) return std::nullopt;
  if (id == kNewRank) {
    if (!config_.takes_new) return texts::come_again();
    if (auto why = kept_out(of, now_ns)) return why;
    id = config_.size;
  }
  if (id < config_.size || id >= limits::kRanks) return std::nullopt;
  slots_.resize(static_cast<size_t>(id) + 1);
  members_.resize(static_cast<size_t>(id) + 1);
  config_.size = id + 1;
  return std::nullopt;
}

// Who is stopped reads it later. A rank that has left gets none.
void ServerState::pass_on(int32_t from, messages::Letter&& letter) {
  if (phase_ == Phase::kForming || letter.rank < 0 || letter.rank >= config_.size)
    throw Error(DDP_ERROR_IO, "a letter to a rank that does not exist");
  if (phase_ == Phase::kBroken || !is_waiting_for(letter.rank)) return;
  send(slot_of(letter.rank).connection, FrameType::kLetter,
       std::make_shared<const Body>(messages::write(messages::Letter{from, std::move(letter.text)})));
}

void ServerState::settle() {
  if (suspicion_.has_value()) declare(Error(suspicion_->cause));
  tell_rank0();
  for (const MemberSlot& slot : slots_)  // a stopped rank does not end its connection
    if (slot.state == MemberSlot::State::kTaken && last_.tick_ns - slot.heard_ns > config_.dead_after_ms * os::kNsPerMs / 2)
      drop(slot.connection);
}

}  // namespace ddp::bootstrap
