// SPDX-License-Identifier: Apache-2.0
#include "control/client_state.hpp"

#include <algorithm>

#include "control/limits.hpp"
#include "control/texts.hpp"
#include "os/clock.hpp"

namespace ddp::bootstrap {

std::vector<FirstWord> first_words(const ClientConfig& config) {
  const int64_t left_ms = config.left_ms;
  std::vector<FirstWord> words{
      {FrameType::kJoin, shared_body(messages::write(messages::Join{config.me, left_ms, config.limit_ms}))}};
  if (config.opening.has_value())
    words.push_back(
        {FrameType::kGather, shared_body(messages::write(messages::Gather{1, left_ms, left_ms, UserCall::kNone,
                                                                          config.opening->what, config.opening->blob}))});
  return words;
}

ClientState::ClientState(ClientConfig config) : config_(std::move(config)) { set_clock(); }

void ClientState::set_clock() { clock_.set_most_ms(config_.dead_after_ms / (limits::kTicksInSilence - 2)); }

int64_t ClientState::tick_ms() const noexcept {
  return std::clamp<int64_t>(std::min(config_.heartbeat_ms / 2, config_.dead_after_ms / limits::kTicksInSilence), 1, 250);
}

void ClientState::send(FrameType type, SharedBody bytes) {
  act({.kind = ClientAction::Kind::kSend, .type = type, .body = std::move(bytes)});
}

void ClientState::start(int64_t now_ns, bool said) {
  phase_ = Phase::kJoining;
  heard_ns_ = clock_.at(now_ns);
  if (said) return;
  for (FirstWord& word : first_words(config_)) send(word.type, std::move(word.body));
}

void ClientState::frame(Frame&& frame, int64_t now_ns) {
  heard_ns_ = clock_.at(now_ns);
  if (phase_ == Phase::kRunning) return running_frame(std::move(frame));
  if (phase_ == Phase::kBroken && frame.type == FrameType::kFailed)
    return hear(ClientAction::Kind::kSettled, messages::read<Error>(frame.body));
  if (phase_ != Phase::kJoining) return;
  switch (frame.type) {
    case FrameType::kBeat: return;
    case FrameType::kTable: return joined(messages::read<messages::Table>(frame.body));
    case FrameType::kRefuse:
      phase_ = Phase::kLeft;
      return act({.kind = ClientAction::Kind::kRefused, .error = messages::read<Error>(frame.body)});
    default: throw Error(DDP_ERROR_IO, "a frame that has no place here");
  }
}

void ClientState::joined(messages::Table&& table) {
  if (config_.recovers) {
    config_.me.rank = table.receiver;
    config_.size = static_cast<int32_t>(table.members.size());
    if (table.receiver < 0 || table.receiver >= config_.size) throw Error(DDP_ERROR_IO, "a table without this rank");
  }
  if (table.members.size() != static_cast<size_t>(config_.size)) throw Error(DDP_ERROR_IO, "a table of another world size");
  const auto is_clock = [](int64_t ms) { return ms > 0 && ms <= limits::kSlowestClockMs; };
  if (!is_clock(table.heartbeat_ms) || !is_clock(table.dead_after_ms)) throw Error(DDP_ERROR_IO, "clocks that cannot be");
  config_.heartbeat_ms = table.heartbeat_ms;
  config_.dead_after_ms = table.dead_after_ms;
  set_clock();
  server_ = table.members.front();
  phase_ = Phase::kRunning;
  act({.kind = ClientAction::Kind::kJoined, .rank = config_.me.rank, .members = std::move(table.members)});
}

void ClientState::running_frame(Frame&& frame) {
  switch (frame.type) {
    case FrameType::kReply: {
      messages::Reply reply = messages::read<messages::Reply>(frame.body);
      if (reply.blobs.size() != static_cast<size_t>(config_.size)) throw Error(DDP_ERROR_IO, "a reply of another size");
      return act({.kind = ClientAction::Kind::kAnswer, .sequence = reply.sequence, .blobs = std::move(reply.blobs)});
    }
    case FrameType::kReplyError: {
      const messages::ReplyError reply = messages::read<messages::ReplyError>(frame.body);
      return act({.kind = ClientAction::Kind::kAnswer, .sequence = reply.sequence, .error = reply.error});
    }
    case FrameType::kBeat: {
      messages::Beat beat = messages::read<messages::Beat>(frame.body);
      for (const messages::Progress& at : beat.ranks) {
        if (at.rank < 0 || at.rank >= config_.size) throw Error(DDP_ERROR_IO, "a rank that does not exist");
        if (at.rank == 0) server_where_ = at.where;
      }
      return act({.kind = ClientAction::Kind::kProgress, .ranks = std::move(beat.ranks)});
    }
    case FrameType::kLetter: {
      messages::Letter letter = messages::read<messages::Letter>(frame.body);
      if (letter.rank < 0 || letter.rank >= config_.size)
        throw Error(DDP_ERROR_IO, "a letter of a rank that does not exist");
      return act({.kind = ClientAction::Kind::kLetter, .rank = letter.rank, .letter = std::move(letter.text)});
    }
    case FrameType::kFailed: return hear(ClientAction::Kind::kFailed, messages::read<Error>(frame.body));
    default: throw Error(DDP_ERROR_IO, "a frame that has no place here");
  }
}

// First this rank records it, then it confirms: rank 0 may end when all have confirmed.
void ClientState::hear(ClientAction::Kind kind, const Error& cause) {
  phase_ = Phase::kBroken;
  act({.kind = kind, .error = cause});
  send(FrameType::kHeard, shared_body(std::string()));
}

void ClientState::closed(int64_t) {
  if (phase_ == Phase::kJoining) {
    phase_ = Phase::kLeft;
    act({.kind = ClientAction::Kind::kLost});
  } else if (phase_ == Phase::kRunning) {
    lose(texts::server_gone(*server_));
  }
}

void ClientState::broke(const std::string& how, int64_t now_ns) {
  if (phase_ == Phase::kRunning)
    lose(texts::broke_protocol(*server_, how));
  else
    closed(now_ns);
}

// Rank 0 is informed as well: it may have been stopped and resume later.
void ClientState::lose(const Error& cause) {
  phase_ = Phase::kBroken;
  send(FrameType::kAbort, shared_body(messages::write(cause)));
  act({.kind = ClientAction::Kind::kFailed, .error = cause});
}

void ClientState::tick(int64_t system_ns, const Whereabouts& where) {
  const bool waits = phase_ == Phase::kJoining || phase_ == Phase::kRunning;
  // Messages of rank 0 that came while this process was stopped are not read yet: it gets one full period.
  const bool stood_still = clock_.tick(system_ns) > config_.dead_after_ms * os::kNsPerMs / 2;
  const int64_t now_ns = clock_.at(system_ns);
  if (stood_still) heard_ns_ = now_ns;
  if (stood_still) stood_still_until_ns_ = system_ns;
  if (waits && now_ns - heard_ns_ > config_.dead_after_ms * os::kNsPerMs) {
    if (phase_ == Phase::kJoining) return closed(system_ns);
    return lose(texts::silent(*server_, config_.dead_after_ms, server_where_));
  }
  if (!waits || now_ns - last_beat_ns_ < config_.heartbeat_ms * os::kNsPerMs) return;
  last_beat_ns_ = now_ns;
  send(FrameType::kBeat, shared_body(messages::write(messages::Beat{{{config_.me.rank, where, 0}}})));
}

void ClientState::gather(SharedBody contribution) {
  if (std::exchange(config_.opening, std::nullopt).has_value()) return;  // it was sent with the join
  if (phase_ == Phase::kRunning) send(FrameType::kGather, std::move(contribution));
}

void ClientState::abort(const Error& cause) { abort(shared_body(messages::write(cause))); }

void ClientState::blocked(const std::optional<BlockedCall>& blocked) {
  if (phase_ == Phase::kRunning) send(FrameType::kBlocked, shared_body(messages::write(blocked)));
}

void ClientState::abort(SharedBody cause) {
  if (phase_ != Phase::kRunning) return;
  send(FrameType::kAbort, std::move(cause));
  phase_ = Phase::kBroken;
}

void ClientState::saw_death(int32_t rank) {
  if (phase_ == Phase::kRunning) send(FrameType::kDeath, shared_body(messages::write(messages::Death{rank})));
}

void ClientState::write_letter(int32_t to, std::string text) {
  if (phase_ == Phase::kRunning)
    send(FrameType::kLetter, shared_body(messages::write(messages::Letter{to, std::move(text)})));
}

void ClientState::witness(int32_t id) {
  if (phase_ == Phase::kJoining) send(FrameType::kWitness, shared_body(messages::write(messages::Death{id})));
}

void ClientState::leave(const messages::Bye& bye) {
  if (phase_ == Phase::kLeft || phase_ == Phase::kNew) return;
  phase_ = Phase::kLeft;
  send(FrameType::kBye, shared_body(messages::write(bye)));
  act({.kind = ClientAction::Kind::kFinish});
}

}  // namespace ddp::bootstrap
