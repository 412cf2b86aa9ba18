#include "comm/shm/step.hpp"

#include <algorithm>

#include "comm/shm/stream.hpp"

namespace ddp::shm {

Step::Step(Engine& engine, const BucketSpec& spec, SliceMap gradients, SliceMap values, SliceWork* work)
    : SliceOperation(engine, std::move(gradients), stamp_of(Collective::kStep, spec), spec.pieces.size(), 1, work),
      rule_(spec.rule),
      values_(std::move(values)),
      in_(static_cast<size_t>(engine.size())) {
  values_.populate();
}

void Step::work_in_place(const SliceMap::Route& route, int64_t at, int64_t count) noexcept {
  const int64_t most = kBlockSize / map().element();
  for (const int64_t end = at + count; at < end; at += most) {
    const int64_t n = std::min(most, end - at);
    reduce(route, at, n);
    work()->on_block(route.piece, route.first + at, n);
    give(route, at, n);
  }
  stream_fence();
}

void Step::reduce(const SliceMap::Route& route, int64_t at, int64_t count) noexcept {
  const std::vector<size_t>& inputs = said().inputs();
  for (size_t k = 0; k < inputs.size(); ++k) in_[k] = map().peer(route, inputs[k], at);
  void* mean = map().peer(route, static_cast<size_t>(engine().rank()), at);
  cpu::reduce(rule_, in_.data(), static_cast<int32_t>(inputs.size()), &mean, 1, count, said().weights());
}

void Step::give(const SliceMap::Route& route, int64_t at, int64_t count) noexcept {
  const SliceMap::Route& there = values_.in_place()[static_cast<size_t>(&route - map().in_place().data())];
  const auto me = static_cast<size_t>(engine().rank());
  const std::byte* const mine = values_.peer(there, me, at);
  for (size_t rank = 0; rank < static_cast<size_t>(engine().size()); ++rank)
    if (rank != me) stream_copy(values_.peer(there, rank, at), mine, count * values_.element());
}

}  // namespace ddp::shm
