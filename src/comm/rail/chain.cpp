#include "comm/rail/chain.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/rail/pipeline.hpp"

namespace ddp {
namespace {

constexpr int64_t kSpreadBytes = kLargestSegment;  // of one message of a broadcast
static_assert(sizeof(Exchange::Tallies) <= static_cast<size_t>(Sweep::kRiderBytes));

}  // namespace

Chain::Chain(Line& line, const ChainOptions& options) : line_(line), options_(options), sweep_(line) {}

void Chain::all_agree(const Stamp& stamp) {
  Note none;
  sweep_.open(stamp, 0, none, {});
  sweep_.pass_up();
  sweep_.turn(none);
  sweep_.pass_down();
}

void Chain::barrier(const Stamp& stamp) {
  line_.set_subject(&stamp);
  all_agree(stamp);
  sweep_.close();
}

void Chain::reduce(const Stamp& stamp, Contribution& mine, Note& note) {
  line_.set_subject(&stamp);
  if (is_direct(mine.count(), mine.rule())) return reduce_direct(stamp, mine, note);
  const Segments segments(mine.count(), mine.rule(), line_.size(), options_);
  sweep_.open(stamp, segments.segment_bytes(), note, mine.tallies());
  mine.set_weight_sum(sweep_.up_to_here().weight);  // for the last member, which knows all
  if (mine.count() * segments.carry_size() <= Sweep::kRiderBytes && options_.segment_bytes == 0)
    reduce_riding(mine, segments, note);
  else
    reduce_piped(mine, segments, note);
  sweep_.close();
}

void Chain::reduce_riding(Contribution& mine, const Segments& segments, Note& note) {
  const bool raw = is_raw(mine.rule());
  const Span all{0, mine.count()};
  Incoming in;
  if (sweep_.below().contributors > 0)
    in = Incoming{sweep_.from_below(), raw && line_.position() == 1, sweep_.below().weight};
  if (line_.is_first() && !line_.is_last() && raw) {
    const void* own = mine.own(all, sweep_.to_above());
    const auto bytes = static_cast<size_t>(all.count * dtype_size(mine.rule().dtype));
    if (own != sweep_.to_above() && bytes > 0) std::memcpy(sweep_.to_above(), own, bytes);
  } else if (!line_.is_last()) {
    mine.add(in, sweep_.to_above(), all);
  }
  if (!line_.is_last()) line_.count_sent(all.count * (line_.is_first() && raw ? segments.element_size() : segments.carry_size()));
  sweep_.pass_up();
  sweep_.turn(note);
  mine.set_weight_sum(note.tally.weight);
  mine.learn(note);
  if (line_.is_last() && !note.is_void()) mine.finish(in, sweep_.result(), all);
  if (!line_.is_first()) line_.count_sent(all.count * segments.element_size());
  sweep_.pass_down();
  if (!note.is_void()) mine.deliver(sweep_.result(), all);
}

void Chain::reduce_piped(Contribution& mine, const Segments& segments, Note& note) {
  scratch_.reserve();
  sweep_.pass_up();
  Pipeline(line_, sweep_, scratch_, mine, segments, is_raw(mine.rule())).run(note);
}

void Chain::reduce_direct(const Stamp& stamp, Contribution& mine, Note& note) {
  const int64_t size = dtype_size(mine.rule().travel_dtype());
  const Slicing slicing(mine.count(), size, line_.size(), mine.keeps_part(), options_);
  exchange_memory_.reserve(line_.size());
  sweep_.open(stamp, -slicing.segment_bytes(), note, mine.tallies());  // negative: no chain cuts like this
  const Exchange::Tallies tallies = meet_tallies(mine, note);
  mine.set_weight_sum(note.tally.weight);
  mine.learn(note);
  if (!note.is_void()) Exchange(line_, exchange_memory_, mine, slicing, tallies).run();
  sweep_.close();
}

// Everybody's tally rides on the sweep.
Exchange::Tallies Chain::meet_tallies(Contribution& mine, Note& note) {
  Exchange::Tallies tallies{};
  const size_t bytes = sizeof(Tally) * static_cast<size_t>(line_.size());
  if (!line_.is_first()) std::memcpy(tallies.data(), sweep_.from_below(), bytes);
  tallies[static_cast<size_t>(line_.position())] = mine.tallies().front();
  std::memcpy(sweep_.to_above(), tallies.data(), bytes);
  sweep_.pass_up();
  sweep_.turn(note);
  if (line_.is_last()) std::memcpy(sweep_.result(), tallies.data(), bytes);
  sweep_.pass_down();
  std::memcpy(tallies.data(), sweep_.result(), bytes);
  return tallies;
}

void Chain::all_gather(const Stamp& stamp, const std::byte* mine, std::byte* all, int64_t part_bytes) {
  line_.set_subject(&stamp);
  const int64_t total = part_bytes * line_.size();
  const int64_t begin = part_bytes * line_.position();
  const auto copy = [](std::byte* to, const std::byte* from, int64_t bytes) {
    if (bytes > 0 && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
  };
  if (total > Sweep::kRiderBytes) {
    all_agree(stamp);
    copy(all + begin, mine, part_bytes);
    if (goes_direct(total, line_.size(), options_))
      gather_direct(all, part_bytes);
    else
      gather_parts(all, part_bytes);
  } else {
    Note none;
    sweep_.open(stamp, 0, none, {});
    std::byte* rider = line_.is_last() ? sweep_.result() : sweep_.to_above();
    if (!line_.is_first()) copy(rider, sweep_.from_below(), begin);
    copy(rider + begin, mine, part_bytes);
    sweep_.pass_up();
    sweep_.turn(none);
    sweep_.pass_down();
    copy(all, sweep_.result(), total);
  }
  sweep_.close();
}

void Chain::gather_direct(std::byte* all, int64_t part_bytes) {
  exchange_memory_.reserve(line_.size());
  const int32_t here = line_.position(), size = line_.size();
  for (int32_t step = 1; step < size; ++step) {
    const int32_t from = (here + size - step) % size;
    exchange_memory_.messages(from, 0).result_in = line_.receive(from, Tag::kResult, all + from * part_bytes, part_bytes);
  }
  for (int32_t step = 1; step < size; ++step) {
    const int32_t to = (here + step) % size;
    exchange_memory_.messages(to, 0).result_out = line_.send(to, Tag::kResult, all + here * part_bytes, part_bytes);
  }
  for (int32_t peer = 0; peer < size; ++peer) {
    line_.wait(exchange_memory_.messages(peer, 0).result_in);
    line_.wait(exchange_memory_.messages(peer, 0).result_out);
  }
}

// In step i a member passes on what it got in step i - 1: parts from below go up, parts from above go down, its own goes both ways.
void Chain::gather_parts(std::byte* all, int64_t part_bytes) {
  const int32_t here = line_.position();
  const auto part = [&](int32_t index) { return all + index * part_bytes; };
  Line::Message to_above, to_below;
  for (int32_t i = 0; i < line_.size(); ++i) {
    Line::Message from_below, from_above;
    if (here - 1 - i >= 0) from_below = line_.receive(Side::kBelow, Tag::kData, part(here - 1 - i), part_bytes);
    if (here + 1 + i <= line_.last()) from_above = line_.receive(Side::kAbove, Tag::kData, part(here + 1 + i), part_bytes);
    line_.wait(to_above);
    line_.wait(to_below);
    if (!line_.is_last() && here - i >= 0) to_above = line_.send(Side::kAbove, Tag::kData, part(here - i), part_bytes);
    if (!line_.is_first() && here + i <= line_.last())
      to_below = line_.send(Side::kBelow, Tag::kData, part(here + i), part_bytes);
    line_.wait(from_below);
    line_.wait(from_above);
  }
  line_.wait(to_above);
  line_.wait(to_below);
}

void Chain::broadcast(const Stamp& stamp, std::byte* data, int64_t bytes, int32_t root_position) {
  line_.set_subject(&stamp);
  const bool root = line_.position() == root_position;
  if (bytes > Sweep::kRiderBytes) {
    all_agree(stamp);
    spread(data, bytes, root_position);
  } else {
    Note none;
    sweep_.open(stamp, 0, none, {});
    std::byte* rider = line_.is_last() ? sweep_.result() : sweep_.to_above();
    const auto length = static_cast<size_t>(bytes);
    if (root && bytes > 0) std::memcpy(rider, data, length);
    if (line_.position() > root_position) std::memcpy(rider, sweep_.from_below(), length);
    sweep_.pass_up();
    sweep_.turn(none);
    sweep_.pass_down();
    if (!root && bytes > 0) std::memcpy(data, sweep_.result(), length);
  }
  sweep_.close();
}

// From the root to both ends, message after message; each member passes on what lies in its array already.
void Chain::spread(std::byte* data, int64_t bytes, int32_t root_position) {
  const int32_t here = line_.position();
  const int64_t number = (bytes + kSpreadBytes - 1) / kSpreadBytes;
  const auto size = [&](int64_t t) { return std::min(kSpreadBytes, bytes - t * kSpreadBytes); };
  const Side source = here > root_position ? Side::kBelow : Side::kAbove;
  const bool goes_up = here >= root_position && !line_.is_last();
  const bool goes_down = here <= root_position && !line_.is_first();
  std::array<Line::Message, kDepth> in{}, up{}, down{};
  const auto post = [&](int64_t t) {
    if (here != root_position && t < number)
      in[static_cast<size_t>(t % kDepth)] = line_.receive(source, Tag::kData, data + t * kSpreadBytes, size(t));
  };
  for (int64_t t = 0; t < kDepth; ++t) post(t);
  for (int64_t t = 0; t < number; ++t) {
    const auto slot = static_cast<size_t>(t % kDepth);
    line_.wait(in[slot]);
    post(t + kDepth);
    line_.wait(up[slot]);
    line_.wait(down[slot]);
    if (goes_up) up[slot] = line_.send(Side::kAbove, Tag::kData, data + t * kSpreadBytes, size(t));
    if (goes_down) down[slot] = line_.send(Side::kBelow, Tag::kData, data + t * kSpreadBytes, size(t));
  }
  for (Line::Message& message : up) line_.wait(message);
  for (Line::Message& message : down) line_.wait(message);
}

}  // namespace ddp
