// SPDX-License-Identifier: Apache-2.0
// Saving and loading: the collective part. Rank 0 writes and reads; what became of it is agreed by all ranks before any
// returns, so the status and the text are the same everywhere.
// Promises: see ddp/state.h and README.md. No more than kChunkBytes of a checkpoint is in memory besides the tensors
// themselves.
// Threads: the caller's, one at a time for a model.
// Tested by conformance/state_test.cpp, conformance/state_failure_test.cpp, conformance/load_test.cpp,
// process/state_kill_test.cpp, gpu_host/state_failure_test.cpp, gpu_host/trained_state_test.cpp and capi/state_test.c.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/source.hpp"
#include "model/model.hpp"
#include "model/replica_state.hpp"
#include "optim/ema.hpp"

namespace ddp::checkpoint {

inline constexpr int64_t kChunkBytes = int64_t{4} << 20;

/// The optimizers of a checkpoint, by their numbers in it.
class Optimizers {
 public:
  Optimizers() = default;
  /// One; NULL: none.
  Optimizers(model::ReplicaState* one) {
    if (one != nullptr) all_.push_back(one);
  }
  explicit Optimizers(std::vector<model::ReplicaState*> all) noexcept : all_(std::move(all)) {}
  [[nodiscard]] size_t size() const noexcept { return all_.size(); }
  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }
  [[nodiscard]] auto begin() const noexcept { return all_.begin(); }
  [[nodiscard]] auto end() const noexcept { return all_.end(); }
  [[nodiscard]] model::ReplicaState& operator[](size_t k) const noexcept { return *all_[k]; }

 private:
  std::vector<model::ReplicaState*> all_;
};

/// What a checkpoint is made of; all but the model may be absent.
struct Parts {
  model::Model& model;
  Optimizers optimizers{};
  optim::Ema* ema = nullptr;
  model::ReplicaState* outer = nullptr;
};

struct Counters {
  int64_t epoch = 0;
  int64_t step = 0;
};

/// How a checkpoint is loaded; ddp_state explains the two.
struct LoadMode {
  bool partial = false;
  bool local = false;
};

/// Takes the next bytes; 0 on success (ddp_write_fn). Throws an Error or nothing, as call_program() sees to.
using PushFn = std::function<int32_t(const void* data, int64_t bytes)>;

/// `refusal`: an argument of this rank that can not be right; every rank then throws it. `function` names the caller in
/// errors.
void save_file(const char* function, const Parts& parts, const Counters& counters, const std::string& path,
               const std::optional<Error>& refusal);
/// Into a folder (folder.hpp), of which `keep` steps stay, 0: all.
void save_latest(const char* function, const Parts& parts, const Counters& counters, const std::string& folder, int64_t keep,
                 const std::optional<Error>& refusal);
void save_stream(const char* function, const Parts& parts, const Counters& counters, const PushFn& push,
                 const std::optional<Error>& refusal);
/// This rank alone. Throws INVALID_STATE if it has not all.
void save_local(const char* function, const Parts& parts, const Counters& counters, const PushFn& push);

[[nodiscard]] Counters load_file(const char* function, const Parts& parts, const std::string& path,
                                 const std::optional<Error>& refusal, LoadMode mode = {});
[[nodiscard]] Counters load_latest(const char* function, const Parts& parts, const std::string& folder,
                                   const std::optional<Error>& refusal, LoadMode mode = {});
[[nodiscard]] Counters load_stream(const char* function, const Parts& parts, const PullFn& pull,
                                   const std::optional<Error>& refusal, LoadMode mode = {});

}  // namespace ddp::checkpoint
