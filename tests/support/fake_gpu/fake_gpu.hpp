// SPDX-License-Identifier: Apache-2.0
// A GPU and an NCCL that are none: a second implementation of device/gpu/gpu_abi.h on host threads, so that all of libddp's
// host logic for GPUs is tested on machines without one. This header is what tests say to it and ask of it.
//
// Memory: "device addresses" are in a range that cannot be read or written; a host access to one ends in SIGSEGV. The bytes
// are stored elsewhere.
// Memory is filled with rubbish when it is allocated and when it is freed. Pinned memory has a host address and another,
// device address.
// Streams: queues, each run by a thread of its own, so work really happens later; events are real dependencies.
// Races: two operations that touch the same bytes, one of them writing, without an order that events, streams or host
// synchronisation give, are a violation, whether or not the threads met. What one thread learned by blocking (synchronize),
// or by event_query, counts as known to all threads; what a thread that called relax_capture (the watchdog) learns is known
// to it alone.
// Exit: NCCL is taken down by a handler of exit() that was set up at its first call. A call that ends a communicator then,
// or any call of NCCL later, is a violation.
// Forks: as with CUDA, a child cannot use what its parent made. Its calls fail and are a violation, which the parent sees
// too; touching device or pinned memory ends it.
// Arithmetic: the CPU's kernels, so the fake is an oracle that knows nothing of the CUDA code.
// NCCL: ranks are threads of this process, each with a device of its own; what ranks must agree on is checked. Its sums
// begin at rank 1, because NCCL's order is not the CPU's; sends and receives of a group are one operation, to which all
// ranks must come.
//
// As a runtime does: `free` waits until its device is idle, host_free until nothing uses the block; a copy to pageable
// memory blocks. As NCCL does: mem_free does not wait, so memory that may still be in use is a violation; in a collective
// on registered memory, and in one that is captured, the hosts of all ranks meet, whatever happens to one of them:
// comm_abort waits for that too. Handles (streams, events, communicators) are addresses that cannot be dereferenced and
// never come twice. Threads: everything here and in the tables may be called by any thread. One instance in a process, or in
// each copy of the file libddp_cuda.so: a C++ test that links this and also lets libddp open that file has two. Tested by
// unit/fake_gpu/.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/gpu/gpu_abi.h"

