// SPDX-License-Identifier: Apache-2.0
// What a transport does on GPUs besides exchanges: the order between its work and the streams of the program, the word that
// stops kernels, memory, and its end. All channels of a group have one. In host memory nothing is ordered by streams, so the
// functions of this class do nothing; nccl/shared_engine.hpp has those of GPUs.
//
// Threads: one at a time, as Transport, except is_connected(), stop_on(), check_reduction() and is_ordered_by_stream(),
// which any may call. Tested by gpu_host/group_test.cpp and unit/pass/part_order_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor.hpp"

namespace ddp::collective {

/// The reader of the word that stops kernels.
enum class StopRead { kByMany, kOnce };

class GpuSide {
 public:
  GpuSide() = default;
  virtual ~GpuSide() = default;
  GpuSide(const GpuSide&) = delete;
  GpuSide& operator=(const GpuSide&) = delete;

  /// Connects the GPUs of all ranks, if they are not yet. Collective the first time, as are stream(), the orders and
  /// alloc(). Throws NOT_SUPPORTED, TIMED_OUT and PEER_FAILED on all ranks.
  virtual void connect() {}
  [[nodiscard]] virtual bool is_connected() const noexcept { return false; }

  /// Throws NOT_SUPPORTED if such a tensor cannot be reduced so where it lies. Local. `function` begins the text.
  virtual void check_reduction(const char* /*function*/, const Tensor&, ddp_reduce) const {}
  /// Does a collective on this tensor return before it is done, because its stream orders what follows?
  [[nodiscard]] virtual bool is_ordered_by_stream(const Tensor&) const noexcept { return false; }

  /// The communication stream, on which everything is exchanged; NULL: there is none.
  [[nodiscard]] virtual void* stream() { return nullptr; }
  /// What is exchanged from now on comes after what is on this stream now, or the other way round.
  virtual void order_after(void*) {}
  virtual void order_before(void*) {}
  /// A stream for work that needs a result but no communication: it comes after what is on the communication stream now.
  /// What follows there comes after that work only once it is joined.
  [[nodiscard]] virtual void* fork() { return nullptr; }
  virtual void join() {}
  [[nodiscard]] virtual bool is_capturing(void*) const { return false; }
  /// In a group that can recover the host waits until what was exchanged is done, so that it counts what has happened. In
  /// another group this does nothing. Throws the group's cause if it broke before, and INVALID_STATE while exchanges are
  /// captured into a graph; that error names the public call, if it is not NULL.
  virtual void settle(const char*) {}
  /// For the kernels that come next on this stream: a word that is not 0 if the group was broken by then; or NULL. It costs
  /// a kernel, unless the one kernel that comes next has one thread that reads it, once.
  [[nodiscard]] virtual const uint32_t* stop_on(void*, StopRead) { return nullptr; }

  /// A pass with buckets on GPUs begins, or is over. Throws INVALID_STATE if one is open on another channel.
  virtual void open_pass() {}
  virtual void close_pass() noexcept {}

  /// Zeroed memory of this rank's GPU, in the reach of the other ranks. Throws OUT_OF_MEMORY. NULL: there is no GPU.
  [[nodiscard]] virtual void* alloc(int64_t) { return nullptr; }
  /// False if it does not come from alloc, of this group or before a recovery.
  [[nodiscard]] virtual bool free(void*) noexcept { return false; }
  /// Does all of this lie in one piece of such memory?
  [[nodiscard]] virtual bool gave(const std::byte*, int64_t) const noexcept { return false; }

  /// This rank leaves, in order (all ranks have done what they wanted) or not. `process`: by exit(), which takes the
  /// libraries of the GPU down; then any thread.
  enum class Leaves { kGroup, kProcess };
  virtual void close(bool /*in_order*/, Leaves) noexcept {}
  /// After close(), when nothing uses its communication any more.
  virtual void end() noexcept {}
};

}  // namespace ddp::collective
