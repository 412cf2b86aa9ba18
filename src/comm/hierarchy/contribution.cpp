#include "comm/hierarchy/contribution.hpp"

#include <algorithm>
#include <cstring>

#include "comm/shm/region.hpp"

namespace ddp::hierarchy {
namespace {

std::byte* shifted(void* base, int64_t elements, int64_t size) noexcept { return static_cast<std::byte*>(base) + elements * size; }

}  // namespace

HostContribution::HostContribution(const cpu::ReduceRule& rule, HostArray array, Span slice)
    : Contribution(rule, slice.count, array.ranks), array_(std::move(array)), begin_(slice.first), size_(dtype_size(rule.dtype)),
      carry_size_(dtype_size(rule.carry_dtype())), travel_size_(dtype_size(rule.travel_dtype())), used_(array_.pieces.size(), true),
      terms_(static_cast<size_t>(array_.ranks) + 1) {}

void HostContribution::learn(const Note& note) noexcept {
  for (size_t p = 0; p < used_.size(); ++p) used_[p] = note.used.empty() || (note.used[p / 64] >> (p % 64) & 1) != 0;
}

template <class Fn>
void HostContribution::each(Span span, const Fn& fn) const noexcept {
  if (span.count == 0) return;
  const int64_t from = begin_ + span.first;
  const auto after = std::upper_bound(array_.pieces.begin(), array_.pieces.end(), from,
                                      [](int64_t value, const HostArray::Piece& piece) { return value < piece.first; });
  int64_t done = 0;
  for (auto p = static_cast<size_t>(after - array_.pieces.begin()) - 1; done < span.count; ++p) {
    const int64_t element = from + done - array_.pieces[p].first;
    const int64_t count = std::min(array_.pieces[p].count - element, span.count - done);
    if (count > 0) fn(p, element, done, count);
    done += count;
  }
}

void HostContribution::populate() const noexcept {
  each(Span{0, count()}, [&](size_t piece, int64_t element, int64_t, int64_t count) {
    for (int32_t rank = 0; rank < array_.ranks; ++rank) shm::populate(at(piece, rank, element), count * size_);
  });
}

// The inputs of one sum in rank order: elements from the first member of the chain if they came as they are, then this host's.
const Contribution::Terms& HostContribution::terms_of(Incoming in, size_t piece, int64_t element) noexcept {
  terms_.clear();
  if (in.data != nullptr && in.raw) terms_.add(in.data, in.weight);
  for (int32_t rank = 0; rank < array_.ranks; ++rank) terms_.add(at(piece, rank, element), weight_of(static_cast<size_t>(rank)));
  return terms_;
}

Incoming HostContribution::from(Incoming in, int64_t done) const noexcept {
  if (in.data != nullptr) in.data = shifted(in.data, done, in.raw ? size_ : carry_size_);
  return in;
}

void HostContribution::add(Incoming in, void* out, Span span) noexcept {
  each(span, [&](size_t piece, int64_t element, int64_t done, int64_t count) {
    const Incoming here = from(in, done);
    add_terms(here, terms_of(here, piece, element), shifted(out, done, carry_size_), count);
  });
}

void HostContribution::finish(Incoming in, void* result, Span span) noexcept {
  each(span, [&](size_t piece, int64_t element, int64_t done, int64_t count) {
    const Incoming here = from(in, done);
    finish_terms(here, terms_of(here, piece, element), shifted(result, done, travel_size_), count);
  });
}

// A host with several ranks needs the result in several places.
void* HostContribution::landing(Span span) noexcept {
  void* found = nullptr;
  each(span, [&](size_t piece, int64_t element, int64_t, int64_t count) {
    if (array_.ranks == 1 && !is_packed() && used_[piece] && count == span.count) found = at(piece, 0, element);
  });
  return found;
}

const void* HostContribution::own(Span span, void* scratch) noexcept {
  each(span, [&](size_t piece, int64_t element, int64_t done, int64_t count) {
    std::memcpy(shifted(scratch, done, size_), at(piece, 0, element), static_cast<size_t>(count * size_));
  });
  return scratch;
}

void HostContribution::deliver(const void* result, Span span) noexcept {
  each(span, [&](size_t piece, int64_t element, int64_t done, int64_t count) {
    if (!used_[piece]) return;
    const void* from = static_cast<const std::byte*>(result) + done * travel_size_;
    if (is_packed()) {
      cpu::unpack(rule(), from, at(piece, 0, element), count);
      from = at(piece, 0, element);
    }
    for (int32_t rank = is_packed() ? 1 : 0; rank < array_.ranks; ++rank)
      std::memcpy(at(piece, rank, element), from, static_cast<size_t>(count * size_));
  });
}

}  // namespace ddp::hierarchy
