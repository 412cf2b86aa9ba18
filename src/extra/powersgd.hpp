// SPDX-License-Identifier: Apache-2.0
// PowerSGD (Vogels, Karimireddy, Jaggi: "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization",
// NeurIPS 2019), as a hook: a gradient with two dimensions or more is an n x m matrix M (n its first dimension), of which r
// columns P and r columns Q are sent.
//
//   M = gradient + error memory;  P = mean of M Q over the ranks;  P made orthonormal;  Q_w = M^T P here;  Q = mean of Q_w
//   the gradient becomes P Q^T;  error memory = M - P Q_w^T;  with warm start the next pass begins with this Q
//
// It is compressed if (n + m) r min_compression_rate < n m; the rest of the bucket is sent unchanged, in one message with
// the P's. The error is that of this rank's own matrix, as in the paper's algorithm 2: it stays bounded also where ranks
// see different data. Every rank computes P, Q and P Q^T from the same bits in one order of sums, so all hold the same
// result. A pass whose gradients are not finite gives NaN for the whole matrix, on all ranks, and leaves the error memory as
// it was. A gradient that no rank used is left out. A void pass leaves error memory and Q as they were, also of buckets that
// it had reduced; so both are kept twice. The state belongs to the model and is not part of a checkpoint: after a restart it
// begins empty. Cost: two messages a bucket; memory: twice the compressed gradients for the error, r (n + 3 m) elements a
// matrix besides. Reads a matrix four times. Allocates in the first pass that compresses. Threads: the hook's. Tested by
// conformance/powersgd_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ddp/hook.h"
#include "parts/hooks/hook.hpp"

namespace ddp::parts {
class HookBucket;
}  // namespace ddp::parts

namespace ddp::extra {

[[nodiscard]] ddp_powersgd_options default_powersgd_options() noexcept;
/// Throws INVALID_ARGUMENT.
void check_powersgd_options(const ddp_powersgd_options& options, const char* function);

/// Reduce the contents of the bucket. What it remembers is kept with the bucket and made at the first call, with these
/// options.
void reduce_by_powersgd(parts::HookBucket& bucket, const ddp_powersgd_options& options);

/// As the hook of a model.
[[nodiscard]] parts::Hook powersgd_hook(const ddp_powersgd_options& options);

}  // namespace ddp::extra
