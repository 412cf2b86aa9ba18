// SPDX-License-Identifier: Apache-2.0
// One NCCL communicator: made with a deadline, used by one thread at a time, ended by any thread; or one that the program
// lends, which is only used.
//
// No call of NCCL may hold a thread for ever when a rank is lost. The communicator does not block: the caller polls until
// the call is over, and stops polling when the group breaks. Calls that may block nevertheless (making it with
// NCCL_COMM_BLOCKING=1, and ending it) run on separate threads, and waits for them have a limit; such a thread owns what it
// uses. Collectives are enqueued on a stream and return. They are the same on all ranks, in the same order: the caller
// ensures that. Threads: any. Tested by gpu_host/communicator_test.cpp and gpu_host/failure_test.cpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/dtype.hpp"
#include "device/gpu/device.hpp"
#include "nccl/launch_order.hpp"
#include "os/clock.hpp"

namespace ddp::nccl {

inline constexpr int64_t kBrokenMs = 1000;  // for what is under way when the group breaks

// Which collectives NCCL has carried out so far. Since 2.22 it connects an algorithm when that is used first, which the
// hosts of all ranks do together: the first one waits. A mark must not wait, so the collectives of later passes are used
// once before, when all ranks are there (Operation::use_once). Which algorithm NCCL takes depends on kind, type and size,
// and between two sizes of which one is at most twice the other it takes one of theirs. They are the same on all ranks.
// Threads: one at a time.
/// A collective on a block, in place.
struct BlockCollective {
  enum class Kind { kAllReduce, kReduceScatter, kAllGather };
  Kind kind = Kind::kAllReduce;
  int64_t count = 0;  // elements: of the block; of a rank's slice, where it has slices
  ddp_dtype dtype = DDP_F32;
  [[nodiscard]] int64_t bytes() const noexcept { return count * dtype_size(dtype); }
};

class FirstUses {
 public:
  /// May NCCL have to connect for it?
  [[nodiscard]] bool is_first(const BlockCollective& collective) const {
    const auto found = used_.find(class_of(collective));
    return collective.count > 0 &&
           (found == used_.end() || collective.bytes() < found->second.first || collective.bytes() > found->second.second);
  }
  void add(const BlockCollective& collective) {
    const auto [at, is_new] = used_.try_emplace(class_of(collective), collective.bytes(), collective.bytes());
    if (!is_new)
      at->second = {std::min(at->second.first, collective.bytes()), std::max(at->second.second, collective.bytes())};
  }

 private:
  using Class = std::tuple<BlockCollective::Kind, ddp_dtype, int>;
  [[nodiscard]] static Class class_of(const BlockCollective& collective) noexcept {
    return {collective.kind, collective.dtype, std::bit_width(static_cast<uint64_t>(collective.bytes()))};
  }

  std::map<Class, std::pair<int64_t, int64_t>> used_;  // the fewest and most bytes
};

class Communicator {
 public:
  struct Place {
    int32_t rank = 0;
    int32_t size = 1;
    std::string id;    // DDP_NCCL_ID_BYTES from rank 0
    std::string name;  // for NCCL's own messages
    int32_t max_ctas = 0;
  };
  /// One that the program has made, and where it must be.
  struct Lent {
    void* comm = nullptr;
    int32_t rank = 0;
    int32_t size = 1;
  };

