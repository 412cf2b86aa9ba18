// SPDX-License-Identifier: Apache-2.0
#include "collective/socket/exchange.hpp"

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

void ExchangeMemory::reserve(int32_t members, int64_t ahead) {
  if (memory_ != nullptr) return;
  depth_ = ahead + 1;
  const auto slots = static_cast<size_t>(members) * static_cast<size_t>(depth_);
  messages_.resize(slots);
  segment_ = (Slicing::largest_segment(members) + 4095) / 4096 * 4096;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, 3 * slots * static_cast<size_t>(segment_))));
  if (memory_ == nullptr) throw std::bad_alloc();
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

// Where a result lies from its arrival on.
std::byte* Exchange::place(int32_t owner, int64_t t) noexcept {
  void* landing = mine_.landing(slicing_.span(owner, t));
  return landing != nullptr ? static_cast<std::byte*>(landing) : memory_.slot(ExchangeMemory::kResult, owner, t);
}

void Exchange::receive_parts(int64_t t) {
  const int64_t own = slicing_.span(links_.position(), t).count;
  if (own == 0) return;
  each_peer([&](int32_t peer) {
    memory_.messages(peer, t).part_in = links_.receive(peer, Tag::kPart, memory_.slot(ExchangeMemory::kPartIn, peer, t),
                                                       own * shares_.bytes_of(peer, mine_.rule()), level_);
  });
}

void Exchange::receive_result(int32_t peer, int64_t t) {
  const int64_t count = slicing_.span(peer, t).count;
  if (count > 0)
    memory_.messages(peer, t).result_in =
        links_.receive(peer, Tag::kResult, place(peer, t), count * dtype_size(mine_.rule().travel_dtype()), level_ + 1);
}

// Where nothing is added no bucket is void, so results may land in the array.
void Exchange::post_ahead() {
  for (; posted_ < first(kPostedAhead); ++posted_)
    if (phases_.collect)
      receive_parts(posted_);
    else
      each_peer([&](int32_t peer) { receive_result(peer, posted_); });
}

// One byte ends a receive.
void Exchange::call_off() {
  for (int64_t t = 0; t < posted_ && phases_.collect; ++t)
    each_peer([&](int32_t peer) {
      std::byte* const nothing = memory_.slot(ExchangeMemory::kPartOut, peer, t);
      *nothing = std::byte{0};
      if (slicing_.span(peer, t).count > 0)
        memory_.messages(peer, t).part_out = links_.send(peer, Tag::kPart, nothing, 1, level_ + 1);
    });
  for (int64_t t = 0; t < posted_ && phases_.collect; ++t)
    each_peer([&](int32_t peer) {
      links_.wait(memory_.messages(peer, t).part_in);
      links_.wait(memory_.messages(peer, t).part_out);
    });
}

// A result may land where the part lies, so it is received after the part was sent: it is formed from it.
void Exchange::begin(int64_t t) {
  if (t >= slicing_.number()) return;
  if (t >= posted_ && phases_.collect) receive_parts(t);
  each_peer([&](int32_t peer) { swap(peer, t); });
}

// This member's part of the peer's segment against the result.
void Exchange::swap(int32_t peer, int64_t t) {
  const Span span = slicing_.span(peer, t);
  if (span.count == 0) return;
  ExchangeMemory::Messages& messages = memory_.messages(peer, t);
  if (phases_.collect) {
    const std::vector<SumNode>& nodes = shares_.nodes_of(links_.position());
    const void* part = nodes_as_they_travel(mine_, nodes, span, memory_.slot(ExchangeMemory::kPartOut, peer, t));
    messages.part_out =
        links_.send(peer, Tag::kPart, part, span.count * shares_.bytes_of(links_.position(), mine_.rule()), level_ + 1);
  }
  if (phases_.give && (phases_.collect || t >= posted_)) receive_result(peer, t);
}

void Exchange::form(std::byte* result, Span span, int64_t t) {
  const int32_t here = links_.position();
  std::byte* const scratch = memory_.slot(ExchangeMemory::kPartIn, here, t);
  for (int32_t member = 0; member < links_.size(); ++member) {
    const void* nodes = memory_.slot(ExchangeMemory::kPartIn, member, t);
    if (member == here)
      nodes = nodes_as_they_travel(mine_, shares_.nodes_of(here), span, scratch);
    else
      links_.wait(memory_.messages(member, t).part_in);
    sum_.set(member, nodes, span.count);
  }
  sum_.sum(result, span.count);
}

void Exchange::add(int64_t t) {
  const int32_t here = links_.position();
  const Span span = slicing_.span(here, t);
  if (span.count == 0) return;
  std::byte* const slot = memory_.slot(ExchangeMemory::kResult, here, t);
  const void* result = nullptr;
  if (phases_.collect) {
    std::byte* const to = place(here, t);
    form(to, span, t);
    result = to;
  } else {
    result = mine_.values(span, slot);
  }
  if (phases_.give)
    each_peer([&](int32_t peer) {
      memory_.messages(peer, t).result_out =
          links_.send(peer, Tag::kResult, result, span.count * dtype_size(mine_.rule().travel_dtype()), level_ + 1);
    });
  if (phases_.collect ? result == slot : mine_.landing(span) == nullptr) mine_.deliver(result, span);
}

void Exchange::settle(int64_t t) {
  each_peer([&](int32_t peer) {
    ExchangeMemory::Messages& messages = memory_.messages(peer, t);
    links_.wait(messages.part_out);
    links_.wait(messages.result_in);
    links_.wait(messages.result_out);
    const Span span = slicing_.span(peer, t);
    std::byte* const result = memory_.slot(ExchangeMemory::kResult, peer, t);
    if (phases_.give && span.count > 0 && place(peer, t) == result) mine_.deliver(result, span);
  });
}

void Exchange::run() {
  const int64_t number = slicing_.number();
  for (int64_t t = 0; t < first(memory_.ahead()); ++t) begin(t);
  for (int64_t t = 0; t < number; ++t) {
    add(t);
    if (t > 0) settle(t - 1);
    begin(t + memory_.ahead());
  }
  if (number > 0) settle(number - 1);
}

}  // namespace ddp::socket
