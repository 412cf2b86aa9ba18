// SPDX-License-Identifier: Apache-2.0
// The results of collectives, by device/cpu/reduce.hpp: sums of 16-bit numbers in F32. As NCCL has an order of its own, so
// has the fake: the tree begins at rank 1. From three ranks on its sums are not those of the CPU.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <string>

#include "device/cpu/reduce.hpp"
#include "support/fake_gpu/nccl.hpp"

namespace ddp::test::fake_gpu {
namespace {

using Bytes = std::byte;

const Bytes* input(const Collective& collective, size_t rank) {
  return static_cast<const Bytes*>(collective.ranks[rank].send);
}

/// Reduces elements first to first + count of all ranks into fresh memory: the outputs may be inputs.
std::vector<Bytes> reduced(const Collective& collective, int64_t first, int64_t count) {
  const Spec& spec = collective.spec;
  cpu::ReduceRule rule;
  rule.dtype = static_cast<ddp_dtype>(spec.dtype);
  rule.op = spec.reduce == DDP_GPU_SUM       ? DDP_SUM
            : spec.reduce == DDP_GPU_MIN     ? DDP_MIN
            : spec.reduce == DDP_GPU_PRODUCT ? DDP_PRODUCT
                                             : DDP_MAX;
  const int64_t size = dtype_size(rule.dtype);
  std::vector<const void*> in;
  for (size_t rank = 0; rank < collective.ranks.size(); ++rank) in.push_back(input(collective, rank) + first * size);
  std::rotate(in.begin(), in.begin() + 1, in.end());
  std::vector<Bytes> result(static_cast<size_t>(count * size));
  void* const out = result.data();
  cpu::reduce(rule, in.data(), static_cast<int32_t>(in.size()), &out, 1, count);
  return result;
}

void write(const Collective& collective, size_t rank, const std::vector<Bytes>& bytes) {
  std::memcpy(collective.ranks[rank].receive, bytes.data(), bytes.size());
}

std::vector<Bytes> copy_of(const Collective& collective, size_t rank) {
  const int64_t bytes = collective.spec.count * dtype_size(static_cast<ddp_dtype>(collective.spec.dtype));
  return {input(collective, rank), input(collective, rank) + bytes};
}

/// Every result before any output: an output may be another's input.
std::vector<std::vector<Bytes>> results_of(const Collective& collective) {
  const size_t size = collective.ranks.size();
  const Spec& spec = collective.spec;
  const std::string name = spec.name;
  if (name == "nccl.all_reduce") return std::vector<std::vector<Bytes>>(size, reduced(collective, 0, spec.count));
  if (name == "nccl.broadcast")
    return std::vector<std::vector<Bytes>>(size, copy_of(collective, static_cast<size_t>(spec.root)));
  std::vector<std::vector<Bytes>> results;
  std::vector<Bytes> all;
  for (size_t rank = 0; rank < size; ++rank) {
    if (name == "nccl.reduce_scatter")
      results.push_back(reduced(collective, static_cast<int64_t>(rank) * spec.count, spec.count));
    const std::vector<Bytes> own = name == "nccl.all_gather" ? copy_of(collective, rank) : std::vector<Bytes>{};
    all.insert(all.end(), own.begin(), own.end());
  }
  return name == "nccl.all_gather" ? std::vector<std::vector<Bytes>>(size, all) : results;
}

/// The n-th bytes that one rank sends to another go to the n-th ones that it receives from it; all at once.
std::string exchange(Collective& collective) {
  struct Delivery {
    void* to;
    std::vector<Bytes> bytes;
  };
  std::map<std::pair<int32_t, int32_t>, std::deque<Transfer>> sent;  // from, to
  std::vector<Delivery> deliveries;
  const auto ranks = static_cast<int32_t>(collective.ranks.size());
  for (int32_t rank = 0; rank < ranks; ++rank)
    for (const Transfer& each : collective.ranks[static_cast<size_t>(rank)].transfers)
      if (each.sends) sent[{rank, each.peer}].push_back(each);
  for (int32_t rank = 0; rank < ranks; ++rank)
    for (const Transfer& each : collective.ranks[static_cast<size_t>(rank)].transfers) {
      if (each.sends) continue;
      std::deque<Transfer>& queue = sent[{each.peer, rank}];
      if (queue.empty() || queue.front().bytes != each.bytes)
        return "rank " + std::to_string(rank) + " receives " + std::to_string(each.bytes) + " bytes from rank " +
               std::to_string(each.peer) + ", which sends " + (queue.empty() ? "none" : std::to_string(queue.front().bytes));
      const auto* const from = static_cast<const Bytes*>(queue.front().data);
      deliveries.push_back({each.data, {from, from + each.bytes}});
      queue.pop_front();
    }
  for (const auto& [pair, queue] : sent)
    if (!queue.empty())
      return "rank " + std::to_string(pair.first) + " sends bytes that rank " + std::to_string(pair.second) +
             " does not receive";
  for (const Delivery& each : deliveries) std::memcpy(each.to, each.bytes.data(), each.bytes.size());
  return {};
}

}  // namespace

std::string compute(Collective& collective) {
  if (std::strcmp(collective.spec.name, kTransfers) == 0) return exchange(collective);
  const std::vector<std::vector<Bytes>> results = results_of(collective);
  for (size_t rank = 0; rank < results.size(); ++rank) write(collective, rank, results[rank]);
  return {};
}

}  // namespace ddp::test::fake_gpu
