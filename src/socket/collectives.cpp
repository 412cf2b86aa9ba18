// SPDX-License-Identifier: Apache-2.0
#include "socket/collectives.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "os/log.hpp"

namespace ddp::socket {

ResultRound::ResultRound(Links& links, int64_t most)
    : links_(links),
      most_((most + 4095) / 4096 * 4096),
      in_(static_cast<size_t>(links.size())),
      out_(static_cast<size_t>(links.size())) {
  if (most_ == 0) return;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<size_t>(most_ * links.size()))));
  if (memory_ == nullptr) throw std::bad_alloc();
}

void ResultRound::arm() noexcept {
  for (int32_t member = 0; member < links_.size() && most_ > 0; ++member) arm(member);
}

// A peer may have left after the last collective; that is no failure until the next one.
void ResultRound::arm(int32_t member) noexcept {
  if (member != links_.position())
    in_[static_cast<size_t>(member)] = links_.try_receive(member, Tag::kShortResult, of(member), most_, 1);
}

void ResultRound::send(int64_t bytes, int32_t level) {
  for (int32_t step = 1; step < links_.size() && bytes > 0; ++step) {
    const int32_t peer = links_.after(-step);
    out_[static_cast<size_t>(peer)] = links_.send(peer, Tag::kShortResult, of(links_.position()), bytes, level);
  }
}

void ResultRound::wait(int32_t member, int32_t level) {
  Links::Message& in = in_[static_cast<size_t>(member)];
  if (!in.open) in = links_.receive(member, Tag::kShortResult, of(member), most_, level);
  links_.wait(in);
}

void ResultRound::close() {
  for (int32_t member = 0; member < links_.size() && most_ > 0; ++member) {
    links_.wait(out_[static_cast<size_t>(member)]);
    if (!in_[static_cast<size_t>(member)].open) arm(member);
  }
}

namespace {

constexpr int64_t kMostAtOnce = int64_t{16} << 20;  // bytes of a message that is passed on
constexpr int64_t kLongSlice = int64_t{256} << 10;  // of a shorter one too little is sent in a row to gain by turns
constexpr int64_t kPartAlignment = 16;              // of a segment among those that are sent together

int64_t aligned(int64_t bytes) noexcept { return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment; }

/// Calls fn(span, bytes before it) for each segment of the member's slice, of which an element has `size` bytes. All bytes.
template <class Fn>
int64_t each_part(const Slicing& slicing, int32_t member, int64_t size, const Fn& fn) {
  int64_t bytes = 0;
  for (int64_t t = 0; t < slicing.number(); ++t) {
    const Span span = slicing.span(member, t);
    if (span.count == 0) continue;
    fn(span, aligned(bytes));
    bytes = aligned(bytes) + span.count * size;
  }
  return bytes;
}

}  // namespace

Schedule make_schedule(const Shares& shares, const FlatOwnership& owned, const cpu::ReduceRule& rule, Phases phases,
                       const SocketOptions& options) {
  const int64_t element = std::max(phases.collect ? shares.most_bytes(rule) : 1, dtype_size(rule.travel_dtype()));
  return Schedule{phases, Slicing(owned, element, shares.members(), options)};
}

Algorithm algorithm_of(const Shares& shares, const Schedule& schedule, int64_t count, const cpu::ReduceRule& rule,
                       size_t words, const SocketOptions& options) noexcept {
  if (options.segment_bytes != 0) return Algorithm::kDirect;
  const int64_t room = HeaderRound::room(shares, words);
  const int64_t longest = schedule.slicing.longest(), members = shares.members();
  if (!schedule.phases.collect)
    return longest * dtype_size(rule.travel_dtype()) <= room ? Algorithm::kInline : Algorithm::kDirect;
  const int64_t bytes = count * shares.most_bytes(rule);
  // Of two members each sends half of an array twice, or all of it once.
  const bool is_little = schedule.phases.give && (members == 2 || bytes * (members - 1) <= kMostWhole);
  if (bytes <= room && (bytes <= kAlwaysInline || is_little)) return Algorithm::kInline;
  if (!HeaderRound::is_direct(shares.members())) return is_little ? Algorithm::kWhole : Algorithm::kDirect;
  const int64_t part = longest * shares.most_bytes(rule) + (schedule.slicing.number() - 1) * kPartAlignment;
  return part <= room ? Algorithm::kShort : Algorithm::kDirect;
}

