// SPDX-License-Identifier: Apache-2.0
#include "socket/header_round.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace ddp::socket {
namespace {

constexpr uint32_t kHeadMagic =
    0x37524444;  // "DDR7": changes with the layout of the record, and differs in the other byte order
constexpr uint32_t kGoodbye = 0x30524444;

}  // namespace

HeaderRound::HeaderRound(Links& links, const Shares& shares)
    : links_(links),
      shares_(shares),
      record_bytes_(plain_bytes(links.size()) + payload_bytes(links.size())),
      most_ranks_(shares.most_ranks()),
      participations_(static_cast<size_t>(shares.leaves), collective::Participation::none()) {
  plan_steps();
  payloads_.bytes.resize(static_cast<size_t>(links.size()));
  const auto bytes = static_cast<size_t>(record_bytes_ * links.size());
  for (Round& round : rounds_) {
    round.records.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes)));
    if (round.records == nullptr) throw std::bad_alloc();
    for (int32_t member = 0; member < links.size(); ++member)
      std::memset(round.records.get() + member * record_bytes_, 0, sizeof(Head));
    round.in.resize(steps_.size());
    round.out.resize(steps_.size());
  }
  long_.in.resize(steps_.size());
  long_.out.resize(steps_.size());
  // It may have left while we were sending to it, before we looked at its message.
  links_.set_goodbye_probe(
      [this](int32_t peer) { return head(0, peer).magic == kGoodbye || head(1, peer).magic == kGoodbye; });
}

void HeaderRound::arm() noexcept {
  arm(0);
  arm(1);
}

void HeaderRound::plan_steps() {
  const int32_t size = links_.size();
  if (is_direct()) {
    for (int32_t k = 1; k < size; ++k) steps_.push_back(Step{links_.after(k), links_.after(-k), k, 1, 0});
    return;
  }
  for (int32_t k = 1, level = 0; k < size; k *= 2, ++level)
    steps_.push_back(Step{links_.after(k), links_.after(-k), k, std::min(k, size - k), level});
}

int64_t HeaderRound::room(const Shares& shares, size_t words) noexcept {
  if (is_direct(shares.members())) return payload_bytes(shares.members());
  const int64_t room = plain_bytes(shares.members()) - kHeadBytes;
  const int64_t header = header_bytes(shares.most_ranks(), words);
  return header <= room ? room - header : room;
}

// A peer may have left after the last collective; that is no failure until the next one.
void HeaderRound::arm(size_t turn) noexcept {
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Step& step = steps_[s];
    rounds_[turn].in[s] =
        links_.try_receive(step.from, Tag::kHeader, record(turn, step.from), step.count * record_bytes_, step.level);
  }
}

std::byte* HeaderRound::header_of(int32_t member) noexcept {
  if (is_inline()) return record(turn_, member) + kHeadBytes;
  return long_.bytes.data() + (member + links_.size() - links_.position()) % links_.size() * header_bytes();
}

void HeaderRound::open(const collective::Stamp& stamp, int64_t cut, const collective::BucketHeader& header,
                       const std::vector<collective::Participation>& participations) {
  words_ = header.used.size();
  Head& mine = head(turn_, links_.position());
  mine = Head{kHeadMagic,
              (header.incomplete ? kIncomplete : 0U) | (mine.flags & kLost),
              stamp,
              cut,
              static_cast<int32_t>(words_),
              mine.late_rank,
              mine.late_ns};
  payload_at_ = kHeadBytes;
  set_payload(0);
  payloads_.differ = false;
  if (is_inline())
    payload_at_ += header_bytes();
  else
    long_.bytes.resize(static_cast<size_t>(header_bytes() * links_.size()));
  std::byte* to = header_of(links_.position());
  for (size_t r = 0; r < most_ranks_; ++r) {
    const collective::Participation participation =
        r < participations.size() ? participations[r] : collective::Participation{};
    std::memcpy(to + r * sizeof participation, &participation, sizeof participation);
  }
  if (words_ > 0)
    std::memcpy(to + most_ranks_ * sizeof(collective::Participation), header.used.data(), words_ * sizeof(uint64_t));
}

std::byte* HeaderRound::payload_to(int32_t member) {
  if (member == links_.position()) return payload();
  if (payloads_.outgoing == nullptr)
    payloads_.outgoing.reset(
        static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<size_t>(record_bytes_ * links_.size()))));
  if (payloads_.outgoing == nullptr) throw std::bad_alloc();
  payloads_.differ = true;
  return outgoing(member) + payload_at_;
}

void HeaderRound::swap(collective::BucketHeader& header) {
  swap_records();
  compare();
  if (!is_inline()) exchange_headers();
  join(header);
}

void HeaderRound::take(size_t s) {
  const Step& step = steps_[s];
  Links::Message& in = rounds_[turn_].in[s];
  if (!in.open)
    in = links_.receive(step.from, Tag::kHeader, record(turn_, step.from), step.count * record_bytes_, step.level);
  const collective::Wait wait = links_.wait_for(in);
  const Head& theirs = head(turn_, step.from);
  links_.note(wait, {theirs.late_rank, theirs.late_ns});
  if (theirs.magic == kGoodbye) links_.peer_left(step.from);
}

