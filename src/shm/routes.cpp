// SPDX-License-Identifier: Apache-2.0
#include "shm/routes.hpp"

namespace ddp::shm {
namespace {

constexpr int64_t kLine = 64;

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
    if (is_staged_[piece] && !reads_directly_) continue;
    for (const std::vector<PieceReach>* reach : {&pieces, &outputs})
      for (size_t rank = 0; rank < size_ && !reach->empty(); ++rank)
        bases_.push_back(engine.mesh().base(static_cast<int32_t>(rank)) + (*reach)[rank * number + piece].offset);
  }
  if (is_shared_)
    divide_equally(spec, pieces, bases);
  else
    divide_by_owner(*spec.ownership, bases);
}

void Routes::find_reach(const collective::ExchangeSpec& spec, const std::vector<PieceReach>& pieces,
                        const std::vector<PieceReach>& outputs) {
  const auto all_reach = [&](const std::vector<PieceReach>& reach, size_t piece) {
    for (size_t at = piece; at < reach.size(); at += spec.pieces.size())
      if (reach[at].offset == kNotInReach) return false;
    return true;
  };
  reads_directly_ = !outputs.empty();
  bool any_staged = false;
  for (size_t piece = 0; piece < spec.pieces.size(); ++piece) {
    pieces_.push_back(spec.pieces[piece].data);
    if (!spec.outputs.empty()) outputs_.push_back(spec.outputs[piece].data);
    const bool in_reach = all_reach(pieces, piece);
    is_staged_.push_back(!in_reach || !all_reach(outputs, piece));
    if (!is_staged_.back()) continue;
    any_staged = true;
    reads_directly_ = reads_directly_ && in_reach;
  }
  reads_directly_ = reads_directly_ && any_staged;
  touches_others_ = reads_directly_;
}

void Routes::divide_by_owner(const Ownership& ownership, const std::vector<size_t>& bases) {
  for (int32_t owner = 0; owner < ownership.ranks(); ++owner) {
    std::vector<Route>& staged = staged_[static_cast<size_t>(owner)];
    int64_t begin = 0;
    for (const OwnedSpan& span : ownership.slice(owner)) {
      const auto piece = static_cast<size_t>(span.piece);
      if (is_staged_[piece]) {
        staged.push_back(Route{span.piece, span.first, span.count, begin, bases[piece]});
        begin += span.count;
        continue;
      }
      touches_others_ = true;
      if (owner == self_) in_place_.push_back(Route{span.piece, span.first, span.count, 0, bases[piece]});
    }
  }
}

void Routes::divide_equally(const collective::ExchangeSpec& spec, const std::vector<PieceReach>& reach,
                            const std::vector<size_t>& bases) {
  std::vector<Route> in_place, joined, staged;
  int64_t in_place_count = 0, staged_count = 0;
  bool was_padded = false;
  for (size_t piece = 0; piece < spec.pieces.size(); ++piece) {
    const int64_t count = spec.pieces[piece].count;
    const auto number = static_cast<int32_t>(piece);
    if (is_staged_[piece]) {
      staged.push_back(Route{number, 0, count, staged_count, 0});
      staged_count += count;
      continue;
    }
    bool padded = true;  // libddp's own memory on every rank: the space between two gradients is padding
    for (size_t rank = 0; rank < size_; ++rank) padded = padded && reach[rank * spec.pieces.size() + piece].owned != 0;
    if (int64_t gap = 0; !joined.empty() && follows(joined.back(), bases[piece], padded && was_padded, &gap)) {
      in_place_count += gap / element_;
      joined.back().count += gap / element_ + count;
    } else {
      joined.push_back(Route{number, 0, count, in_place_count, bases[piece]});
    }
    in_place.push_back(Route{number, 0, count, in_place_count, bases[piece]});
    in_place_count += count;
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
bool Routes::follows(const Route& last, size_t bases, bool padded, int64_t* gap) const noexcept {
  const int64_t length = last.count * element_;
  *gap = bases_[bases] - bases_[last.peers] - length;
  if (*gap < 0 || *gap % element_ != 0 || *gap >= (padded ? kLine : 1)) return false;
  for (size_t rank = 0; rank < size_; ++rank)
    if (bases_[bases + rank] - bases_[last.peers + rank] != length + *gap) return false;
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
  if (!is_staged_[at] || reads_directly_) return false;
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
  const auto staged = static_cast<size_t>(std::count(is_staged_.begin(), is_staged_.end(), true));
  if (staged == 0) return "in place";
  if (staged == is_staged_.size()) return "staged";
  return std::to_string(is_staged_.size() - staged) + " in place, " + std::to_string(staged) + " staged";
}

}  // namespace ddp::shm