Collectives::Collectives(Links& links, const Shares& shares, const SocketOptions& options)
    : links_(links),
      shares_(shares),
      options_(options),
      header_(links, shares),
      sum_(shares),
      results_(links, HeaderRound::is_direct(links.size()) ? HeaderRound::room(shares, 0) : 0),
      inline_result_(static_cast<size_t>(HeaderRound::is_direct(links.size()) ? 0 : HeaderRound::kSmallRecord)),
      part_at_(static_cast<size_t>(links.size())) {
  links.set_levels(2 * header_.hops() + 2);
  header_.arm();  // last: an exception would free memory that is received into
  results_.arm();
}

void Collectives::barrier(const collective::Stamp& stamp) {
  const Links::Doing doing(links_, stamp);
  collective::BucketHeader none;
  header_.open(stamp, 0, none, {});
  swap_headers(none);
  header_.close();
}

void Collectives::run(const collective::Stamp& stamp, ReduceInput& mine, const Schedule& schedule,
                      collective::BucketHeader& header) {
  const Links::Doing doing(links_, stamp);
  const Algorithm algorithm = algorithm_of(shares_, schedule, mine.count(), mine.rule(), header.used.size(), options_);
  const bool has_parts = algorithm == Algorithm::kWhole || algorithm == Algorithm::kDirect;
  const Course course = algorithm == Algorithm::kDirect ? course_of(schedule, mine.rule()) : Course{};
  if (has_parts) memory_.reserve(links_.size(), course.depth);
  Exchange direct(links_, shares_, memory_, sum_, mine, schedule.slicing, schedule.phases, course, 2 * header_.hops());
  header_.open(stamp, schedule.slicing.segment() * 4 + static_cast<int64_t>(algorithm), header, mine.participations());
  if (algorithm == Algorithm::kInline) put_inline(mine, schedule);
  if (algorithm == Algorithm::kShort) put_parts(mine, schedule);
  if (algorithm == Algorithm::kDirect) direct.post_ahead();
  swap_headers(header);
  mine.set_weight_sum(header.participation.weight);
  mine.learn(header);
  if (schedule.phases.collect) sum_.begin(mine.rule(), header_.participations());
  const bool is_void = header.is_void();
  bool lost = false;
  switch (algorithm) {
    case Algorithm::kInline: is_void ? void() : take_inline(mine, schedule); break;
    case Algorithm::kShort: is_void ? void() : swap_parts(mine, schedule); break;
    case Algorithm::kWhole: is_void ? void() : swap_whole(mine); break;
    case Algorithm::kDirect: is_void ? direct.call_off() : void(lost = exchange(direct, schedule, mine.rule())); break;
  }
  header_.close();
  header_.set_lost(lost);
}

void Collectives::swap_headers(collective::BucketHeader& header) {
  header_.swap(header);
  const int64_t turns = congestion_.learn(header_.anybody_lost());
  if (turns > 0 && links_.position() == 0)
    os::log(DDP_LOG_INFO,
            "packets are lost where several hosts send to one at a time; in the next %lld large exchanges they take turns",
            static_cast<long long>(turns));
}

// Equal on all members.
bool Collectives::may_take_turns(const Schedule& schedule, const cpu::ReduceRule& rule) const noexcept {
  return links_.size() > kFewMembers && schedule.slicing.longest() * dtype_size(rule.travel_dtype()) >= kLongSlice;
}

Course Collectives::course_of(const Schedule& schedule, const cpu::ReduceRule& rule) noexcept {
  if (may_take_turns(schedule, rule) && congestion_.next() == Order::kByMember) {
    const int32_t burst = Slicing::burst(links_.size());
    return Course{burst, 2 * burst};
  }
  return Course{1, 1 + (options_.ahead > 0 ? options_.ahead : Slicing::ahead(links_.size(), links_.are_long()))};
}

