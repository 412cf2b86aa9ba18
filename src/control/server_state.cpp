// SPDX-License-Identifier: Apache-2.0
#include "control/server_state.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "control/limits.hpp"
#include "control/texts.hpp"
#include "os/clock.hpp"

namespace ddp::bootstrap {

ServerState::ServerState(ServerConfig config)
    : config_(std::move(config)),
      members_(static_cast<size_t>(config_.size)),
      slots_(static_cast<size_t>(config_.size)),
      gathers_(members_),
      deadlocks_(members_) {
  clock_.set_most_ms(config_.dead_after_ms / (limits::kTicksInSilence - 2));
}

// ---- what goes out

void ServerState::send(ConnectionId to, FrameType type, SharedBody bytes) {
  actions_.push_back({ServerAction::Kind::kSend, to, type, std::move(bytes), {}});
}

void ServerState::send_to_members(FrameType type, const SharedBody& bytes) {
  for (int32_t rank = 0; rank < config_.size; ++rank)
    if (is_waiting_for(rank)) send(slot_of(rank).connection, type, bytes);
}

// Listed first: without memory for it nothing has changed.
void ServerState::finish(ConnectionId id) {
  actions_.push_back({ServerAction::Kind::kFinish, id, {}, nullptr, {}});
  Connection& connection = connections_[id];
  connection.phase = Connection::Phase::kOver;
  connection.since_ns = std::max(connection.since_ns, last_.tick_ns);
}

void ServerState::drop(ConnectionId id) {
  actions_.push_back({ServerAction::Kind::kDrop, id, {}, nullptr, {}});
  connections_.erase(id);
}

void ServerState::refuse(ConnectionId id, const Error& why) {
  send(id, FrameType::kRefuse, shared_body(messages::write(why)));
  finish(id);
}

// ---- what comes in

void ServerState::connected(ConnectionId id, const auth::Nonce& nonce, int64_t now_ns) {
  Connection connection;
  connection.since_ns = clock_.at(now_ns);
  connection.nonce = nonce;
  connections_.emplace(id, connection);
  const messages::Banner banner{limits::kProtocol, config_.token.has_value(), config_.group, nonce};
  send(id, FrameType::kBanner, shared_body(messages::write(banner)));
  drop_unauthenticated(config_.most_unauthenticated);
}

// In a flood of strangers an honest connection, which needs one round trip, mostly stays, and comes again if not.
bool ServerState::drop_unauthenticated(size_t most) {
  std::vector<const std::pair<const ConnectionId, Connection>*> unproved;
  for (const auto& one : connections_)
    if (is_unproved(one.second.phase)) unproved.push_back(&one);
  if (unproved.size() <= most) return false;
  uint64_t chance = 0;
  std::memcpy(&chance, unproved.back()->second.nonce.data(), sizeof chance);  // the kernel's
  drop(unproved[chance % unproved.size()]->first);
  return true;
}

void ServerState::frame(ConnectionId id, Frame&& frame, int64_t now_ns) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  switch (connection.phase) {
    case Connection::Phase::kUnauthenticated:
      if (frame.type != FrameType::kHello) throw Error(DDP_ERROR_IO, "a frame before the greeting");
      return greet(id, connection, messages::read<messages::Hello>(frame.body));
    case Connection::Phase::kAdmitted:
      if (frame.type != FrameType::kJoin) throw Error(DDP_ERROR_IO, "a frame before it joined");
      return join(id, connection, messages::read<messages::Join>(frame.body), clock_.at(now_ns));
    case Connection::Phase::kJoined: return member_frame(connection, std::move(frame), clock_.at(now_ns));
    case Connection::Phase::kOver: return;
  }
}

