#include "collective/socket/collectives.hpp"

#include <cstring>

namespace ddp::socket {

Course make_course(const Shares& shares, const FlatOwnership& owned, const cpu::ReduceRule& rule, Phases phases,
                   const SocketOptions& options) {
  const int64_t element = std::max(phases.collect ? shares.most_bytes(rule) : 1, dtype_size(rule.travel_dtype()));
  return Course{phases, Slicing(owned, element, shares.members(), options)};
}

Way way_of(const Shares& shares, const Course& course, int64_t count, const cpu::ReduceRule& rule, size_t words,
           const SocketOptions& options) noexcept {
  if (options.segment_bytes != 0) return Way::kDirect;
  const int64_t room = HeaderRound::room(shares, words);
  if (!course.phases.collect)
    return course.slicing.longest() * dtype_size(rule.travel_dtype()) <= room ? Way::kInline : Way::kDirect;
  const int64_t bytes = count * shares.most_bytes(rule);
  if (bytes <= room) return Way::kInline;
  return bytes * (shares.members() - 1) <= kMostWhole && course.phases.give ? Way::kWhole : Way::kDirect;
}

Collectives::Collectives(Links& line, const Shares& shares, const SocketOptions& options)
    : line_(line),
      shares_(shares),
      options_(options),
      header_(line, shares),
      sum_(shares),
      inline_result_(static_cast<size_t>(HeaderRound::kLargeRecord)) {
  line.set_levels(2 * header_.hops() + 2);
}

void Collectives::barrier(const collective::Stamp& stamp) {
  line_.set_subject(&stamp);
  collective::BucketHeader none;
  header_.open(stamp, 0, none, {});
  header_.swap(none);
  header_.close();
}

void Collectives::run(const collective::Stamp& stamp, ReduceInput& mine, const Course& course,
                      collective::BucketHeader& note) {
  line_.set_subject(&stamp);
  const Way way = way_of(shares_, course, mine.count(), mine.rule(), note.used.size(), options_);
  if (way != Way::kInline) memory_.reserve(line_.size());
  header_.open(stamp, course.slicing.segment() * 4 + static_cast<int64_t>(way), note, mine.participations());
  if (way == Way::kInline) put_inline(mine, course);
  header_.swap(note);
  mine.set_weight_sum(note.participation.weight);
  mine.learn(note);
  if (course.phases.collect) sum_.begin(mine.rule(), header_.participations());
  const bool is_void = note.is_void();
  if (way == Way::kInline && !is_void)
    take_inline(mine, course);
  else if (way == Way::kWhole && !is_void)
    swap_whole(mine);
  else if (!is_void)
    Exchange(line_, shares_, memory_, sum_, mine, course.slicing, course.phases, 2 * header_.hops()).run();
  header_.close();
}

void Collectives::put_inline(ReduceInput& mine, const Course& course) {
  const int32_t here = line_.position();
  const int64_t peers = line_.size() - 1;
  const auto put = [](std::byte* to, const void* from, int64_t bytes) {
    if (bytes > 0 && from != to) std::memcpy(to, from, static_cast<size_t>(bytes));
  };
  if (course.phases.collect) {
    const Span all{0, mine.count()};
    const int64_t bytes = all.count * shares_.bytes_of(here, mine.rule());
    put(header_.payload(), nodes_as_they_travel(mine, shares_.nodes_of(here), all, header_.payload()), bytes);
    line_.count_sent(bytes * peers);
    return;
  }
  const int64_t size = dtype_size(mine.rule().travel_dtype());
  each_own(course, here, [&](Span span, int64_t before) {
    std::byte* const to = header_.payload() + before * size;
    put(to, mine.values(span, to), span.count * size);
    line_.count_sent(span.count * size * peers);
  });
}

void Collectives::take_inline(ReduceInput& mine, const Course& course) {
  if (course.phases.collect) return add_inline(mine, course);
  const int64_t size = dtype_size(mine.rule().travel_dtype());
  for (int32_t member = 0; member < line_.size(); ++member)
    each_own(course, member,
             [&](Span span, int64_t before) { mine.deliver(header_.payload_of(member) + before * size, span); });
}

void Collectives::add_inline(ReduceInput& mine, const Course& course) {
  const Span all{0, mine.count()};
  if (all.count == 0) return;
  for (int32_t member = 0; member < line_.size(); ++member) sum_.set(member, header_.payload_of(member), all.count);
  void* landing = course.phases.give ? mine.landing(all) : nullptr;
  sum_.sum(landing != nullptr ? landing : inline_result_.data(), all.count);
  if (landing != nullptr) return;
  if (course.phases.give) return mine.deliver(inline_result_.data(), all);
  const int64_t size = dtype_size(mine.rule().travel_dtype());
  each_own(course, line_.position(),
           [&](Span span, int64_t) { mine.deliver(inline_result_.data() + span.first * size, span); });
}

// What was sent may be where the result goes, so it has left before the sum.
void Collectives::swap_whole(ReduceInput& mine) {
  const Span all{0, mine.count()};
  const int32_t here = line_.position();
  const int32_t level = 2 * header_.hops();
  const void* own = nodes_as_they_travel(mine, shares_.nodes_of(here), all, memory_.slot(ExchangeMemory::kPartIn, here, 0));
  for (int32_t step = 1; step < line_.size(); ++step) {
    const int32_t peer = line_.after(step);
    memory_.messages(peer, 0).part_in = line_.receive(peer, Tag::kPart, memory_.slot(ExchangeMemory::kPartIn, peer, 0),
                                                      all.count * shares_.bytes_of(peer, mine.rule()), level);
  }
  for (int32_t step = 1; step < line_.size(); ++step) {
    const int32_t peer = line_.before(step);
    memory_.messages(peer, 0).part_out =
        line_.send(peer, Tag::kPart, own, all.count * shares_.bytes_of(here, mine.rule()), level + 1);
  }
  sum_.set(here, own, all.count);
  for (int32_t step = 1; step < line_.size(); ++step) {
    const int32_t peer = line_.after(step);
    line_.wait(memory_.messages(peer, 0).part_in);
    sum_.set(peer, memory_.slot(ExchangeMemory::kPartIn, peer, 0), all.count);
  }
  for (int32_t step = 1; step < line_.size(); ++step) line_.wait(memory_.messages(line_.before(step), 0).part_out);
  void* landing = mine.landing(all);
  std::byte* const slot = memory_.slot(ExchangeMemory::kResult, here, 0);
  sum_.sum(landing != nullptr ? landing : slot, all.count);
  if (landing == nullptr) mine.deliver(slot, all);
}

}  // namespace ddp::socket