// Did this member lose something? Over long links turns would cost more than the losses.
bool Collectives::exchange(Exchange& direct, const Schedule& schedule, const cpu::ReduceRule& rule) {
  const int64_t phases = int64_t{schedule.phases.collect} + int64_t{schedule.phases.give};
  const int64_t bytes = phases * (links_.size() - 1) * schedule.slicing.longest() * dtype_size(rule.travel_dtype());
  const bool looks = may_take_turns(schedule, rule) && !direct.by_member() && !links_.are_long();
  const int64_t before = looks ? links_.gaps() : 0;
  direct.run();
  return looks && Congestion::is_loss(links_.gaps() - before, bytes);
}

void Collectives::pass_on(const collective::Stamp& stamp, int32_t to, const Tensor& sent, int32_t from,
                          const Tensor& received) {
  const Links::Doing doing(links_, stamp);
  collective::BucketHeader none;
  header_.open(stamp, 0, none, {});
  swap_headers(none);
  const int32_t level = 2 * header_.hops();
  for (int64_t at = 0; at < sent.bytes() || at < received.bytes(); at += kMostAtOnce) {
    Links::Message in, out;
    if (at < received.bytes())
      in = links_.receive(from, Tag::kPart, received.data + at, std::min(kMostAtOnce, received.bytes() - at), level);
    if (at < sent.bytes())
      out = links_.send(to, Tag::kPart, sent.data + at, std::min(kMostAtOnce, sent.bytes() - at), level + 1);
    links_.wait(in);
    links_.wait(out);
  }
  header_.close();
}

void Collectives::put_inline(ReduceInput& mine, const Schedule& schedule) {
  const int32_t here = links_.position();
  const auto put = [](std::byte* to, const void* from, int64_t bytes) {
    if (bytes > 0 && from != to) std::memcpy(to, from, static_cast<size_t>(bytes));
  };
  if (schedule.phases.collect) {
    const Span all{0, mine.count()};
    const int64_t bytes = all.count * shares_.bytes_of(here, mine.rule());
    put(header_.payload(), nodes_as_they_travel(mine, shares_.nodes_of(here), all, header_.payload()), bytes);
    header_.set_payload(bytes);
    return;
  }
  const int64_t size = dtype_size(mine.rule().travel_dtype());
  each_own(schedule, here, [&](Span span, int64_t before) {
    std::byte* const to = header_.payload() + before * size;
    put(to, mine.values(span, to), span.count * size);
    header_.set_payload((before + span.count) * size);
  });
}

void Collectives::take_inline(ReduceInput& mine, const Schedule& schedule) {
  if (schedule.phases.collect) return add_inline(mine, schedule);
  const int64_t size = dtype_size(mine.rule().travel_dtype());
  for (int32_t member = 0; member < links_.size(); ++member)
    each_own(schedule, member,
             [&](Span span, int64_t before) { mine.deliver(header_.payload_of(member) + before * size, span); });
}

void Collectives::add_inline(ReduceInput& mine, const Schedule& schedule) {
  const Span all{0, mine.count()};
  if (all.count == 0) return;
  for (int32_t member = 0; member < links_.size(); ++member) sum_.set(member, header_.payload_of(member), all.count);
  void* landing = schedule.phases.give ? mine.landing(all) : nullptr;
  std::byte* const result = inline_result_.empty() ? results_.of(links_.position()) : inline_result_.data();
  sum_.sum(landing != nullptr ? landing : result, all.count);
  if (landing != nullptr) return;
  if (schedule.phases.give) return mine.deliver(result, all);
  const int64_t size = dtype_size(mine.rule().travel_dtype());
  each_own(schedule, links_.position(), [&](Span span, int64_t) { mine.deliver(result + span.first * size, span); });
}

