// SPDX-License-Identifier: Apache-2.0
/** @file
 * Which samples are this rank's.
 */
#ifndef DDP_CPP_SAMPLER_HPP
#define DDP_CPP_SAMPLER_HPP

#include "ddp/cpp/group.hpp"

namespace ddp {
inline namespace cpp17_v1 {

/** A data set's partition over the ranks: a ddp_sampler, whose fields are changed by hand. A plain value. */
struct Sampler : ddp_sampler {
  /** One rank has all. */
  explicit Sampler(std::int64_t samples) : ddp_sampler() {
    check(ddp_sampler_init(this, static_cast<std::int64_t>(sizeof(ddp_sampler))));
    dataset_size = samples;
  }
  /** The share of this rank of a group. */
  Sampler(std::int64_t samples, const Group& group) : Sampler(samples) { rank = group.rank(), size = group.size(); }

  /** Indices that each rank gets in an epoch. */
  std::int64_t count() const {
    std::int64_t found = 0;
    check(ddp_sampler_get_count(this, &found));
    return found;
  }
  /** `wanted` indices of this rank's share of an epoch from position `first` on, or as many as are left. */
  std::vector<std::int64_t> indices(std::int64_t epoch, std::int64_t first, std::int64_t wanted) const {
    std::vector<std::int64_t> found(static_cast<std::size_t>(std::max<std::int64_t>(0, std::min(wanted, count() - first))));
    if (!found.empty()) fill(epoch, first, found);
    return found;
  }
  /** All of them. */
  std::vector<std::int64_t> indices(std::int64_t epoch) const { return indices(epoch, 0, count()); }
  /** Without an allocation. */
  void fill(std::int64_t epoch, std::int64_t first, Span<std::int64_t> out) const {
    check(ddp_sampler_fill(this, epoch, first, static_cast<std::int64_t>(out.size()), out.data()));
  }
};

}  // namespace cpp17_v1
}  // namespace ddp

#endif