  /// One that is still to connect.
  Communicator(const gpu::Device& device, const ddp_nccl_table& table);
  /// Collective, once. Throws TIMED_OUT when the others have not come by the deadline (then this process should not try
  /// again), PEER_FAILED, and the errors of `check`, which checks whether the group is still usable.
  void connect(const Place& place, os::Deadline deadline, const std::function<void()>& check);
  /// Is the GPU not yet at the point where NCCL could look for the other ranks? (Unknown if NCCL blocks.)
  [[nodiscard]] bool is_inside_init() const;
  /// Uses one that is lent, and never ends it. Local. Throws INVALID_ARGUMENT if it has another size, rank or device, or has
  /// failed, TIMED_OUT if a call of the lender is still under way, and what `check` throws.
  Communicator(const gpu::Device& device, const ddp_nccl_table& table, const Lent& lent, os::Deadline deadline,
               const std::function<void()>& check);
  /// Ends it as abort does, unless close() has.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] const ddp_nccl_table& table() const noexcept;
  [[nodiscard]] static std::string make_id(const ddp_nccl_table& table);
  /// Collectives take their turn there, from now on. It lives as long as they are called. `timeout_ms`: of a call that NCCL
  /// does not bring to its end; 0: none. `check` throws why all has come to an end, and does so for calls that NCCL was
  /// ended in, and until settle() for all that wait.
  void set_order(LaunchOrder* order, int64_t timeout_ms, std::function<void()> check) noexcept {
    order_ = order;
    timeout_ms_ = timeout_ms;
    check_ = std::move(check);
  }
  /// The first collective has been made; from now on the code that detects a failure calls abort().
  void settle(int64_t timeout_ms) noexcept {
    timeout_ms_ = timeout_ms;
    is_settled_ = true;
  }

  /// Elements to or from another rank.
  struct Transfer {
    int32_t peer = 0;
    bool sends = false;
    void* data = nullptr;
    int64_t count = 0;
    ddp_dtype dtype = DDP_F32;
  };

  // Counts are elements; dtype a ddp_dtype; `reduce` a ddp_gpu_reduce. Throw PEER_FAILED with NCCL's words, and TIMED_OUT.
  void all_reduce(const void* send, void* receive, int64_t count, ddp_dtype dtype, int32_t reduce, void* stream);
  void reduce_scatter(const void* send, void* receive, int64_t receive_count, ddp_dtype dtype, int32_t reduce, void* stream);
  void all_gather(const void* send, void* receive, int64_t send_count, ddp_dtype dtype, void* stream);
  void broadcast(const void* send, void* receive, int64_t count, ddp_dtype dtype, int32_t root, void* stream);

  /// The first of them in place, for floats; sums.
  void run(const BlockCollective& collective, std::byte* block, int32_t rank, void* stream);
  [[nodiscard]] FirstUses& first_uses() noexcept { return first_uses_; }

  /// All of them at once; the n-th one sent to a rank meets the n-th one that it receives. Every rank has some.
  void exchange(const std::vector<Transfer>& transfers, void* stream);

  /// Memory of NCCL's kind, which the caller frees (ddp_nccl_table::mem_free). Throws OUT_OF_MEMORY, what the device throws,
  /// and INTERNAL with NCCL's words.
  [[nodiscard]] void* alloc(int64_t bytes);

  /// What NCCL has noticed by itself; empty: nothing. Never blocks.
  [[nodiscard]] std::string trouble() const;
  /// End what runs on the device, for good, within some two seconds; once. Of one that is lent: only use it no longer.
  void abort() noexcept;
  /// Never use it again, nor end it: the device may still be at work on what belongs to it.
  void leave() noexcept;
  /// The orderly end, once all work on the device is done. Turns into abort when it takes longer than `limit_ms`, or a
  /// second longer than all ranks are there, as `is_broken` tells. Throws nothing. Of one that is lent: as abort.
  void close(int64_t limit_ms, const std::function<bool()>& is_broken) noexcept;

 private:
  struct Link;
  void check_lent(const Lent& lent) const;
  void await_ranks(const Place& place, os::Deadline deadline, const std::function<void()>& check);
  [[noreturn]] void fail_alloc(int32_t code, int64_t bytes) const;
  [[noreturn]] void fail_late(const char* doing) const;
  [[noreturn]] void fail_ended(const char* when, const char* doing) const;
  template <class Call>
  void call(const char* doing, Call&& body);
  template <class Call>
  void call_alone(const char* doing, Call&& body);
  const gpu::Device& device_;
  std::shared_ptr<Link> link_;
  LaunchOrder* order_ = nullptr;  // NULL: the first collective has not been made
  int64_t timeout_ms_ = 0;
  std::function<void()> check_;
  bool is_settled_ = false;
  FirstUses first_uses_;
};

}  // namespace ddp::nccl
