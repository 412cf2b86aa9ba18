#include "comm/rail/contribution.hpp"

#include <algorithm>
#include <cstring>

namespace ddp {
namespace {

size_t bytes(int64_t elements, int64_t size) noexcept { return static_cast<size_t>(elements * size); }

Incoming at(Incoming in, int64_t offset, int64_t size, int64_t carry_size) noexcept {
  if (in.data != nullptr) in.data = static_cast<std::byte*>(in.data) + offset * (in.raw ? size : carry_size);
  return in;
}

int64_t total(const std::vector<BucketSpec::Piece>& pieces) noexcept {
  int64_t sum = 0;
  for (const auto& piece : pieces) sum += piece.count;
  return sum;
}

}  // namespace

void Contribution::Terms::add(const void* elements, double weight) noexcept {
  if (!(weight > 0)) return;
  const auto at = static_cast<size_t>(count_++);
  elements_[at] = elements;
  weights_[at] = weight;
  weighted_ = weighted_ || weight != 1.0;
}

void Contribution::add_terms(Incoming in, const Terms& terms, void* out, int64_t count) const noexcept {
  const void* const carry = in.raw ? nullptr : in.data;
  if (carry == nullptr && terms.count() == 0)  // nothing yet, and nothing will be read from it
    std::memset(out, 0, bytes(count, dtype_size(rule_.carry_dtype())));
  else
    cpu::reduce_part(rule_, carry, terms.elements(), terms.count(), out, count, terms.weights());
}

void Contribution::finish_terms(Incoming in, const Terms& terms, void* result, int64_t count) const noexcept {
  if (rule_.is_wired()) {  // the last carry is the result
    add_terms(in, terms, result, count);
  } else if (in.data == nullptr || in.raw) {
    cpu::reduce(rule_, terms.elements(), terms.count(), &result, 1, count, terms.weights());
  } else {
    cpu::reduce_part(rule_, in.data, terms.elements(), terms.count(), in.data, count, terms.weights());
    cpu::reduce_finish(rule_, in.data, &result, 1, count);
  }
}

void Contribution::sum(const Terms& terms, void* result, int64_t count) const noexcept {
  if (rule_.is_wired())
    cpu::reduce_part(rule_.packed(), nullptr, terms.elements(), terms.count(), result, count);
  else
    cpu::reduce(rule_, terms.elements(), terms.count(), &result, 1, count, terms.weights());
}

PieceContribution::PieceContribution(const cpu::ReduceRule& rule, const std::vector<BucketSpec::Piece>& pieces)
    : Contribution(rule, total(pieces), 1), size_(dtype_size(rule.dtype)), carry_size_(dtype_size(rule.carry_dtype())),
      travel_size_(dtype_size(rule.travel_dtype())) {
  int64_t first = 0;
  for (const auto& piece : pieces) {
    runs_.push_back(Run{piece.data, first, piece.count, true});
    first += piece.count;
  }
}

void PieceContribution::learn(const Note& note) noexcept {
  for (size_t r = 0; r < runs_.size(); ++r) runs_[r].used = note.used.empty() || (note.used[r / 64] >> (r % 64) & 1) != 0;
}

void PieceContribution::set_address(int32_t piece, std::byte* data) noexcept {
  runs_[static_cast<size_t>(piece)].data = data;
}

size_t PieceContribution::run_at(int64_t element) const noexcept {
  const auto after = std::upper_bound(runs_.begin(), runs_.end(), element,
                                      [](int64_t value, const Run& run) { return value < run.first; });
  return static_cast<size_t>(after - runs_.begin()) - 1;  // the last that starts at or before it: not an empty one
}

template <class Fn>
void PieceContribution::each(Span span, const Fn& fn) const noexcept {
  if (span.count == 0) return;
  int64_t done = 0;
  for (size_t r = run_at(span.first); done < span.count; ++r) {
    const Run& run = runs_[r];
    const int64_t offset = span.first + done - run.first;
    const int64_t count = std::min(run.count - offset, span.count - done);
    if (count > 0) fn(run, run.data + offset * size_, done, count);
    done += count;
  }
}

void* PieceContribution::landing(Span span) noexcept {
  if (span.count == 0 || is_packed()) return nullptr;
  size_t r = run_at(span.first);
  std::byte* const start = runs_[r].data + (span.first - runs_[r].first) * size_;
  const int64_t end = span.first + span.count;
  for (; runs_[r].first < end; ++r) {  // pieces that touch are as good as one
    const Run& run = runs_[r];
    if (run.count == 0) continue;
    if (!run.used || run.data != start + (run.first - span.first) * size_) return nullptr;
    if (run.first + run.count >= end) break;
  }
  return start;
}

const void* PieceContribution::own(Span span, void* scratch) noexcept {
  if (void* where = landing(span)) return where;
  each(span, [&](const Run&, const std::byte* mine, int64_t offset, int64_t count) {
    std::byte* const to = static_cast<std::byte*>(scratch) + offset * travel_size_;
    if (is_packed())
      cpu::pack(rule(), mine, weight_of(0), to, count);
    else
      std::memcpy(to, mine, bytes(count, size_));
  });
  return scratch;
}

const Contribution::Terms& PieceContribution::terms_of(Incoming in, const void* mine) noexcept {
  terms_.clear();
  if (in.data != nullptr && in.raw) terms_.add(in.data, in.weight);
  terms_.add(mine, weight_of(0));
  return terms_;
}

void PieceContribution::add(Incoming in, void* out, Span span) noexcept {
  each(span, [&](const Run&, const std::byte* mine, int64_t offset, int64_t count) {
    const Incoming here = at(in, offset, size_, carry_size_);
    add_terms(here, terms_of(here, mine), static_cast<std::byte*>(out) + offset * carry_size_, count);
  });
}

void PieceContribution::finish(Incoming in, void* result, Span span) noexcept {
  each(span, [&](const Run&, const std::byte* mine, int64_t offset, int64_t count) {
    const Incoming here = at(in, offset, size_, carry_size_);
    finish_terms(here, terms_of(here, mine), static_cast<std::byte*>(result) + offset * travel_size_, count);
  });
}

void PieceContribution::deliver(const void* result, Span span) noexcept {
  each(span, [&](const Run& run, std::byte* mine, int64_t offset, int64_t count) {
    const std::byte* const from = static_cast<const std::byte*>(result) + offset * travel_size_;
    if (!run.used) return;
    if (is_packed())
      cpu::unpack(rule(), from, mine, count);
    else
      std::memcpy(mine, from, bytes(count, size_));
  });
}

PartContribution::PartContribution(const cpu::ReduceRule& rule, const std::byte* input, std::byte* output, int64_t part,
                                   int32_t size, int32_t position)
    : Contribution(rule, part * size, 1), input_(input), output_(output), part_(part), begin_(position * part),
      size_(dtype_size(rule.dtype)) {}

const void* PartContribution::own(Span span, void*) noexcept { return input_ + span.first * size_; }

void PartContribution::add(Incoming in, void* out, Span span) noexcept {
  terms_.clear();
  if (in.data != nullptr && in.raw) terms_.add(in.data, in.weight);
  terms_.add(input_ + span.first * size_, weight_of(0));
  add_terms(in, terms_, out, span.count);
}

void PartContribution::finish(Incoming in, void* result, Span span) noexcept {
  terms_.clear();
  if (in.data != nullptr && in.raw) terms_.add(in.data, in.weight);
  terms_.add(input_ + span.first * size_, weight_of(0));
  finish_terms(in, terms_, result, span.count);
}

void* PartContribution::landing(Span span) noexcept {
  const bool inside = span.first >= begin_ && span.first + span.count <= begin_ + part_ && span.count > 0;
  return inside ? output_ + (span.first - begin_) * size_ : nullptr;
}

void PartContribution::deliver(const void* result, Span span) noexcept {
  const int64_t from = std::max(span.first, begin_);
  const int64_t until = std::min(span.first + span.count, begin_ + part_);
  if (from >= until) return;
  std::memcpy(output_ + (from - begin_) * size_, static_cast<const std::byte*>(result) + (from - span.first) * size_,
              bytes(until - from, size_));
}

}  // namespace ddp
