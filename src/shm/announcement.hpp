// SPDX-License-Identifier: Apache-2.0
// The announcement of a rank about a bucket before it works on it, and those of all ranks: the stamp, the bucket header, and
// the weight of each rank's gradients. One for each operation, used again in every pass; allocates nothing after it was
// made. Threads: start() and try_show() from the thread that starts a bucket, the rest from the one that drives it. Tested
// by conformance/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shm/engine.hpp"

namespace ddp::shm {

class Announcement {
 public:
  Announcement(Engine& engine, const collective::Stamp& stamp, size_t pieces);

  /// Take the next number; nothing is shown yet.
  void start(const collective::BucketHeader& mine) noexcept;
  /// False while an earlier bucket was not shown, or the slot is still in use.
  [[nodiscard]] bool try_show() noexcept;
  [[nodiscard]] bool all_shown() noexcept { return engine_->all_shown(sequence_); }
  /// Once all have: from here the bucket header is that of all ranks. Throws DIFFERENT_CALLS.
  void read();

  [[nodiscard]] uint64_t sequence() const noexcept { return sequence_; }
  [[nodiscard]] const collective::BucketHeader& header() const noexcept { return header_; }
  [[nodiscard]] bool is_used(size_t piece) const noexcept { return (header_.used[piece / 64] >> (piece % 64) & 1) != 0; }
  /// Do a rank's gradients count? A rank that does not count is no input, and does not move the others' places.
  [[nodiscard]] bool counts(int32_t rank) const noexcept {
    return weights_[static_cast<size_t>(engine_->leaves().position_of(rank))] > 0;
  }
  /// How much each rank's gradients count, by leaf; NULL: all the same that do.
  [[nodiscard]] const double* weights() const noexcept { return weighted_ ? weights_.data() : nullptr; }
  /// 0: this rank's gradients do not count.
  [[nodiscard]] double own_weight() const noexcept { return own_weight_; }

 private:
  void weigh(int32_t peer, double weight) noexcept;

  Engine* engine_;
  collective::Stamp stamp_;
  collective::BucketHeader header_;
  uint64_t sequence_ = 0;
  std::vector<double> weights_;  // of all leaves
  bool weighted_ = false;
  double own_weight_ = 1;
};

}  // namespace ddp::shm
