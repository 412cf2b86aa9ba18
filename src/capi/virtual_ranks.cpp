// SPDX-License-Identifier: Apache-2.0
// ddp/virtual_ranks.h.
#include "ddp/virtual_ranks.h"

#include <vector>

#include "capi/guard.hpp"
#include "capi/options.hpp"
#include "capi/tables.hpp"
#include "core/random.hpp"
#include "core/virtual_ranks.hpp"
#include "device/gpu/host_memory.hpp"
#include "group/collective_call.hpp"
#include "group/gpu.hpp"

using namespace ddp;
using namespace ddp::capi;

namespace {

constexpr int64_t kMostNumbers = 1024;

VirtualRanks ranks_of(const group::Group& group) { return VirtualRanks::of(group.options(), group.rank(), group.size()); }

/// The node of the tree that this rank holds, into the numbers of its first part.
void join_parts(double* values, int64_t count, int32_t parts, ddp_reduce op) {
  std::vector<const void*> in;
  in.reserve(static_cast<size_t>(parts));
  for (int32_t part = 0; part < parts; ++part) in.push_back(values + part * count);
  cpu::reduce_subtree(cpu::ReduceRule{DDP_F64, op}, in.data(), parts, values, count);
}

}  // namespace

ddp_status ddp_group_get_virtual_ranks(const ddp_group* group, ddp_virtual_ranks* out_ranks) {
  constexpr const char* kName = "ddp_group_get_virtual_ranks";
  return guarded([&] {
    const auto object = group_of(group, kName);
    require(out_ranks, kName, "out_ranks");
    const VirtualRanks known = ranks_of(*object);
    ddp_virtual_ranks ranks{};
    ranks.total = known.total;
    ranks.first = known.first;
    ranks.count = known.count;
    fill_sized(out_ranks, ranks, kName);
  });
}

ddp_status ddp_virtual_rank_key(int64_t seed, int64_t step, int32_t virtual_rank, int64_t* out_key) {
  constexpr const char* kName = "ddp_virtual_rank_key";
  return guarded([&] {
    require(out_key, kName, "out_key");
    if (step < 0 || virtual_rank < 0)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: step is %lld and virtual_rank %d; both must be 0 or more", kName,
                       static_cast<long long>(step), virtual_rank);
    const auto high = static_cast<uint64_t>(step), low = static_cast<uint64_t>(virtual_rank);
    *out_key = static_cast<int64_t>(philox_u64(static_cast<uint64_t>(seed), high, low));
  });
}

ddp_status ddp_group_reduce_part_metrics(ddp_group* group, double* part_values, int64_t count, ddp_reduce op) {
  constexpr const char* kName = "ddp_group_reduce_part_metrics";
  return run_collective(group, kName, [&](group::Group& object) {
    require(part_values, kName, "part_values");
    check_reduce(op, kName);
    if (count < 1 || count > kMostNumbers)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: count is %lld; 1 to 1,024 numbers are possible", kName,
                       static_cast<long long>(count));
    object.gpu().require_host(flat_tensor(part_values, DDP_F64, count), kName, gpu::kCopyIt);
    const VirtualRanks ranks = ranks_of(object);
    const ddp_reduce how = op == DDP_AVERAGE ? DDP_SUM : op;
    join_parts(part_values, count, ranks.count, how);
    group::reduce_metrics(object, flat_tensor(part_values, DDP_F64, count), how);
    for (int64_t i = 0; op == DDP_AVERAGE && i < count; ++i) part_values[i] /= ranks.total;
  });
}