void ServerState::greet(ConnectionId id, Connection& connection, const messages::Hello& hello) {
  if (hello.protocol != limits::kProtocol) return refuse(id, texts::different_protocol(hello.protocol, limits::kProtocol));
  const auth::Claim claim{connection.nonce, hello.nonce, config_.group, hello.rank, hello.size};
  if (hello.group != config_.group || !auth::is_proof(hello.proof, config_.token, auth::Role::kClient, claim)) {
    if (hello.rank >= 0 && hello.rank < config_.size) slot_of(hello.rank).refused = true;
    return refuse(id, texts::wrong_token());
  }
  connection.phase = Connection::Phase::kAdmitted;
  connection.rank = hello.rank;
  connection.size = hello.size;
  send(id, FrameType::kWelcome,
       shared_body(messages::write(messages::Welcome{auth::prove(config_.token, auth::Role::kServer, claim)})));
  ServerAction secure{ServerAction::Kind::kSecure, id, {}, nullptr, {}};
  if (config_.token.has_value()) secure.keys = auth::session_keys(config_.token, claim);
  actions_.push_back(std::move(secure));
  if (!config_.signpost.empty()) point(id);
}

void ServerState::join(ConnectionId id, Connection& connection, messages::Join&& join, int64_t now_ns) {
  if (const auto why = make_room(connection.rank, join.member, now_ns)) return refuse(id, *why);
  const int32_t rank = connection.rank;
  if (!config_.recovers && connection.size != config_.size)
    return refuse(id, texts::different_size(rank, connection.size, 0, config_.size));
  if (rank < 0 || rank >= config_.size) return refuse(id, texts::rank_out_of_range(rank, config_.size));
  if (is_fenced(rank)) return refuse(id, texts::fenced(join.member));
  if (const auto why = lost_rank(now_ns)) return refuse(id, *why);
  MemberSlot& slot = slot_of(rank);
  if (slot.state != MemberSlot::State::kFree) return refuse(id, texts::duplicate_rank(member(rank)));
  connection.phase = Connection::Phase::kJoined;
  slot = MemberSlot();
  slot.state = MemberSlot::State::kTaken;
  slot.connection = id;
  slot.heard_ns = now_ns;
  slot.limit_ms = join.limit_ms;
  if (join.left_ms > 0 && join.left_ms < INT64_MAX / (4 * os::kNsPerMs))
    slot.deadline_ns = now_ns + join.left_ms * os::kNsPerMs;
  members_[static_cast<size_t>(rank)] = std::move(join.member);
  members_[static_cast<size_t>(rank)].rank = rank;
  members_[static_cast<size_t>(rank)].id = rank;
  if (++taken_ == config_.size && !config_.recovers) form();
}

std::optional<Error> ServerState::lost_rank(int64_t now_ns) const {
  for (size_t rank = 0; phase_ == Phase::kForming && !config_.recovers && rank < slots_.size(); ++rank)
    if (slots_[rank].lost_ns != 0 && now_ns - slots_[rank].lost_ns > limits::kComeAgainMs * os::kNsPerMs)
      return texts::gone_early(members_[rank]);
  return std::nullopt;
}

void ServerState::form() {
  actions_.push_back({ServerAction::Kind::kSeal, 0, {}, nullptr, {}});
  phase_ = Phase::kFormed;
  std::vector<ConnectionId> late;
  for (const auto& [id, connection] : connections_)
    if (connection.phase == Connection::Phase::kUnauthenticated || connection.phase == Connection::Phase::kAdmitted)
      late.push_back(id);
  for (const ConnectionId id : late) drop(id);
  messages::Table table{config_.heartbeat_ms, config_.dead_after_ms, -1, members_};
  if (!config_.recovers) {
    send_to_members(FrameType::kTable, shared_body(messages::write(table)));
    for (int32_t rank = 0; rank < config_.size; ++rank)
      if (slot_of(rank).opening.has_value()) gather(rank, std::move(*slot_of(rank).opening), slot_of(rank).heard_ns);
    return;
  }
  for (int32_t rank = 0; rank < config_.size; ++rank) {
    table.receiver = rank;
    send(slot_of(rank).connection, FrameType::kTable, shared_body(messages::write(table)));
  }
}

