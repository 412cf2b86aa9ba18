#include "comm/rail/exchange.hpp"

namespace ddp {

// Where a result lies from its arrival on. That of the own slice of a wired rule cannot be formed over its own terms.
std::byte* Exchange::place(int32_t owner, int64_t t) noexcept {
  const bool apart = owner == line_.position() && mine_.rule().is_wired();
  void* landing = apart ? nullptr : mine_.landing(slicing_.span(owner, t));
  return landing != nullptr ? static_cast<std::byte*>(landing) : memory_.slot(ExchangeMemory::kResult, owner, t);
}

// A result may land where the part lies, so it is received after the part was sent: it is formed from it.
void Exchange::begin(int64_t t) {
  if (t >= slicing_.number()) return;
  const int64_t own_bytes = slicing_.bytes(slicing_.span(line_.position(), t));
  if (own_bytes > 0)
    each_peer([&](int32_t peer) {
      memory_.messages(peer, t).part_in =
          line_.receive(peer, Tag::kPart, memory_.slot(ExchangeMemory::kPartIn, peer, t), own_bytes);
    });
  each_peer([&](int32_t peer) { swap(peer, t); });
}

// This member's part of the peer's segment against the result.
void Exchange::swap(int32_t peer, int64_t t) {
  const Span span = slicing_.span(peer, t);
  const int64_t bytes = slicing_.bytes(span);
  if (bytes == 0) return;
  ExchangeMemory::Messages& messages = memory_.messages(peer, t);
  const void* part = mine_.own(span, memory_.slot(ExchangeMemory::kPartOut, peer, t));
  messages.part_out = line_.send(peer, Tag::kPart, part, bytes);
  if (spreads_) messages.result_in = line_.receive(peer, Tag::kResult, place(peer, t), bytes);
}

void Exchange::add(int64_t t) {
  const int32_t here = line_.position();
  const Span span = slicing_.span(here, t);
  if (span.count == 0) return;
  Contribution::Terms& terms = memory_.terms();
  terms.clear();
  for (int32_t member = 0; member < line_.size(); ++member) {
    const void* elements = memory_.slot(ExchangeMemory::kPartIn, member, t);
    if (member == here)
      elements = mine_.own(span, memory_.slot(ExchangeMemory::kPartIn, here, t));
    else
      line_.wait(memory_.messages(member, t).part_in);
    terms.add(elements, tallies_[static_cast<size_t>(member)].weight);
  }
  std::byte* result = place(here, t);
  mine_.sum(terms, result, span.count);
  if (spreads_)
    each_peer([&](int32_t peer) {
      memory_.messages(peer, t).result_out = line_.send(peer, Tag::kResult, result, slicing_.bytes(span));
    });
  if (result == memory_.slot(ExchangeMemory::kResult, here, t)) mine_.deliver(result, span);
}

void Exchange::settle(int64_t t) {
  each_peer([&](int32_t peer) {
    ExchangeMemory::Messages& messages = memory_.messages(peer, t);
    line_.wait(messages.part_out);
    line_.wait(messages.result_in);
    line_.wait(messages.result_out);
    const Span span = slicing_.span(peer, t);
    std::byte* const result = memory_.slot(ExchangeMemory::kResult, peer, t);
    if (spreads_ && span.count > 0 && place(peer, t) == result) mine_.deliver(result, span);
  });
}

void Exchange::run() {
  const int64_t number = slicing_.number();
  for (int64_t t = 0; t < std::min<int64_t>(kAhead, number); ++t) begin(t);
  for (int64_t t = 0; t < number; ++t) {
    add(t);
    if (t > 0) settle(t - 1);
    begin(t + kAhead);
  }
  if (number > 0) settle(number - 1);
}

}  // namespace ddp
