// SPDX-License-Identifier: Apache-2.0
#include "shm/announcement.hpp"

#include <algorithm>

namespace ddp::shm {

Announcement::Announcement(Engine& engine, const collective::Stamp& stamp, size_t pieces) : engine_(&engine), stamp_(stamp) {
  header_.used.resize((pieces + 63) / 64);
  weights_.resize(static_cast<size_t>(engine.leaves().total()));
}

void Announcement::start(const collective::BucketHeader& mine) noexcept {
  header_.incomplete = mine.incomplete;
  header_.participation = mine.participation;
  std::copy(mine.used.begin(), mine.used.end(), header_.used.begin());
  sequence_ = engine_->next_sequence();
}

bool Announcement::try_show() noexcept {
  return engine_->try_announce(sequence_, [this](Slot& slot) {
    slot.stamp = stamp_;
    slot.incomplete = header_.incomplete ? 1 : 0;
    slot.participation = header_.participation;
    std::copy(header_.used.begin(), header_.used.end(), slot.used);
  });
}

void Announcement::read() {
  engine_->check_stamps(sequence_);
  const LeafMap& leaves = engine_->leaves();
  header_.participation = collective::sum_weights(leaves.total(), [&](int64_t position) {
    const int32_t peer = leaves.rank_at(position);
    return peer == LeafMap::kHole ? collective::Participation::none() : engine_->slot(peer, sequence_).participation;
  });
  weighted_ = false;
  for (int32_t peer = 0; peer < engine_->size(); ++peer) {
    const Slot& slot = engine_->slot(peer, sequence_);
    header_.incomplete = header_.incomplete || slot.incomplete != 0;
    weigh(peer, slot.participation.weight);
    for (size_t word = 0; word < header_.used.size(); ++word) header_.used[word] |= slot.used[word];
  }
}

void Announcement::weigh(int32_t peer, double weight) noexcept {
  if (peer == engine_->rank()) own_weight_ = weight;
  weights_[static_cast<size_t>(engine_->leaves().position_of(peer))] = weight;
  weighted_ = weighted_ || (weight > 0 && weight != 1.0);
}

}  // namespace ddp::shm
