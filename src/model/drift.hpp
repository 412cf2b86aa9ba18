// SPDX-License-Identifier: Apache-2.0
// Do all ranks still hold the same bits? Content hashes (XXH3) are compared, one number for all tensors first, and only if
// that differs one for each; so equal replicas cost one pass over memory and one small exchange. Tensors on a GPU are hashed
// there, by a hash of its own, and the host reads the numbers once.
// Tested by unit/model/drift_test.cpp, conformance/drift_test.cpp, conformance/pass_test.cpp and
// gpu_host/sync_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/parameters.hpp"
#include "group/group.hpp"

namespace ddp::model {

enum class Compare { kParameters, kAll };

/// How ranks differ: the first tensor, and the contents of each rank.
struct Drift {
  std::string text;                // `parameter "w" is different on rank 2 from what most ranks hold`
  int32_t source = -1;             // the lowest rank that holds of every tensor what most ranks hold; -1: a tie
  std::vector<int32_t> odd;        // ranks that differ from the source; empty on a tie
  std::vector<int32_t> ranks;      // that the text names
  std::vector<int32_t> differing;  // tensors that are not equal on all ranks
  size_t first = 0;                // the tensor that the text names
  bool only_buffers = false;       // all parameters are equal
};

/// Empty if all are equal. Collective; the same on every rank. Waits for the stream if there are tensors on a GPU.
[[nodiscard]] std::optional<Drift> find_drift(group::Group& group, const Parameters& table, Compare compare,
                                              void* stream = nullptr);

/// Tensors that are to be equal, with what they are called: `buffer "mean"`.
struct NamedTensors {
  std::vector<std::string> names;
  std::vector<Tensor> tensors;

  void add(std::string name, const Tensor& tensor);
  void add_values(const Parameters& table);
  void add_buffers(const Parameters& table);
};

/// The same for any tensors; `only_buffers` is not set.
[[nodiscard]] std::optional<Drift> find_drift(group::Group& group, const NamedTensors& compared, void* stream = nullptr);

/// One number for each tensor: equal for equal bytes in the same place (host or GPU), on every rank.
[[nodiscard]] std::vector<uint64_t> content_hashes(group::Group& group, const std::vector<Tensor>& tensors, void* stream);

/// The same from hashes: by_rank[rank][tensor]. Pure.
[[nodiscard]] std::optional<Drift> judge(const std::vector<std::string>& names,
                                         const std::vector<std::vector<uint64_t>>& by_rank);

/// Throws MISMATCH.
[[noreturn]] void throw_drift(const char* function, const Drift& drift);

}  // namespace ddp::model