void ServerState::member_frame(Connection& connection, Frame&& frame, int64_t now_ns) {
  const int32_t rank = connection.rank;
  slot_of(rank).heard_ns = now_ns;
  switch (frame.type) {
    case FrameType::kBeat: return beat(rank, messages::read<messages::Beat>(frame.body));
    case FrameType::kBye: return goodbye(rank, messages::read<messages::Bye>(frame.body));
    case FrameType::kGather:
      if (phase_ == Phase::kForming) return keep_opening(rank, messages::read<messages::Gather>(frame.body));
      return gather(rank, messages::read<messages::Gather>(frame.body), now_ns);
    case FrameType::kBlocked:
      if (phase_ == Phase::kForming) break;
      return deadlocks_.report(rank, messages::read<messages::Blocked>(frame.body));
    case FrameType::kAbort:
      if (phase_ == Phase::kForming) break;
      return reported(rank, messages::read<Error>(frame.body), now_ns);
    case FrameType::kHeard:
      if (phase_ != Phase::kBroken) break;
      slot_of(rank).state = MemberSlot::State::kHeard;
      return tell_rank0_if_all_heard();
    case FrameType::kDeath: {
      const int32_t dead = messages::read<messages::Death>(frame.body).rank;
      if (phase_ == Phase::kForming || dead <= 0 || dead >= config_.size || dead == rank) break;
      return gone(dead);
    }
    case FrameType::kLetter: return pass_on(rank, messages::read<messages::Letter>(frame.body));
    case FrameType::kWitness: return witness(messages::read<messages::Death>(frame.body).rank);
    default: break;
  }
  throw Error(DDP_ERROR_IO, "a frame that has no place here");
}

void ServerState::gather(int32_t rank, messages::Gather&& gather, int64_t now_ns) {
  if (phase_ == Phase::kBroken) return;  // the cause is being sent
  if (gather.sequence != gathers_.next_sequence(rank)) throw Error(DDP_ERROR_IO, "a gather that is out of order");
  const bool limited = gather.left_ms > 0 && gather.left_ms < INT64_MAX / (4 * os::kNsPerMs);
  const int64_t deadline_ns = limited ? now_ns + gather.left_ms * os::kNsPerMs : INT64_MAX;
  GatherRounds::Answer answer =
      gathers_.add(rank, gather.what, std::move(gather.blob), deadline_ns, gather.limit_ms, gather.call);
  if (answer.to.empty()) return;
  const FrameType type = answer.error.has_value() ? FrameType::kReplyError : FrameType::kReply;
  const SharedBody reply =
      shared_body(answer.error.has_value() ? messages::write(messages::ReplyError{answer.sequence, *answer.error})
                                           : messages::write(messages::Reply{answer.sequence, std::move(answer.blobs)}));
  for (const int32_t to : answer.to)
    if (slot_of(to).state == MemberSlot::State::kTaken) send(slot_of(to).connection, type, reply);
}

void ServerState::beat(int32_t rank, const messages::Beat& beat) {
  if (beat.ranks.empty()) return;
  slot_of(rank).where = beat.ranks.front().where;
}

// A rank reports that the group is broken. It often saw only the effect of another rank's death.
void ServerState::reported(int32_t rank, const Error& cause, int64_t now_ns) {
  slot_of(rank).state = MemberSlot::State::kReported;
  if (phase_ == Phase::kBroken) return;
  if (cause.status() != DDP_ERROR_PEER_FAILED && cause.status() != DDP_ERROR_TIMED_OUT) return declare(cause);
  if (suspicion_.has_value()) return;
  suspicion_ = Suspicion{cause, now_ns};
}

void ServerState::goodbye(int32_t rank, const messages::Bye& bye) {
  const ConnectionId id = slot_of(rank).connection;
  if (phase_ == Phase::kForming) {
    free_slot(rank);
  } else {
    slot_of(rank).state = MemberSlot::State::kLeft;
    if (!suspicion_.has_value()) declare(texts::farewell(member(rank), bye.how, bye.where, deadlocks_.first_waiting(rank)));
  }
  finish(id);
  tell_rank0_if_all_heard();
}

