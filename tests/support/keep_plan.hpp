// SPDX-License-Identifier: Apache-2.0
// What a training of keep_training.hpp does and which of its ranks die when, and memory of which one page ends the process.
#pragma once

#include <sys/mman.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "ddp/experimental.h"

namespace ddp::test {

struct KeepPlan {
  std::string rendezvous;
  int32_t ranks = 4;
  ddp_backend backend = DDP_BACKEND_AUTO;
  int32_t ranks_a_host = 0;  // on made-up hosts; 0: they are where they are
  int64_t steps = 16;
  // how it updates
  bool own_rule = false;  // of the program, else AdamW
  bool in_backward = false;
  bool late_values = false;
  bool bfloat = false;
  bool masters = false;
  bool own_values = false;
  bool averages = false;
  bool shard = true;
  bool undo = true;
  bool two_models = false;
  bool two_optimizers = false;  // of the first model; the other one is AdamW
  bool shard_second = true;
  bool earlier_model = false;  // one is made before, is never kept, and goes behind the first keep
  int64_t keep_every = 1;      // steps; 0: never
  double max_norm = 0;
  double loss_scale = 0;
  int32_t virtual_ranks = 0;
  // who dies
  enum class Moment {
    kNever,
    kBeforePass,
    kInPass,        // one parameter is marked
    kBeforeStep,    // the pass has ended
    kInStep,        // the rule has changed some blocks, and they may be given
    kBetweenSteps,  // of two optimizers
    kAfterStep,
    kInKeep,     // its copy reads the page `after` of the largest parameter; at the end of the keep if it reads no such page
    kInLoad,     // a recovery writes to that page; at its end if it does not
    kInRecovery  // the others may be anywhere in it
  };
  struct Death {
    int32_t id = -1;
    int64_t step = 0;
    Moment moment = Moment::kNever;
    int32_t after = 0;  // of the rule, blocks in this step; in a recovery, microseconds; a page
    /// A thread of the library may be the first there. It blocks all signals, so the process ends without the handler.
    [[nodiscard]] bool at_page() const noexcept { return moment == Moment::kInKeep || moment == Moment::kInLoad; }
  };
  std::vector<Death> deaths;
  bool all_is_lost = false;  // a part dies with all that hold it
};

/// Pages of a parameter of which one can be made to end the process.
class Pages {
 public:
  explicit Pages(int64_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage) {
    void* const made =
        mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) throw Error(DDP_ERROR_OUT_OF_MEMORY, "no pages");
    data_ = static_cast<std::byte*>(made);
  }
  ~Pages() {
    if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
  }
  Pages(Pages&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// From now on an access that `allowed` does not cover is a death.
  void guard(int32_t page, int allowed) const {
    if (std::signal(SIGSEGV, [](int) { std::raise(SIGKILL); }) == SIG_ERR) throw Error(DDP_ERROR_INTERNAL, "no handler");
    const int64_t at = page * kPage;
    if (at < bytes_ && mprotect(data_ + at, kPage, allowed) != 0) throw Error(DDP_ERROR_INTERNAL, "no guard");
  }

 private:
  static constexpr int64_t kPage = 4096;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace ddp::test