Links::Message HeaderRound::send(size_t s) {
  const Step& step = steps_[s];
  const std::byte* own = record(turn_, links_.position());
  if (!is_direct()) return links_.send(step.to, Tag::kHeader, own, step.count * record_bytes_, step.level);
  if (payloads_.differ) {
    std::memcpy(outgoing(step.to), own, static_cast<size_t>(payload_at_));
    own = outgoing(step.to);
  }
  return links_.send(step.to, Tag::kHeader, own, payload_at_ + payloads_.bytes[static_cast<size_t>(step.to)], step.level);
}

void HeaderRound::swap_records() {
  for (size_t s = 0; s < steps_.size() && is_direct(); ++s) rounds_[turn_].out[s] = send(s);
  for (size_t s = 0; s < steps_.size(); ++s) {
    if (!is_direct()) rounds_[turn_].out[s] = send(s);
    take(s);
  }
}

// In the order of the members, so that all of them find the same two.
void HeaderRound::compare() const {
  for (int32_t member = 1; member < links_.size(); ++member) {
    const Head& a = head(turn_, member - 1);
    const Head& b = head(turn_, member);
    if (a.magic != b.magic)
      links_.give_up(
          make_error(DDP_ERROR_MISMATCH, "the ranks run different versions of libddp; install the same one everywhere"));
    if (!(a.stamp == b.stamp)) links_.refuse(member - 1, a.stamp, member, b.stamp);
    if (a.cut != b.cut || a.words != b.words)
      links_.give_up(make_error(DDP_ERROR_DIFFERENT_CALLS,
                                "the ranks cut %s differently: %lld and %lld bytes, %lld and %lld words",
                                a.stamp.describe().c_str(), static_cast<long long>(a.cut), static_cast<long long>(b.cut),
                                static_cast<long long>(a.words), static_cast<long long>(b.words)));
  }
}

void HeaderRound::exchange_headers() {
  const int64_t bytes = header_bytes();
  const int32_t hops_before = hops();
  const auto receive = [&](size_t s) {
    const Step& step = steps_[s];
    long_.in[s] = links_.receive(step.from, Tag::kBucketHeader, long_.bytes.data() + step.record * bytes, step.count * bytes,
                                 hops_before + step.level);
  };
  const auto send = [&](size_t s) {
    long_.out[s] = links_.send(steps_[s].to, Tag::kBucketHeader, long_.bytes.data(), steps_[s].count * bytes,
                               hops_before + steps_[s].level);
  };
  for (size_t s = 0; s < steps_.size(); ++s) receive(s);
  for (size_t s = 0; s < steps_.size() && is_direct(); ++s) send(s);
  for (size_t s = 0; s < steps_.size(); ++s) {
    if (!is_direct()) send(s);
    links_.wait(long_.in[s]);
  }
}

void HeaderRound::join(collective::BucketHeader& header) {
  header.incomplete = false;
  std::fill(header.used.begin(), header.used.end(), 0);
  for (int32_t member = 0; member < links_.size(); ++member) {
    header.incomplete = header.incomplete || (head(turn_, member).flags & kIncomplete) != 0;
    const std::byte* from = header_of(member);
    const std::vector<int64_t>& leaves = shares_.positions[static_cast<size_t>(member)];
    for (size_t r = 0; r < leaves.size(); ++r)
      std::memcpy(&participations_[static_cast<size_t>(leaves[r])], from + r * sizeof(collective::Participation),
                  sizeof(collective::Participation));
    for (size_t word = 0; word < words_; ++word) {
      uint64_t bits = 0;
      std::memcpy(&bits, from + most_ranks_ * sizeof(collective::Participation) + word * sizeof bits, sizeof bits);
      header.used[word] |= bits;
    }
  }
  header.participation = collective::sum_weights(participations_);
}

bool HeaderRound::anybody_lost() const noexcept {
  bool lost = false;
  for (int32_t member = 0; member < links_.size(); ++member) lost = lost || (head(turn_, member).flags & kLost) != 0;
  return lost;
}

void HeaderRound::close() {
  for (Links::Message& message : rounds_[turn_].out) links_.wait(message);
  for (Links::Message& message : long_.out) links_.wait(message);
  arm(turn_);
  turn_ ^= 1;
  set_late({});
  set_lost(false);
}

// Twice: after the first round all know that all leave, after the second that all know it.
void HeaderRound::leave(os::Deadline deadline) noexcept {
  if (say_goodbye(turn_, deadline)) static_cast<void>(say_goodbye(turn_ ^ 1, deadline));
}

bool HeaderRound::say_goodbye(size_t turn, os::Deadline deadline) noexcept {
  head(turn, links_.position()).magic = kGoodbye;
  Round& round = rounds_[turn];
  const auto send = [&](size_t s) {
    const int64_t bytes = is_direct() ? kHeadBytes : steps_[s].count * record_bytes_;
    round.out[s] = links_.try_send(steps_[s].to, Tag::kHeader, record(turn, links_.position()), bytes);
  };
  for (size_t s = 0; s < steps_.size() && is_direct(); ++s) send(s);
  bool all = true;
  for (size_t s = 0; s < steps_.size(); ++s) {
    if (!is_direct()) send(s);
    all = all && links_.try_wait(round.in[s], deadline) && head(turn, steps_[s].from).magic == kGoodbye;
  }
  for (Links::Message& message : round.out) all = links_.try_wait(message, deadline) && all;
  return all;
}

}  // namespace ddp::socket
