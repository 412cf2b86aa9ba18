// SPDX-License-Identifier: Apache-2.0
// Which gradients are sent together: a pure function of the registration, so every rank computes the same plan, and overlap
// starts with the first pass.
//
// Rule: parameters are taken in reverse registration order (the order in which backward reaches them), separately for each
// dtype, for GPU and host memory, and for each optimizer that takes part in passes, so that a bucket has one. A bucket is
// closed before the parameter that would take it over its limit (first_bytes for the first bucket of a dtype, so that
// communication starts early; host_bytes or gpu_bytes after that). A parameter that is larger than a piece may be is split
// into pieces of about the same size, of at least kLeastPieceBytes. Each is a bucket of its own, so the last bucket of a
// pass is never a whole embedding, and the layers of a stacked array are sent one after the other; the last elements are
// expected first. Buckets are then ordered by the moment at which their last gradient is expected, and are sent in that
// order whatever order gradients come in. In host memory the last of them, if it is long (kLongTailBytes, four times
// first_bytes), is cut before its last parameters, as many as first_bytes hold and at least one: nothing is computed any
// more while it is sent. On a GPU a bucket is one block of memory that NCCL cuts into slices of one length, one for each
// rank. So there a piece never crosses a multiple of kPieceUnit elements of the bucket unless it begins at one, a bucket is
// padded to as many units for each rank, and split parameters are cut at multiples of a unit for each rank. (c10d's reducer
// inspired the two limits; it lets a bucket run over its limit, this plan does not.) A program may give the buckets instead.
// Cost: linear. Tested by unit/core/plan_test.cpp and conformance/given_buckets_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ddp/types.h"

namespace ddp {

struct PlanItem {
  int64_t count = 0;  // elements
  ddp_dtype dtype = DDP_F32;
  bool on_gpu = false;
  int32_t optimizer = 0;  // parameters of different numbers share no bucket
  int32_t index = -1;     // of the parameter in its model, for texts; -1: its place among the items
};

/// A gradient in a bucket: all of it, or elements `first` to first + count.
struct PlannedPiece {
  int32_t parameter = 0;
  int64_t first = 0;   // a multiple of kPieceUnit
  int64_t count = 0;   // elements
  int64_t offset = 0;  // where it starts in the bucket, in elements, on a 64-byte boundary unless the bucket is packed
};

struct PlannedBucket {
  ddp_dtype dtype = DDP_F32;
  bool on_gpu = false;                 // where all of its gradients are
  std::vector<PlannedPiece> pieces{};  // in the order in which they are expected
  int64_t count = 0;                   // elements with padding; on a GPU a multiple of kPieceUnit for each rank
  bool is_packed = false;              // begins at a page in host memory that libddp owns
  bool continues = false;              // its memory follows that of the bucket before it
  int32_t optimizer = 0;               // of all of its parameters
};

using Plan = std::vector<PlannedBucket>;

/// More pieces than this do not fit into the announcement of a bucket.
inline constexpr size_t kMostPieces = 4096;

/// Elements: a split parameter is cut at multiples of this only, so that sums over blocks of a parameter (norms)
/// is summed over the same blocks, split or not.
inline constexpr int64_t kPieceUnit = 1024;

/// A smaller piece would cost more than it gains.
inline constexpr int64_t kLeastPieceBytes = 64 << 10;

/// Bytes: a last bucket that is no longer is left whole, because each bucket between hosts takes its time to begin and end.
inline constexpr int64_t kLongTailBytes = 4 << 20;

struct PlanLimits {
  int64_t first_bytes = 0;
  int64_t host_bytes = 0;        // of other buckets in host memory
  int64_t gpu_bytes = 0;         // of other buckets on a GPU
  int32_t ranks = 1;             // slices of a bucket on a GPU
  int64_t host_piece_bytes = 0;  // of a parameter in host memory; 0: host_bytes
};

/// What becomes of a parameter that is larger than a piece may be.
enum class Oversized {
  kSplit,
  kWhole  // it is alone in a bucket: for hooks, which may need a gradient's shape
};
/// `first_bytes`, `bytes`: what the program wants; `bytes` 0: the default. On a GPU that is 64 MiB, because a collective is
/// fast there only when it is large. In host memory a sixteenth of all gradients, so that the first bucket is soon full and
/// hidden, but 4 MiB at least, for what an exchange costs, and 25 MiB at most; a parameter up to that stays whole. Behind
/// a hook, whose exchanges cost more, 25 MiB.
[[nodiscard]] PlanLimits limits_of(int64_t first_bytes, int64_t bytes, int32_t ranks, const std::vector<PlanItem>& items,
                                   Oversized oversized) noexcept;
[[nodiscard]] Plan plan_buckets(const std::vector<PlanItem>& items, const PlanLimits& limits, Oversized oversized);

/// Buckets that the program gives: the parameters of each, in order.
using GivenBuckets = std::vector<std::vector<int32_t>>;
/// Reads the numbers of parameters, bucket after bucket, with -1 between two buckets. Throws INVALID_ARGUMENT unless each of
/// `items` is in exactly one bucket, no bucket is empty, and the parameters of each have one dtype and one place.
[[nodiscard]] GivenBuckets read_given_buckets(std::span<const int32_t> numbers, const std::vector<PlanItem>& items);
/// In that order and whole. Throws INVALID_ARGUMENT if a bucket has parameters of two optimizers. In host memory gradients
/// lie one behind the other; on a GPU as plan_buckets() has them. What is
/// more than kMostPieces becomes another bucket, which continues the one before.
[[nodiscard]] Plan plan_given_buckets(const GivenBuckets& given, const std::vector<PlanItem>& items, int32_t ranks);

/// Where a gradient, or a piece of it, is in a plan.
struct PiecePlace {
  int32_t bucket = 0;
  int32_t piece = 0;  // of the bucket
};
class PlanPlaces {
 public:
  PlanPlaces(const Plan& plan, size_t parameters);
  /// One place, or those of its pieces in the order of their buckets.
  [[nodiscard]] std::span<const PiecePlace> of(int32_t parameter) const noexcept {
    const size_t* const first = first_.data() + parameter;
    return {places_.data() + first[0], first[1] - first[0]};
  }

 private:
  std::vector<PiecePlace> places_;  // by parameter
  std::vector<size_t> first_;       // of each parameter, and the end
};

/// Equal plans have equal hashes; it is part of every bucket's stamp.
[[nodiscard]] uint64_t hash_plan(const Plan& plan, uint64_t model_hash);

}  // namespace ddp
