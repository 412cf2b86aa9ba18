#include "comm/shm/slice_map.hpp"

#include <algorithm>

namespace ddp::shm {

SliceMap::SliceMap(const Engine& engine, const std::vector<BucketSpec::Piece>& pieces, int64_t element, const Slices& slices,
                   const std::vector<PieceReach>& reach)
    : element_(element), size_(static_cast<size_t>(engine.size())), is_staged_(pieces.size(), false), staged_(size_) {
  for (size_t piece = 0; piece < pieces.size(); ++piece) {
    data_.push_back(pieces[piece].data);
    for (size_t rank = 0; rank < size_; ++rank)
      if (reach[rank * pieces.size() + piece].offset == kNotInReach) is_staged_[piece] = true;
  }
  for (size_t owner = 0; owner < size_; ++owner) {
    int64_t begin = 0;
    for (const OwnedSpan& span : slices[owner]) {
      const auto piece = static_cast<size_t>(span.piece);
      if (is_staged_[piece]) {
        staged_[owner].push_back(Route{span.piece, span.first, span.count, begin, 0});
        begin += span.count;
        continue;
      }
      any_in_place_ = true;
      if (owner != static_cast<size_t>(engine.rank())) continue;
      in_place_.push_back(Route{span.piece, span.first, span.count, 0, bases_.size()});
      for (size_t rank = 0; rank < size_; ++rank)
        bases_.push_back(engine.mesh().base(static_cast<int32_t>(rank)) + reach[rank * pieces.size() + piece].offset + span.first * element_);
    }
  }
}

int64_t SliceMap::staged_count(int32_t rank) const noexcept {
  const std::vector<Route>& routes = staged(rank);
  return routes.empty() ? 0 : routes.back().begin + routes.back().count;
}

int64_t SliceMap::most_staged() const noexcept {
  int64_t most = 0;
  for (size_t rank = 0; rank < size_; ++rank) most = std::max(most, staged_count(static_cast<int32_t>(rank)));
  return most;
}

bool SliceMap::set_address(int32_t piece, std::byte* data) noexcept {
  const auto at = static_cast<size_t>(piece);
  if (!is_staged_[at]) return false;
  data_[at] = data;
  return true;
}

const SliceMap::Route* SliceMap::first_behind(int32_t rank, int64_t begin) const noexcept {
  const std::vector<Route>& routes = staged(rank);
  const auto found = std::partition_point(routes.begin(), routes.end(), [&](const Route& r) { return r.begin + r.count <= begin; });
  return found == routes.end() ? nullptr : &*found;
}

const SliceMap::Route* SliceMap::next(int32_t rank, const Route* route) const noexcept {
  return route == &staged(rank).back() ? nullptr : route + 1;
}

void SliceMap::populate() const noexcept {
  for (const Route& route : in_place_)
    for (size_t rank = 0; rank < size_; ++rank) shm::populate(peer(route, rank, 0), route.count * element_);
}

bool SliceMap::any_staged() const noexcept { return std::find(is_staged_.begin(), is_staged_.end(), true) != is_staged_.end(); }

std::string SliceMap::way() const {
  if (!any_staged()) return "in place";
  return any_in_place_ ? "partly staged" : "staged";
}

}  // namespace ddp::shm