void Collectives::put_parts(ReduceInput& mine, const Schedule& schedule) {
  const int32_t here = links_.position();
  const int64_t size = shares_.bytes_of(here, mine.rule());
  for (int32_t step = 1; step < links_.size(); ++step) {
    const int32_t peer = links_.after(step);
    std::byte* const payload = header_.payload_to(peer);
    const int64_t bytes = each_part(schedule.slicing, peer, size, [&](Span span, int64_t before) {
      const void* part = nodes_as_they_travel(mine, shares_.nodes_of(here), span, payload + before);
      if (part != payload + before) std::memcpy(payload + before, part, static_cast<size_t>(span.count * size));
    });
    header_.set_payload_to(peer, bytes);
  }
}

// The own slice is delivered when all have been sent: a node may be in the place of a result.
void Collectives::swap_parts(ReduceInput& mine, const Schedule& schedule) {
  const int32_t level = header_.hops();
  const int64_t size = dtype_size(mine.rule().travel_dtype());
  add_parts(mine, schedule);
  const auto deliver = [&](int32_t member) {
    return each_part(schedule.slicing, member, size,
                     [&](Span span, int64_t before) { mine.deliver(results_.of(member) + before, span); });
  };
  const int64_t own = deliver(links_.position());
  if (!schedule.phases.give) return;
  results_.send(own, level);
  for (int32_t step = 1; step < links_.size(); ++step) {
    const int32_t peer = links_.after(step);
    if (schedule.slicing.span(peer, 0).count == 0) continue;
    results_.wait(peer, level);
    static_cast<void>(deliver(peer));
  }
  results_.close();
}

void Collectives::add_parts(ReduceInput& mine, const Schedule& schedule) {
  const int32_t here = links_.position();
  const int64_t size = dtype_size(mine.rule().travel_dtype());
  std::byte* result = results_.of(here);
  std::vector<int64_t>& at = part_at_;
  std::fill(at.begin(), at.end(), 0);
  static_cast<void>(each_part(schedule.slicing, here, size, [&](Span span, int64_t before) {
    for (int32_t member = 0; member < links_.size(); ++member) {
      std::byte* const part = header_.payload_of(member) + at[static_cast<size_t>(member)];
      sum_.set(member, member == here ? nodes_as_they_travel(mine, shares_.nodes_of(here), span, part) : part, span.count);
      at[static_cast<size_t>(member)] += aligned(span.count * shares_.bytes_of(member, mine.rule()));
    }
    sum_.sum(result + before, span.count);
  }));
}

// What was sent may be where the result goes, so it has left before the sum.
void Collectives::swap_whole(ReduceInput& mine) {
  const Span all{0, mine.count()};
  const int32_t here = links_.position();
  const int32_t level = 2 * header_.hops();
  const void* own = nodes_as_they_travel(mine, shares_.nodes_of(here), all, memory_.slot(ExchangeMemory::kPartIn, here, 0));
  for (int32_t step = 1; step < links_.size(); ++step) {
    const int32_t peer = links_.after(step);
    memory_.messages(peer, 0).part_in = links_.receive(peer, Tag::kPart, memory_.slot(ExchangeMemory::kPartIn, peer, 0),
                                                       all.count * shares_.bytes_of(peer, mine.rule()), level);
  }
  for (int32_t step = 1; step < links_.size(); ++step) {
    const int32_t peer = links_.after(-step);
    memory_.messages(peer, 0).part_out =
        links_.send(peer, Tag::kPart, own, all.count * shares_.bytes_of(here, mine.rule()), level + 1);
  }
  sum_.set(here, own, all.count);
  for (int32_t step = 1; step < links_.size(); ++step) {
    const int32_t peer = links_.after(step);
    links_.wait(memory_.messages(peer, 0).part_in);
    sum_.set(peer, memory_.slot(ExchangeMemory::kPartIn, peer, 0), all.count);
  }
  for (int32_t step = 1; step < links_.size(); ++step) links_.wait(memory_.messages(links_.after(-step), 0).part_out);
  void* landing = mine.landing(all);
  std::byte* const slot = memory_.slot(ExchangeMemory::kResult, here, 0);
  sum_.sum(landing != nullptr ? landing : slot, all.count);
  if (landing == nullptr) mine.deliver(slot, all);
}

}  // namespace ddp::socket
