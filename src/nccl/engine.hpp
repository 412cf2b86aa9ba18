// SPDX-License-Identifier: Apache-2.0
// What all exchanges of a group on GPUs have in common: one communication stream, NCCL between the ranks, and what keeps a
// failure from doing harm.
//
// Order. Everything that is communicated runs on one stream of high priority. It waits for the streams that wrote the data
// (order_after), and the stream that uses the result waits for it (order_before). The host waits for no device. With
// one rank there is no NCCL.
//
// Failure. When the group breaks, a word in page-locked memory (stop_words) is set first and NCCL is ended then, off this
// thread. Behind every collective a kernel copies that word into device memory, in the order of the stream, and once more
// before a kernel on another stream changes parameters: kernels look at the copy and do nothing if it is set. So what a
// broken collective leaves behind never reaches a parameter, and no kernel changes its mind half way.
//
// Threads: collectives and orders as the group's; the watch is a thread of its own.
// Tested by gpu_host/group_test.cpp, failure_test.cpp.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device/gpu/device.hpp"
#include "device/gpu/given_memory.hpp"
#include "exchange/transport.hpp"
#include "nccl/communicator.hpp"
#include "nccl/launch_order.hpp"
#include "nccl/stop_words.hpp"
#include "nccl/watch.hpp"

namespace ddp::nccl {

struct Scale;
class TreeOrder;
using collective::StopRead;

class Engine {
 public:
  /// Collective, over the control plane. All ranks throw the same if one cannot: NOT_SUPPORTED, TIMED_OUT, PEER_FAILED.
  Engine(const collective::TransportContext& context, const gpu::Device& device, gpu::GivenMemory& memory,
         os::Deadline deadline);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] const gpu::Device& device() const noexcept { return device_; }
  [[nodiscard]] int32_t rank() const noexcept { return rank_; }
  [[nodiscard]] int32_t size() const noexcept { return size_; }
  [[nodiscard]] void* stream() const noexcept { return stream_->get(); }
  /// Throws the group's cause once it is broken, and ABORTED after end_sequence().
  [[nodiscard]] Communicator& communicator();
  /// A collective that the other ranks make is missing here. So NCCL gets none of those that follow: it would take them for
  /// the one that is missing. No update uses unreduced data either; the group will break.
  void end_sequence() noexcept;
  /// LaunchOrder's words, now or at the last collective; 0 with one rank.
  enum class At { kNow, kLastCollective };
  [[nodiscard]] uint64_t order_word(At at = At::kNow) const;
  [[nodiscard]] const bootstrap::Control& control() const noexcept { return *context_.control; }

  /// Later work on the communication stream waits for the present work on `stream` now, or the other way round. Nothing if
  /// that is the communication stream.
  void order_after(void* stream);
  void order_before(void* stream);

  /// Work that needs a result but no communication, so that the next collective does not wait for it: a stream that comes
  /// after what is on the communication stream now. What follows there comes after it only once it is joined.
  [[nodiscard]] void* fork();
  void join();

  /// NULL: NCCL adds; else the library does, in the order of the CPU (group option `reproducible`).
  [[nodiscard]] TreeOrder* tree() const noexcept { return tree_.get(); }

  /// For the kernels that come next on this stream: a word that is not 0 if the group was broken by then; NULL with one
  /// rank. Costs a kernel that copies the word, unless the one kernel that comes next has one thread that reads it, once.
  [[nodiscard]] ddp_gpu_stop stop_on(void* stream, StopRead read = StopRead::kByMany);

  /// Waits for what is on the communication stream. False: the group broke first, or its timeout passed; then the group's
  /// next exchange finds the late rank.
  [[nodiscard]] bool is_done_in_time();

  // On this rank's tensors; reductions of floats. `stream`: as above. Not while a bucket is under way.
  void all_reduce(const Tensor& tensor, ddp_reduce op, void* stream);
  void all_gather(const Tensor& input, const Tensor& output, void* stream);
  void reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op, void* stream);
  void broadcast(const Tensor& tensor, int32_t root, void* stream);

  /// Zeroed device memory, on 256 bytes. Throws OUT_OF_MEMORY.
  [[nodiscard]] void* alloc(int64_t bytes);
  /// Memory that operations use one after the other, in the order of the communication stream: at least `bytes`. It stays
  /// where it is as long as the transport. Throws OUT_OF_MEMORY.
  [[nodiscard]] void* staging(int64_t bytes);
  /// Waits until the device is idle, for timeout_ms at most (0: a minute), and a second once the group is broken; memory
  /// that may still be in use then is kept for ever. For memory from alloc, of this transport or of one before a recovery.
  void free(void* data) noexcept;

  /// The group broke. Any thread, quick.
  void wake() noexcept;
  /// Leave: in order (all ranks have done what they wanted), or not. Bounded.
  /// As the process ends by exit(), which takes NCCL and CUDA down: from then on nothing of this transport calls NCCL, and
  /// its communicator stays as it is. In order: not before the device has sent to the others what they wait for. Any thread.
  using Leaves = collective::GpuSide::Leaves;
  void close(bool in_order, Leaves what = Leaves::kGroup) noexcept;

 private:
  void try_out(os::Deadline deadline);
  void say_what_started(const ddp_nccl_table& nccl) const;
  void await_stream(os::Deadline deadline);
  void close_in_order() noexcept;
  [[nodiscard]] bool comes_to_an_end(os::Deadline deadline) noexcept;
  void decide_about_memory() noexcept;
  void scale(const Tensor& from, const Tensor& to, const Scale& by, void* stream);
  [[nodiscard]] Tensor terms_like(const Tensor& input, void* stream);

  const collective::TransportContext context_;
  const gpu::Device& device_;
  gpu::GivenMemory& memory_;
  const int32_t rank_;
  const int32_t size_;
  std::unique_ptr<gpu::Stream> stream_;
  std::unique_ptr<gpu::Stream> side_stream_;  // of fork(); NULL: not forked
  struct {
    std::mutex mutex;  // guards event between record and wait
    std::unique_ptr<gpu::Event> event;
  } ordering_;
  std::unique_ptr<StopWords> stop_words_;  // set when the group breaks; NULL with one rank
  std::shared_ptr<Communicator> communicator_;
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<LaunchOrder> order_;  // NULL with one rank
  std::unique_ptr<TreeOrder> tree_;     // NULL: NCCL adds
  struct {
    std::vector<void*> memory;  // from alloc; the last is used
    int64_t bytes = 0;          // of that
  } staging_;
  struct {
    std::atomic<bool> sequence_ended{false};
    std::atomic<bool> stuck{false};  // the device did not become idle when it was waited for last
  } flags_;
};

/// Throws NOT_SUPPORTED: NCCL cannot take this mean. `reproducible`: the group's option.
void check_reduction(const char* function, const Tensor& tensor, ddp_reduce op, bool reproducible);

}  // namespace ddp::nccl
