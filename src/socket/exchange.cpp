// SPDX-License-Identifier: Apache-2.0
#include "socket/exchange.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace ddp::socket {

TreeSum::TreeSum(const Shares& shares) : shares_(shares), parts_of_(static_cast<size_t>(shares.members())) {
  for (int32_t member = 0; member < shares.members(); ++member)
    for (const SumNode& node : shares.nodes_of(member))
      parts_.push_back(cpu::SumPart{node.lo, node.hi, nullptr, is_leaf(node), 1});
  std::sort(parts_.begin(), parts_.end(), [](const cpu::SumPart& a, const cpu::SumPart& b) { return a.lo < b.lo; });
  for (int32_t member = 0; member < shares.members(); ++member)
    for (const SumNode& node : shares.nodes_of(member)) {
      const auto found = std::lower_bound(parts_.begin(), parts_.end(), node.lo,
                                          [](const cpu::SumPart& part, int64_t lo) { return part.lo < lo; });
      parts_of_[static_cast<size_t>(member)].push_back(static_cast<size_t>(found - parts_.begin()));
    }
  counts_.resize(parts_.size());
}

// A term that was packed has its weight already.
void TreeSum::begin(const cpu::ReduceRule& rule, const std::vector<collective::Participation>& participations) noexcept {
  rule_ = rule;
  for (size_t p = 0; p < parts_.size(); ++p) {
    cpu::SumPart& part = parts_[p];
    const auto lo = participations.begin() + part.lo, hi = participations.begin() + part.hi;
    counts_[p] =
        std::any_of(lo, hi, [](const collective::Participation& participation) { return participation.weight > 0; });
    part.is_leaf = part.hi - part.lo == 1 && !rule.is_wired();
    part.weight = part.is_leaf && !rule.summed ? lo->weight : 1;
  }
}

void TreeSum::set(int32_t member, const void* data, int64_t count) noexcept {
  const auto* at = static_cast<const std::byte*>(data);
  const std::vector<SumNode>& nodes = shares_.nodes_of(member);
  for (size_t n = 0; n < nodes.size(); ++n) {
    const size_t part = parts_of_[static_cast<size_t>(member)][n];
    parts_[part].data = counts_[part] ? at : nullptr;
    at += count * node_bytes(nodes[n], rule_);
  }
}

void TreeSum::sum(void* result, int64_t count) const noexcept {
  const auto number = static_cast<int32_t>(parts_.size());
  if (rule_.is_wired())
    cpu::combine_subtree(rule_, parts_.data(), number, shares_.leaves, result, count);
  else
    cpu::combine(rule_, parts_.data(), number, shares_.leaves, &result, 1, count);
}

void ExchangeMemory::reserve(int32_t members, int64_t depth) {
  if (memory_ != nullptr && most_ >= depth) {
    depth_ = depth;
    return;
  }
  const auto slots = static_cast<size_t>(members) * static_cast<size_t>(depth);
  messages_.resize(slots);
  results_.resize(static_cast<size_t>(depth));
  segment_ = (Slicing::largest_segment(members) + 4095) / 4096 * 4096;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(4096, 3 * slots * static_cast<size_t>(segment_)));
  if (memory == nullptr) throw std::bad_alloc();
  memory_.reset(memory);
  most_ = depth_ = depth;
}

const void* nodes_as_they_travel(ReduceInput& mine, const std::vector<SumNode>& nodes, Span span,
                                 std::byte* scratch) noexcept {
  if (nodes.size() == 1) return mine.node(0, span, scratch);
  std::byte* to = scratch;
  for (size_t n = 0; n < nodes.size(); ++n) {
    const auto bytes = static_cast<size_t>(span.count * node_bytes(nodes[n], mine.rule()));
    const void* node = mine.node(n, span, to);
    if (node != to) std::memcpy(to, node, bytes);
    to += bytes;
  }
  return scratch;
}

// The place of a result after its arrival.
std::byte* Exchange::place(int32_t owner, int64_t t) noexcept {
  void* landing = mine_.landing(slicing_.span(owner, t));
  return landing != nullptr ? static_cast<std::byte*>(landing) : memory_.slot(ExchangeMemory::kResult, owner, t);
}

int64_t Exchange::bytes_of(const Turn& turn, int32_t sender, int32_t owner) const noexcept {
  const int64_t count = slicing_.span(owner, turn.segment()).count;
  return count * (turn.is_of_parts() ? shares_.bytes_of(sender, mine_.rule()) : dtype_size(mine_.rule().travel_dtype()));
}

void Exchange::receive_next() {
  const Turn turn = received_;
  received_.advance(links_.size());
  if (!takes_place(turn)) return;
  const int32_t peer = links_.after(-turn.distance);
  const int64_t bytes = bytes_of(turn, peer, turn.is_of_parts() ? links_.position() : peer);
  if (bytes == 0) return;
  ExchangeMemory::Messages& messages = memory_.messages(peer, turn.segment());
  if (turn.is_of_parts())
    messages.part_in =
        links_.receive(peer, Tag::kPart, memory_.slot(ExchangeMemory::kPartIn, peer, turn.segment()), bytes, level_);
  else
    messages.result_in = links_.receive(peer, Tag::kResult, place(peer, turn.segment()), bytes, level_ + 1);
  ++receiving_;
}

