// SPDX-License-Identifier: Apache-2.0
#include "shm/routes.hpp"

#include "core/slices.hpp"
#include "shm/extent.hpp"

namespace ddp::shm {
namespace {

/// The part of `routes` in the share, counted from its beginning.
std::vector<Routes::Route> clip(const std::vector<Routes::Route>& routes, const Share& share) {
  std::vector<Routes::Route> clipped;
  for (const Routes::Route& route : routes) {
    const int64_t from = std::max(route.begin, share.begin);
    const int64_t to = std::min(route.begin + route.count, share.end);
    if (from < to)
      clipped.push_back(
          Routes::Route{route.piece, route.first + from - route.begin, to - from, from - share.begin, route.peers});
  }
  return clipped;
}

/// The part of a piece that begins, and ends, where blocks of work may begin (SliceWork).
Extent in_slice_units(const Extent& extent, int64_t count) noexcept {
  const int64_t first = (extent.first + kSliceUnit - 1) / kSliceUnit * kSliceUnit;
  const int64_t end = extent.first + extent.count;
  return {first, std::max<int64_t>((end == count ? end : end / kSliceUnit * kSliceUnit) - first, 0)};
}

/// Where a tensor of a rank begins here; NULL, of one that is not in reach.
std::byte* base_of(const Engine& engine, int32_t rank, int64_t place) noexcept {
  return place == kNotInReach ? nullptr : engine.mesh().base(rank) + offset_in(place);
}

}  // namespace

Routes::Routes(const Engine& engine, const collective::ExchangeSpec& spec, const std::vector<PieceReach>& pieces,
               const std::vector<PieceReach>& outputs)
    : element_(dtype_size(spec.rule.dtype)),
      size_(static_cast<size_t>(engine.size())),
      self_(engine.rank()),
      is_shared_(spec.ownership == nullptr),
      staged_(size_) {
  find_reach(spec, pieces, outputs);
  std::vector<size_t> bases;  // of each piece in reach
  const size_t number = spec.pieces.size();
  for (size_t piece = 0; piece < number; ++piece) {
    bases.push_back(bases_.size());
    if (is_staged_[piece] && in_reach_[piece].count == 0 && !reads_directly_) continue;
    for (const std::vector<PieceReach>* reach : {&pieces, &outputs})
      for (size_t rank = 0; rank < size_ && !reach->empty(); ++rank)
        bases_.push_back(base_of(engine, static_cast<int32_t>(rank), (*reach)[rank * number + piece].offset));
  }
  hold(engine, spec);
  if (is_shared_)
    divide_equally(spec, pieces, bases);
  else
    divide_by_owner(*spec.ownership, bases);
}

void Routes::find_reach(const collective::ExchangeSpec& spec, const std::vector<PieceReach>& pieces,
                        const std::vector<PieceReach>& outputs) {
  const size_t number = spec.pieces.size();
  const auto all_reach = [&](const std::vector<PieceReach>& reach, size_t piece) {
    for (size_t at = piece; at < reach.size(); at += number)
      if (reach[at].offset == kNotInReach || (reach[at].offset & kPagesOnly) != 0) return false;
    return true;
  };
  reads_directly_ = !outputs.empty();
  bool any_staged = false;
  for (size_t piece = 0; piece < number; ++piece) {
    const int64_t count = spec.pieces[piece].count;
    pieces_.push_back(spec.pieces[piece].data);
    if (!spec.outputs.empty()) outputs_.push_back(spec.outputs[piece].data);
    in_reach_.push_back(Extent{0, count});
    for (const std::vector<PieceReach>* reach : {&pieces, &outputs})
      for (size_t at = piece; at < reach->size(); at += number)
        in_reach_.back() = common(in_reach_.back(), extent_of((*reach)[at].offset, count, element_));
    if (spec.work && !spec.gives) in_reach_.back() = in_slice_units(in_reach_.back(), count);
    const bool in_reach = all_reach(pieces, piece);
    is_staged_.push_back(!in_reach || !all_reach(outputs, piece));
    if (!is_staged_.back()) continue;
    any_staged = true;
    reads_directly_ = reads_directly_ && in_reach;
  }
  reads_directly_ = reads_directly_ && any_staged;
  touches_others_ = reads_directly_;
}

void Routes::hold(const Engine& engine, const collective::ExchangeSpec& spec) {
  for (const auto* list : {&spec.pieces, &spec.outputs})
    for (const collective::BucketSpec::Piece& piece : *list)
      if (auto held = engine.mesh().own->hold(piece.data, piece.count * element_)) holds_.push_back(std::move(held));
}

void Routes::divide_by_owner(const Ownership& ownership, const std::vector<size_t>& bases) {
  for (int32_t owner = 0; owner < ownership.ranks(); ++owner) {
    std::vector<Route>& staged = staged_[static_cast<size_t>(owner)];
    int64_t begin = 0;
    const auto stage = [&](const OwnedSpan& span, int64_t first, int64_t count) {
      if (count == 0) return;
      staged.push_back(Route{span.piece, first, count, begin, bases[static_cast<size_t>(span.piece)]});
      begin += count;
    };
    for (const OwnedSpan& span : ownership.slice(owner)) {
      const auto piece = static_cast<size_t>(span.piece);
      const Extent inner = common(Extent{span.first, span.count}, in_reach_[piece]);
      if (inner.count == 0) {
        stage(span, span.first, span.count);
        continue;
      }
      touches_others_ = true;
      if (owner == self_) in_place_.push_back(Route{span.piece, inner.first, inner.count, 0, bases[piece]});
      stage(span, span.first, inner.first - span.first);
      stage(span, inner.first + inner.count, span.first + span.count - inner.first - inner.count);
    }
  }
}

void Routes::divide_equally(const collective::ExchangeSpec& spec, const std::vector<PieceReach>& reach,
                            const std::vector<size_t>& bases) {
  std::vector<Route> in_place, joined, staged;
  int64_t in_place_count = 0, staged_count = 0;
  bool was_padded = false;
  for (size_t piece = 0; piece < spec.pieces.size(); ++piece) {
    const Extent& inner = in_reach_[piece];
    const int64_t end = inner.first + inner.count;
    const auto number = static_cast<int32_t>(piece);
    const auto stage = [&](int64_t first, int64_t count) {
      if (count == 0) return;
      staged.push_back(Route{number, first, count, staged_count, 0});
      staged_count += count;
    };
    if (is_staged_[piece] && inner.count == 0) {
      stage(0, spec.pieces[piece].count);
      continue;
    }
    stage(0, inner.first);
    stage(end, spec.pieces[piece].count - end);
    bool padded = true;  // libddp's own memory on every rank: the space between two gradients is padding
    for (size_t rank = 0; rank < size_; ++rank) padded = padded && reach[rank * spec.pieces.size() + piece].owned != 0;
    const Route here{number, inner.first, inner.count, in_place_count, bases[piece]};
    if (int64_t gap = 0; !joined.empty() && follows(joined.back(), here, padded && was_padded, &gap)) {
      in_place_count += gap / element_;
      joined.back().count += gap / element_ + inner.count;
    } else {
      joined.push_back(here);
    }
    in_place.push_back(Route{number, inner.first, inner.count, in_place_count, bases[piece]});
    in_place_count += inner.count;
    was_padded = padded;
  }
  touches_others_ = in_place_count > 0;
  const auto size = static_cast<int32_t>(size_);
  in_place_ = clip(in_place, share_of(in_place_count, element_, self_, size));
  joined_ = clip(joined, share_of(in_place_count, element_, self_, size));
  for (int32_t rank = 0; rank < size; ++rank)
    staged_[static_cast<size_t>(rank)] =
        clip(staged, share_of(staged_count, dtype_size(spec.rule.travel_dtype()), rank, size));
}

// In libddp's own memory the padding between two pieces (below a cache line) belongs to them: zero on all ranks, and it
// stays zero.
bool Routes::follows(const Route& last, const Route& next, bool padded, int64_t* gap) const noexcept {
  const int64_t length = (last.first + last.count - next.first) * element_;
  *gap = bases_[next.peers] - bases_[last.peers] - length;
  if (*gap < 0 || *gap % element_ != 0 || *gap >= (padded ? kLineBytes : 1)) return false;
  for (size_t rank = 0; rank < size_; ++rank)
    if (bases_[next.peers + rank] - bases_[last.peers + rank] != length + *gap) return false;
  return true;
}

int64_t Routes::staged_count(int32_t rank) const noexcept {
  const std::vector<Route>& routes = staged(rank);
  return routes.empty() ? 0 : routes.back().begin + routes.back().count;
}

int64_t Routes::most_staged() const noexcept {
  int64_t most = 0;
  for (size_t rank = 0; rank < size_; ++rank) most = std::max(most, staged_count(static_cast<int32_t>(rank)));
  return most;
}

bool Routes::set_address(int32_t piece, std::byte* data) noexcept {
  const auto at = static_cast<size_t>(piece);
  if (!is_staged_[at] || in_reach_[at].count > 0 || reads_directly_) return false;
  pieces_[at] = data;
  return true;
}

void Routes::populate() const noexcept {
  for (const Route& route : in_place_)
    for (size_t rank = 0; rank < size_; ++rank) {
      shm::populate(input(route, rank, 0), route.count * element_);
      if (!outputs_.empty()) shm::populate(output(route, rank, 0), route.count * element_);
    }
  if (!reads_directly_) return;
  for (const Route& route : staged(self_))
    for (size_t rank = 0; rank < size_; ++rank) shm::populate(input(route, rank, 0), route.count * element_);
}

std::string Routes::describe() const {
  size_t staged = 0, ends = 0;
  for (size_t piece = 0; piece < is_staged_.size(); ++piece)
    if (is_staged_[piece]) ++(in_reach_[piece].count == 0 ? staged : ends);
  const size_t in_place = is_staged_.size() - staged;
  std::string text = "in place";
  if (staged > 0)
    text = in_place == 0 ? "staged" : std::to_string(in_place) + " in place, " + std::to_string(staged) + " staged";
  if (ends > 0) text += ", the ends of " + std::to_string(ends) + " staged";
  return text;
}

}  // namespace ddp::shm
