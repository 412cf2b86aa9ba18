// SPDX-License-Identifier: Apache-2.0
#include "discovery/probe.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "control/codec.hpp"
#include "control/limits.hpp"
#include "core/attempt.hpp"

namespace ddp::bootstrap {
namespace {

constexpr int64_t kReachMs = 1'500;  // of a watch, after which what it looks at is out of reach
constexpr int64_t kSignMs = 5'000;
constexpr int64_t kNextMs = 50;  // so long an attempt is waited for before the next one begins
constexpr size_t kSignBytes = limits::kTextBytes + 64;

}  // namespace

std::vector<Probe> probe_all(const std::vector<Address>& targets, const Caller& caller, os::Deadline deadline,
                             const FirstWords& words) {
  std::vector<Attempt> under_way;
  std::vector<Probe> answers;
  size_t begun = 0;
  for (os::Deadline next = os::Deadline::never(); !deadline.passed();) {
    for (size_t i = 0; i < under_way.size();) {
      if (under_way[i].look() != Attempt::State::kOver) {
        ++i;
        continue;
      }
      answers.push_back(under_way[i].take());
      if (answers.back().answer == Probe::Answer::kAdmitted) return answers;
      under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (begun < targets.size() && (under_way.empty() || next.passed())) {
      under_way.emplace_back(targets[begun++], caller, words, Attempt::Patience::kShort);
      next = os::Deadline::in_ms(kNextMs);
      continue;
    }
    if (under_way.empty()) break;
    std::vector<pollfd> watched;
    for (const Attempt& each : under_way) watched.push_back({each.descriptor(), each.events(), 0});
    (void)::poll(watched.data(), watched.size(), static_cast<int>(std::clamp<int64_t>(deadline.left_ms(), 1, kNextMs)));
  }
  return answers;
}

Probe probe(const Address& target, const Caller& caller, os::Deadline deadline, const FirstWords& words) {
  std::vector<Probe> answers = probe_all({target}, caller, deadline, words);
  if (!answers.empty()) return std::move(answers.back());
  Probe none;
  none.record = target.where.text() + " did not answer in time";
  return none;
}

// A program there that is not ours has taken the port of the former process.
void Watch::take(Probe answer) {
  attempt_.reset();
  switch (answer.answer) {
    case Probe::Answer::kAdmitted:
      state_ = State::kServing;
      admission_ = std::move(answer.admission);
      return;
    case Probe::Answer::kNobody:
      if (answer.error == ECONNREFUSED) state_ = State::kGone;
      if (answer.error == 0) state_ = State::kConnecting;  // of the former server, or with connections that it never took
      return;
    case Probe::Answer::kSilent: return;
    case Probe::Answer::kForeign:
    case Probe::Answer::kOtherGroup:
    case Probe::Answer::kUnproved:
    case Probe::Answer::kRefused: state_ = State::kGone; return;
  }
}

void Watch::look_at_attempt() {
  if (!attempt_.has_value()) attempt_.emplace(target_, caller_, FirstWords(), Attempt::Patience::kLong);
  const Attempt::State now = attempt_->look();
  if (now == Attempt::State::kConnecting || (now == Attempt::State::kOver && state_ != State::kListening)) {
    if (reached_by_.is_never()) reached_by_ = os::Deadline::in_ms(kReachMs);
    if (reached_by_.passed()) state_ = State::kUnreachable;
  } else {
    state_ = State::kListening;
    reached_by_ = os::Deadline::never();
  }
  if (now == Attempt::State::kOver) take(attempt_->take());
}

/// Unread bytes may come before its end.
bool Watch::is_still_connected() const {
  pollfd end{admission_->socket.get(), POLLRDHUP, 0};
  return ::poll(&end, 1, 0) <= 0;
}

Watch::State Watch::look() {
  if (state_ == State::kGone) return state_;
  if (state_ == State::kServing && is_still_connected()) return state_;
  if (state_ == State::kServing) static_cast<void>(enter());  // it has ended, or does not keep who does not come in
  look_at_attempt();
  return state_;
}

Admission Watch::enter() {
  Admission admission = std::move(*admission_);
  admission_.reset();
  state_ = State::kConnecting;
  return admission;
}

std::string read_signpost(const Admission& admission, os::Deadline deadline) {
  FrameReader reader(kSignBytes);
  if (admission.keys.has_value()) reader.secure(admission.keys->to_client);
  const os::Deadline by = os::Deadline::in_ms(std::clamp<int64_t>(deadline.left_ms(), 1, kSignMs));
  std::string place;
  // An unreadable answer has no meaning.
  static_cast<void>(try_to<Error>([&] {
    std::array<char, 256> bytes;
    while (place.empty() && net::wait_for(admission.socket, POLLIN, by)) {
      const ssize_t got = ::recv(admission.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0) return;
      std::string_view rest(bytes.data(), static_cast<size_t>(got));
      const std::optional<Frame> frame = reader.read(rest);
      if (frame.has_value() && frame->type != FrameType::kPlace) return;
      if (frame.has_value()) place = frame->body;
    }
  }));
  return place;
}

}  // namespace ddp::bootstrap