// A result may overwrite the part that it is formed from: that was read by then.
void Exchange::send_next() {
  const Turn turn = sent_;
  sent_.advance(links_.size());
  if (!takes_place(turn)) return;
  const int32_t here = links_.position(), peer = links_.after(turn.distance);
  const int64_t bytes = bytes_of(turn, here, turn.is_of_parts() ? peer : here);
  if (bytes == 0) return;
  ExchangeMemory::Messages& messages = memory_.messages(peer, turn.segment());
  if (turn.is_of_parts()) {
    const void* part = nodes_as_they_travel(mine_, shares_.nodes_of(here), slicing_.span(peer, turn.segment()),
                                            memory_.slot(ExchangeMemory::kPartOut, peer, turn.segment()));
    messages.part_out = links_.send(peer, Tag::kPart, part, bytes, level_ + 1);
  } else {
    messages.result_out = links_.send(peer, Tag::kResult, memory_.result(turn.segment()), bytes, level_ + 1);
  }
  ++sending_;
}

// In turns, the next member is asked when all of the one before has come: even its first segment would meet the last one
// in a small buffer.
bool Exchange::may_receive(const Turn& now) const noexcept {
  return !by_member() || receiving_ == 0 || received_.is_with_the_same(now);
}

bool Exchange::may_send() const noexcept {
  if (by_member() && sending_ > 0) return false;
  return sent_.is_of_parts() || sent_.segment() < formed_ || sent_.segment() >= slicing_.number();
}

// A slot is used again when the round that used it is over.
void Exchange::post(const Turn& now) {
  const int64_t end = std::min(rounds(), now.round + 2 * (course_.depth / course_.burst));
  while (received_.round < end && may_receive(now)) receive_next();
  while (sent_.round < end && may_send()) send_next();
}

// As much on all members, whatever their slices. Where nothing is added no bucket is void, so results may land in the array.
void Exchange::post_ahead() {
  int64_t number = by_member() ? kPostedAhead : kPostedAhead * (links_.size() - 1);
  while (number > 0 && received_.round < rounds()) {
    if (takes_place(received_)) --number;
    receive_next();
  }
}

// One byte ends a receive.
void Exchange::call_off() {
  if (!phases_.collect) return;
  const auto each_received = [&](const auto& fn) {
    for (Turn turn = first(); !(turn == received_); turn.advance(links_.size()))
      if (turn.is_of_parts()) fn(links_.after(turn.distance), turn.segment());
  };
  each_received([&](int32_t peer, int64_t t) {
    std::byte* const nothing = memory_.slot(ExchangeMemory::kPartOut, peer, t);
    *nothing = std::byte{0};
    if (slicing_.span(peer, t).count > 0)
      memory_.messages(peer, t).part_out = links_.send(peer, Tag::kPart, nothing, 1, level_ + 1);
  });
  each_received([&](int32_t peer, int64_t t) { links_.wait(memory_.messages(peer, t).part_out); });
  for (int64_t t = 0; t < std::min(kPostedAhead, slicing_.number()); ++t)
    for (int32_t peer = 0; peer < links_.size(); ++peer) links_.wait(memory_.messages(peer, t).part_in);
}

// Its segment of step t.
void Exchange::form(int64_t t) {
  const int32_t here = links_.position();
  const Span span = slicing_.span(here, t);
  formed_ = t + 1;
  if (span.count == 0) return;
  std::byte* const slot = memory_.slot(ExchangeMemory::kResult, here, t);
  if (!phases_.collect) {
    memory_.set_result(t, mine_.values(span, slot));
    if (mine_.landing(span) == nullptr) mine_.deliver(memory_.result(t), span);
    return;
  }
  for (int32_t member = 0; member < links_.size(); ++member) {
    std::byte* const nodes = memory_.slot(ExchangeMemory::kPartIn, member, t);
    sum_.set(member, member == here ? nodes_as_they_travel(mine_, shares_.nodes_of(here), span, nodes) : nodes, span.count);
  }
  std::byte* const to = place(here, t);
  sum_.sum(to, span.count);
  memory_.set_result(t, to);
  if (to == slot) mine_.deliver(to, span);
}

void Exchange::finish(const Turn& turn) {
  const auto wait = [&](Links::Message& message, int64_t& under_way) {
    if (!message.open) return;
    links_.wait(message);
    --under_way;
    post(turn);
  };
  const int64_t t = turn.segment();
  ExchangeMemory::Messages& out = memory_.messages(links_.after(turn.distance), t);
  wait(turn.is_of_parts() ? out.part_out : out.result_out, sending_);
  const int32_t peer = links_.after(-turn.distance);
  ExchangeMemory::Messages& in = memory_.messages(peer, t);
  wait(turn.is_of_parts() ? in.part_in : in.result_in, receiving_);
  if (turn.is_of_parts()) return;
  std::byte* const result = memory_.slot(ExchangeMemory::kResult, peer, t);
  const Span span = slicing_.span(peer, t);
  if (span.count > 0 && place(peer, t) == result) mine_.deliver(result, span);
}

void Exchange::run() {
  for (Turn turn = first(); turn.round < rounds(); turn.advance(links_.size())) {
    post(turn);
    if (takes_place(turn)) finish(turn);
    const bool all_parts = turn.is_of_parts() && turn.distance >= links_.size() - 1;
    if (all_parts && turn.segment() < slicing_.number()) form(turn.segment());
  }
}

}  // namespace ddp::socket