namespace ddp::test::fake_gpu {

/// The tables. Valid for ever; nccl() is what open_nccl gives.
[[nodiscard]] const ddp_gpu_table& table() noexcept;
[[nodiscard]] const ddp_nccl_table& nccl() noexcept;

struct Options {
  int32_t devices = 8;
  int64_t device_bytes = int64_t{1} << 30;  // of each; an allocation beyond is DDP_GPU_OUT_OF_MEMORY
  uint64_t seed = 0;                        // not 0: operations begin after small random delays
  int32_t max_delay_us = 200;
  int32_t driver_version = 13000;  // 0: no driver (every call but driver_version is DDP_GPU_NO_DRIVER)
  int32_t nccl_version = 22809;
  bool poison = true;      // fill fresh and freed memory with rubbish
  int64_t nccl_looks = 0;  // how often comm_async_error reports a call in progress; 0: calls block
  /// Not 0: work on an idle stream begins up to this number of ms late, a new number each time, unless a host waits for that
  /// stream; a query sees that an event is done two queries late; copies with pageable memory are asynchronous.
  int64_t late_ms = 0;
  /// Not 0: load_kernels, nccl.mem_alloc, and making and ending a communicator take up to this number of ms, a different
  /// time on each rank.
  int64_t slow_init_ms = 0;
  /// How many collectives a device can hold that wait for other ranks; 0: no limit.
  int64_t nccl_at_once = 0;
  /// Not 0: free and host_free do not wait, as mem_free: memory that may still be in use is a violation.
  int64_t frees_at_once = 0;
  /// An algorithm is connected when a collective first takes it, and two ranks when they first send to each other: the hosts
  /// of these ranks meet in that call, until one aborts. Which algorithm depends on kind and size.
  bool nccl_connects = false;
};

/// What the environment asks for as well, for programs that say nothing: DDP_FAKE_GPU=late,slow_init,looks,one,free. "=N"
/// behind the first four if the number is not to be the usual one (8 ms, 300 ms, 7, 1). It never makes an option smaller.
inline constexpr char kModes[] = "DDP_FAKE_GPU";

/// Ends and forgets everything (streams, memory, communicators, faults, log, violations, hooks) and begins anew. For the
/// beginning of a test, when no other thread is inside a table function. Calls that wait for something return an error.
void reset(const Options& options = {});

// --- What went wrong, what is left ---

/// Sentences: races, uses of freed or foreign memory, of destroyed handles, disagreements between ranks, calls made in a
/// fork of the process that made the first one (of all forks; there, only these). Empty in a correct program.
[[nodiscard]] std::vector<std::string> violations();
void clear_violations();

struct Live {
  int64_t allocations = 0;  // alloc and nccl.mem_alloc
  int64_t bytes = 0;        // of these
  int64_t pinned = 0;       // blocks of host_alloc
  int64_t streams = 0;      // without the default streams
  int64_t events = 0;
  int64_t communicators = 0;
  int64_t registrations = 0;  // nccl.comm_register
  [[nodiscard]] int64_t total() const noexcept {
    return allocations + pinned + streams + events + communicators + registrations;
  }
};
[[nodiscard]] Live live();                // of all devices
[[nodiscard]] Live live(int32_t device);  // pinned: blocks that were allocated while it was current

// --- What was called ---

/// The calls since the last clear_log, oldest first, as "[device] name stream=S event=E bytes=B"; parts that a call lacks
/// are left out. S and E are small numbers (stream_number), 0 the default stream. Calls of NCCL are "nccl.all_reduce" and so
/// on. The newest 65,536.
[[nodiscard]] std::vector<std::string> log();
void clear_log();
/// How often a function of the tables was called since the last clear_log ("alloc", "nccl.all_reduce"); failed calls count.
[[nodiscard]] int64_t calls(const std::string& name);
[[nodiscard]] int64_t calls(const std::string& name, int32_t device);
/// Calls that gave the device something to do, or an order of its streams: kernels, copies, collectives (the sends and
/// receives of a group are one), event_record, stream_wait.
[[nodiscard]] int64_t enqueued(int32_t device);
/// synchronize, stream_synchronize, event_synchronize, free, host_free, and copies between the device and pageable memory.
[[nodiscard]] int64_t host_waits();
/// alloc, host_alloc, nccl.mem_alloc.
[[nodiscard]] int64_t allocations();

// --- The bytes ---

/// Copies at once, whatever runs; for tests that look behind the curtain. False (and nothing done) if the range is no live
/// memory.
bool peek(void* to, const void* device_memory, int64_t bytes);
bool poke(void* device_memory, const void* from, int64_t bytes);

// --- Streams ---

/// Holds a stream before its next operation, until resume. NULL: the default stream of the calling thread's device.
void pause(void* stream);
void resume(void* stream);
/// All streams of a device, those that are still to be made too.
void pause_device(int32_t device);
void resume_device(int32_t device);
/// Operations that have been queued and are not done.
[[nodiscard]] int64_t pending(void* stream);
[[nodiscard]] int64_t pending_on_device(int32_t device);
/// Waits until nothing is queued or running on any stream, without telling the race detector. False after limit_ms.
bool wait_idle(int64_t limit_ms = 10'000);

struct StreamInfo {
  void* stream = nullptr;
  int64_t number = 0;
  int32_t device = 0;
  bool high_priority = false;
  bool capturing = false;
};
/// Those that live, in the order of their making, without the default streams.
[[nodiscard]] std::vector<StreamInfo> streams();
[[nodiscard]] int64_t stream_number(void* stream);
[[nodiscard]] int64_t event_number(void* event);

// --- Capture ---

/// Whose calls that are unsafe in a capture (alloc, free, host_alloc, host_free, synchronize and query of anything) fail
/// with DDP_GPU_CAPTURE and spoil it, as in CUDA: those of every thread that did not call relax_capture, of the capturing
/// thread, or only those about captured streams and events.
enum class CaptureMode { kGlobal, kThreadLocal, kRelaxed };

/// The captured work. It may be launched any number of times, also after the streams were destroyed.
class Graph;
using GraphPtr = std::shared_ptr<Graph>;

/// Work given to `stream`, and to streams that wait for its events, is recorded and not run. False if it is capturing
/// already.
bool begin_capture(void* stream, CaptureMode mode = CaptureMode::kGlobal);
/// NULL with a sentence in *why (if not NULL): the capture was spoiled, or a stream that joined it was not joined back.
[[nodiscard]] GraphPtr end_capture(void* stream, std::string* why = nullptr);
/// Runs it as one operation of `stream`.
void launch_graph(const GraphPtr& graph, void* stream);
/// Names of the operations, in order.
[[nodiscard]] std::vector<std::string> graph_operations(const GraphPtr& graph);

// --- Faults ---

struct Fault {
  std::string function;          // "event_record", "nccl.comm_init"; "nccl.*": all that Death counts
  int64_t nth = 1;               // of the calls from now on
  int64_t times = 1;             // how many calls fail from the nth on
  int32_t kind = DDP_GPU_OTHER;  // a ddp_gpu_error_kind; for functions of NCCL a ddp_nccl_error_kind
  int32_t device = -1;           // only calls on this device (the calling thread's, or the communicator's); -1: any
};
/// The call does nothing and returns an error of that kind.
void inject(const Fault& fault);
void clear_faults();
/// Every later call on the device (-1: all) fails with DDP_GPU_LOST, until reset. Queued work still runs.
void lose_device(int32_t device = -1);
void set_device_count(int32_t count);      // 0: device_count returns DDP_GPU_NO_DEVICE
void set_driver_version(int32_t version);  // as in Options

// --- NCCL ---

/// Not empty: open_nccl fails with this text.
void set_open_nccl_error(const std::string& text);
/// comm_async_error of communicators of `device` (-1: all) reports a result of this kind (a ddp_nccl_error_kind) from now
/// on.
void set_async_error(int32_t device, int32_t kind);

enum class NcclCall { kInit, kFinalize, kDestroy, kAbort, kAsyncError };
/// That function blocks for so long on the device (-1: all) before it does its work; below 0: until abort of that
/// communicator (kInit, kFinalize, kDestroy) or reset. An aborted call returns an error. A communicator that is freed
/// while a thread is inside kAsyncError is a violation.
void delay_nccl(NcclCall call, int32_t device, int64_t delay_ms);

/// What the nth call of NCCL's table on `device` from now on is for, comm_async_error and the texts left out: the rank ends
/// there. `tell` runs on the calling thread; then this call, and every later one there, holds its thread until end_death(),
/// and the device's streams stand still. After it they continue, and the calls that were held return an error.
struct Death {
  int32_t device = 0;
  int64_t nth = 1;
  std::function<void()> tell;
};
void let_die(Death death);
/// Did it come to that?
[[nodiscard]] bool is_dead();
void end_death();

/// Of the communicators that live, in the order of their making.
[[nodiscard]] std::vector<int32_t> max_ctas();

/// Collectives that run on the device, or wait there for their ranks.
[[nodiscard]] int64_t running_collectives(int32_t device);
/// Collectives that ran to their end, counted once for all ranks.
[[nodiscard]] int64_t collectives();

/// What an aborted collective leaves in its output, and what fresh and freed memory holds.
inline constexpr uint8_t kAborted = 0xEE;
inline constexpr uint8_t kFresh = 0xFB;
inline constexpr uint8_t kFreed = 0xDB;

}  // namespace ddp::test::fake_gpu