// A rank's process has ended, or its connection. Its earlier report of another cause still holds.
void ServerState::gone(int32_t rank) {
  if (slot_of(rank).state == MemberSlot::State::kTaken) declare(texts::gone(member(rank)));
}

void ServerState::declare(const Error& cause) {
  if (phase_ != Phase::kFormed) return;
  phase_ = Phase::kBroken;
  suspicion_.reset();
  cause_ = shared_body(messages::write(cause));
  for (int32_t rank = 1; rank < config_.size; ++rank)
    if (is_waiting_for(rank)) send(slot_of(rank).connection, FrameType::kFailed, cause_);
  tell_rank0_if_all_heard();
}

void ServerState::tell_rank0_if_all_heard() {
  for (int32_t rank = 1; rank < config_.size; ++rank)
    if (is_waiting_for(rank)) return;
  tell_rank0();
}

void ServerState::tell_rank0() {
  const SharedBody cause = std::exchange(cause_, nullptr);
  if (cause != nullptr && is_waiting_for(0)) send(slot_of(0).connection, FrameType::kFailed, cause);
}

void ServerState::closed(ConnectionId id, int64_t now_ns) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const Connection connection = found->second;
  connections_.erase(found);
  if (connection.phase != Connection::Phase::kJoined) return;
  if (phase_ == Phase::kForming) return lose(connection.rank, now_ns);
  const MemberSlot::State before = std::exchange(slot_of(connection.rank).state, MemberSlot::State::kLeft);
  if (before == MemberSlot::State::kTaken) declare(texts::gone(member(connection.rank)));
  tell_rank0_if_all_heard();
}

void ServerState::broke(ConnectionId id, const std::string& how, int64_t) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const Connection connection = found->second;
  drop(id);
  if (connection.phase != Connection::Phase::kJoined) return;
  if (phase_ == Phase::kForming) return free_slot(connection.rank);
  slot_of(connection.rank).state = MemberSlot::State::kLeft;
  declare(texts::broke_protocol(member(connection.rank), how));
  tell_rank0_if_all_heard();
}

// ---- time

void ServerState::tick(int64_t system_ns) {
  // Messages of the others that came while this process was stopped are not read yet: they all get one full period.
  const bool stood_still = clock_.tick(system_ns) > config_.dead_after_ms * os::kNsPerMs / 2;
  const int64_t now_ns = clock_.at(system_ns);
  for (MemberSlot& slot : slots_)
    if (stood_still) slot.heard_ns = now_ns;
  last_.tick_ns = now_ns;
  check_hearing(now_ns);
  check_unauthenticated(now_ns);
  check_silence(now_ns);
  if (const auto why = lost_rank(now_ns)) dismiss(*why);
  check_deadlines(now_ns);
  check_deadlock();
  if (suspicion_.has_value() && now_ns - suspicion_->since_ns >= limits::kSecondaryCauseMs * os::kNsPerMs)
    declare(Error(suspicion_->cause));
  send_beats(now_ns);
}

// A stopped rank does not confirm the cause.
void ServerState::check_hearing(int64_t now_ns) {
  if (cause_ == nullptr) return;
  if (hearing_since_ns_ == 0) hearing_since_ns_ = now_ns;
  if (now_ns - hearing_since_ns_ >= std::min(limits::kHearMs, config_.dead_after_ms / 4) * os::kNsPerMs) tell_rank0();
}

void ServerState::check_unauthenticated(int64_t now_ns) {
  std::vector<ConnectionId> slow;
  for (const auto& [id, connection] : connections_)
    if (connection.phase != Connection::Phase::kJoined && now_ns - connection.since_ns > limits::kStrangerMs * os::kNsPerMs)
      slow.push_back(id);
  for (const ConnectionId id : slow) drop(id);
}

void ServerState::check_silence(int64_t now_ns) {
  for (int32_t rank = 0; rank < config_.size; ++rank) {
    MemberSlot& slot = slot_of(rank);
    if (slot.state != MemberSlot::State::kTaken || now_ns - slot.heard_ns <= config_.dead_after_ms * os::kNsPerMs) continue;
    const Error why = texts::silent(member(rank), config_.dead_after_ms, slot.where);
    if (phase_ != Phase::kForming) {
      declare(why);
      continue;
    }
    const ConnectionId id = slot.connection;
    free_slot(rank);
    drop(id);
    if (!config_.recovers) dismiss(why);  // else the others form without it
  }
}

void ServerState::check_deadlines(int64_t now_ns) {
  if (phase_ == Phase::kForming) {
    for (int32_t rank = 0; rank < config_.size; ++rank) {
      if (slot_of(rank).state != MemberSlot::State::kTaken || slot_of(rank).deadline_ns > now_ns) continue;
      const Error why = texts::never_came(absent(), config_.size, slot_of(rank).limit_ms, config_.place, config_.placement);
      if (rank == 0) return dismiss(why);  // the place is closed for all
      refuse(slot_of(rank).connection, why);
      free_slot(rank);
    }
    return;
  }
  if (phase_ != Phase::kFormed) return;
  const auto late = gathers_.overdue(now_ns);
  if (!late.has_value()) return;
  std::vector<Member> absent;
  for (const int32_t rank : late->missing) absent.push_back(member(rank));
  const MemberSlot& first = slot_of(late->missing.front());
  declare(texts::gather_timed_out(absent, late->call, late->limit_ms,
                                  texts::progress((now_ns - first.heard_ns) / os::kNsPerMs, first.where)));
}

void ServerState::check_deadlock() {
  if (phase_ != Phase::kFormed || suspicion_.has_value()) return;
  if (const std::optional<Error> verdict = deadlocks_.verdict()) declare(*verdict);
}

void ServerState::send_beats(int64_t now_ns) {
  if (phase_ == Phase::kBroken || now_ns - last_.beat_ns < config_.heartbeat_ms * os::kNsPerMs) return;
  last_.beat_ns = now_ns;
  send_to_members(FrameType::kBeat, shared_body(messages::write(progress_now(now_ns))));
}

// The ranks that are furthest behind: the others wait for these.
messages::Beat ServerState::progress_now(int64_t now_ns) const {
  messages::Beat beat;
  if (phase_ == Phase::kForming) return beat;
  for (int32_t rank = 0; rank < config_.size; ++rank) {
    const MemberSlot& slot = slots_[static_cast<size_t>(rank)];
    beat.ranks.push_back({rank, slot.where, (now_ns - slot.heard_ns) / os::kNsPerMs});
  }
  if (beat.ranks.size() > messages::kRanksInBeat) {
    const auto end = beat.ranks.begin() + static_cast<std::ptrdiff_t>(messages::kRanksInBeat);
    std::nth_element(beat.ranks.begin(), end, beat.ranks.end(), [](const auto& a, const auto& b) {
      return std::pair(a.where.pass, a.where.bucket) < std::pair(b.where.pass, b.where.bucket);
    });
    beat.ranks.resize(messages::kRanksInBeat);
  }
  return beat;
}

texts::Absent ServerState::absent() const {
  texts::Absent absent;
  for (int32_t rank = 0; rank < config_.size; ++rank) {
    const MemberSlot& slot = slots_[static_cast<size_t>(rank)];
    if (slot.state == MemberSlot::State::kFree) (slot.gone_again ? absent.gone_again : absent.never_came).push_back(rank);
    if (slot.state == MemberSlot::State::kFree && !slot.gone_again && slot.refused) absent.refused.push_back(rank);
  }
  return absent;
}

}  // namespace ddp::bootstrap
