// SPDX-License-Identifier: Apache-2.0
// Seam 2: how the bytes of a group are sent. Implementations: shm/ (ranks of one host, and ranks that are threads), socket/
// (point-to-point links such as Gloo's), hosts/ (both), single rank; and nccl/ (tensors on GPUs; it contains one of the
// others for the rest).
//
// Every collective carries a stamp. It is compared between the ranks before any result is written; a difference is
// DIFFERENT_CALLS on all ranks and ends the group. Arithmetic is always device/cpu/reduce.hpp's rule, so that every
// transport gives the same bits. Threads: one at a time on each channel, except wake().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "control/control.hpp"
#include "core/ownership.hpp"
#include "core/tensor.hpp"
#include "ddp/group.h"
#include "device/cpu/reduce.hpp"
#include "exchange/arena.hpp"
#include "exchange/bucket_header.hpp"
#include "exchange/gpu_side.hpp"
#include "exchange/keeping.hpp"
#include "exchange/messages/streams.hpp"

namespace ddp::bootstrap {
class Failure;
}  // namespace ddp::bootstrap
namespace ddp::collective {

enum class Collective : uint16_t {
  kBarrier = 1,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kBucket,
  kBucketReduceScatter,
  kBucketAllGather,
  kFusedStep
};

/// The call that a rank is about to make; if it differs between ranks, no rank makes it. Plain bytes: it is in shared pages
/// and frame headers.
struct Stamp {
  Collective kind = Collective::kBarrier;
  /// The public call, as it is compared; kNone for buckets, which begin where the program marks.
  struct Caller {
    bootstrap::UserCall call = bootstrap::UserCall::kNone;
    [[nodiscard]] bool operator==(const Caller& other) const noexcept {
      return bootstrap::compared_as(call) == bootstrap::compared_as(other.call);
    }
  } caller;
  ddp_dtype dtype = DDP_U8;
  ddp_reduce op = DDP_SUM;
  int32_t root = 0;
  int32_t bucket = -1;
  ddp_dtype wire = cpu::ReduceRule::kAsItIs;  // of the terms under way, if it is another than dtype
  int64_t count = 0;                          // elements
  uint64_t plan_hash = 0;                     // of the model's plan, for buckets; else the number of the model, 0: of none
  uint64_t sequence = 0;                      // number of this collective in the group, from 1

  static constexpr int32_t kJoinHeader = -2;  // in the place of a bucket's number (parts/batch/join_header.hpp)

  [[nodiscard]] bool operator==(const Stamp&) const noexcept = default;
  /// "ddp_group_all_reduce (all-reduce #17 of 1,024 F32 elements (average))" / "ddp_model_end_backward (bucket 2, collective
  /// #17, ...)"
  [[nodiscard]] std::string describe() const;
  /// The public call in which a rank makes this one.
  [[nodiscard]] bootstrap::UserCall user_call() const noexcept;
  [[nodiscard]] int64_t bytes() const noexcept { return count * dtype_size(dtype); }

 private:
  [[nodiscard]] std::string describe_kind() const;
};
static_assert(sizeof(Stamp) == 48);

/// Adds the public call of this thread, and its model; on the channel of requests, whichever thread works there, the call
/// that posted.
inline void sign(Stamp& stamp, const bootstrap::CallState& calls, int32_t channel) noexcept {
  if (channel == bootstrap::kRequestChannel) stamp.caller.call = calls.requested();
  if (channel == bootstrap::kRequestChannel || !calls.is_caller()) return;
  stamp.caller.call = calls.call();
  if (bootstrap::compared_as(stamp.caller.call) != bootstrap::UserCall::kNone) stamp.plan_hash = calls.model();
}

/// DIFFERENT_CALLS: "ranks made different calls: rank 0 (host a, pid 1) waits in ddp_group_barrier (barrier #5); rank 2
/// (...) waits in ..."
[[nodiscard]] Error stamp_mismatch(const bootstrap::Control& control, int32_t rank_a, const Stamp& a, int32_t rank_b,
                                   const Stamp& b);

/// Gradients that are added up, with the rule for that. `pieces` are the gradients in bucket order.
struct BucketSpec {
  int32_t index = 0;
  cpu::ReduceRule rule;
  uint64_t plan_hash = 0;
  struct Piece {
    std::byte* data = nullptr;
    int64_t count = 0;   // elements
    bool owned = false;  // libddp's own memory, from alloc(), laid out as the plan says, padded with zeros to the next
                         // piece; or the program's, of a bucket that has this layout without padding and is tied
    int64_t offset = 0;  // elements, of the piece in the plan's bucket; for a bucket on a GPU
  };
  std::vector<Piece> pieces;
  int64_t count = 0;          // elements of the plan's bucket with padding; for a bucket on a GPU
  int64_t largest_bytes = 0;  // of the buckets of the model on a GPU
  bool on_gpu = false;        // the device of all pieces
  bool all_on_gpu = false;    // and those of all buckets of the model
  bool dense = false;         // on a GPU, on all ranks: the pieces are contiguous, in the same order, and are tied
  bool partial_allowed =
      false;  // a rank need not have all of them, or weighs what it has: nothing is known before all ranks have spoken
  [[nodiscard]] size_t used_words() const noexcept { return (pieces.size() + 63) / 64; }  // length of BucketHeader::used
};

/// Work on a rank's own slice, called by an operation block after block, where it can while the block is in cache. Every
/// element comes once; pieces that no rank uses are left out. Of an exchange that gives nothing, blocks begin at the start
/// of a span or a multiple of kSliceUnit elements behind it (core/slices.hpp); else anywhere.
struct SliceWork {
  /// `first` and `count` in elements of the piece. Throws nothing. Empty: there is no work.
  std::function<void(int32_t piece, int64_t first, int64_t count)> on_block;
  /// On a GPU blocks are only noted by on_block; now they are to be worked on, in this stream's order.
  std::function<void(void* stream)> flush;
  [[nodiscard]] explicit operator bool() const noexcept { return on_block != nullptr; }
};

/// One exchange over lists of pieces: the request to a transport, fixed when it is prepared. Its phases, in this order:
///   header the announcement of each rank: stamp and bucket header. All ranks know all of it before a result is written; it
///   may make the exchange fail. collect  the others' parts of what this rank owns are added to its own, by the rule. work
///   on the part that this rank owns. give this rank's part is sent to all ranks. release no other rank touches this rank's
///   memory any more.
/// The header and the release are always there. The usual combinations:
///   all-reduce      collect and give, without an owner: the transport divides the work as it likes
///   reduce-scatter  collect; afterwards the own slice of the pieces has the sum, and the rest of them is undefined
///   all-gather give, after the work that writes the own slice (of a root that owns everything: a broadcast)
///   step            collect, work and give: gradients in, parameters out
struct ExchangeSpec : BucketSpec {
  ExchangeSpec() = default;
  /// The all-reduce of a bucket, in place.
  ExchangeSpec(BucketSpec bucket) : BucketSpec(std::move(bucket)) {}

  bool collects = true;
  bool gives = true;
  /// The data to send, of the rule's dtype, piece for piece as in `pieces`; empty: the pieces themselves. From the
  /// exchange's start to its end it belongs to the operation.
  std::vector<Piece> outputs;
  const Ownership* ownership = nullptr;  // outlives the operation; NULL: of an all-reduce
  SliceWork work;

  [[nodiscard]] Collective kind() const noexcept {
    if (!gives) return Collective::kBucketReduceScatter;
    if (!collects) return Collective::kBucketAllGather;
    return ownership == nullptr ? Collective::kBucket : Collective::kFusedStep;
  }
};

/// What a rank is about to do with a tensor of its own, or with a bucket; its number is still to come.
[[nodiscard]] Stamp stamp_of(Collective kind, const Tensor& tensor, ddp_reduce op = DDP_SUM, int32_t root = 0) noexcept;
[[nodiscard]] Stamp stamp_of(Collective kind, const BucketSpec& spec) noexcept;
/// Of Transport::reduce.
[[nodiscard]] Stamp stamp_of_reduce(const Tensor& tensor, ddp_reduce op, int32_t root) noexcept;

enum class Progress { kDone, kAdvanced, kWaiting };

/// One exchange, used again in every pass; allocates nothing after it was made.
class BucketOperation {
 public:
  virtual ~BucketOperation() = default;
  /// A gradient of this bucket was written on this stream of a GPU: what start() begins comes after what is on it then. Once
  /// for each stream, before start().
  virtual void wait_for_stream(void*) {}
  /// The pieces are complete here. Publishes that to the others. Never blocks, never throws for their sake. Operations of a
  /// channel are started in the same order on all ranks. Of a transport that is not pollable() the order of finish() counts:
  /// there an operation takes its place among the collectives. If the bucket header of all ranks is void, nothing is written
  /// anywhere.
  virtual void start(const BucketHeader& mine) = 0;
  /// Do up to `budget_bytes` of work if the other ranks have come so far; never waits. Throws on failure or mismatch.
  /// Only for transports that are pollable().
  [[nodiscard]] virtual Progress advance(int64_t budget_bytes) = 0;
  /// Work and wait until the exchange is complete on this rank and no other rank touches this rank's memory any more.
  /// Throws: first cause, TIMED_OUT, DIFFERENT_CALLS.
  virtual void finish() = 0;
  /// This rank's own share of the work is finished; it only waits for the others, so the next bucket may be advanced
  /// meanwhile.
  [[nodiscard]] virtual bool local_done() const noexcept = 0;
  /// That of all ranks, once done.
  [[nodiscard]] virtual const BucketHeader& header() const noexcept = 0;
  /// New address of one of `pieces`; not between start and done. False if it is tied to its address (the others reach into
  /// it).
  [[nodiscard]] virtual bool set_address(int32_t piece, std::byte* data) noexcept = 0;
  /// May the next one leave a mean as its sum, because the work on it divides? Gives what is to be divided by; 1: nothing
  /// is. Not between start and done.
  [[nodiscard]] virtual double leave_sum(bool) noexcept { return 1; }
  /// "in place", "staged 3 of 4", "gloo": for describe_plan.
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Behind finish() or the last advance(): what this rank did not contribute, so that no mark ordered it, was used last on
  /// this stream of a GPU. It is written now, if it was not.
  virtual void write_unused(void*) {}
};

class Transport {
 public:
  virtual ~Transport() = default;

  [[nodiscard]] virtual ddp_backend backend() const noexcept = 0;
  /// Can a caller's thread drive buckets piece by piece (advance), or must a thread of ours block in finish()?
  [[nodiscard]] virtual bool pollable() const noexcept = 0;

  /// Memory in the others' reach, if the transport knows such a thing. It may outlive the transport.
  [[nodiscard]] virtual std::shared_ptr<Arena> arena() const noexcept = 0;

  /// Can it do such an exchange in one operation, of pieces in host memory or on a GPU? The same on all ranks, whatever the
  /// pieces are. What it cannot, the caller does without.
  [[nodiscard]] virtual bool can(Collective kind, bool on_gpu) const noexcept = 0;
  /// The same members and memory, with a sequence of collectives of its own: what is under way on one channel is not in the
  /// way of another. Collective. `number`: from 1, not taken yet. It does not outlive this transport.
  [[nodiscard]] virtual std::unique_ptr<Transport> open_channel(int32_t number) = 0;
  /// Collective; in the same order on all ranks. Only what it can.
  [[nodiscard]] virtual std::unique_ptr<BucketOperation> prepare(const ExchangeSpec& spec) = 0;

  // Blocking collectives; arguments were checked. Must not be called while a bucket is in progress. `stream`: of tensors on
  // a GPU; the exchange comes after what is on it now, and what follows on it comes after the exchange.
  /// Returns when all ranks have called with the same stamp.
  virtual void meet(const Stamp& stamp) = 0;
  void barrier() { meet(Stamp{}); }
  static constexpr int32_t kAll = -1;
  /// In place. `root`: the rank that gets the result, and then the tensors of the others are undefined; or kAll.
  virtual void reduce(const Tensor& tensor, ddp_reduce op, int32_t root, void* stream = nullptr) = 0;
  void all_reduce(const Tensor& tensor, ddp_reduce op, void* stream = nullptr) { reduce(tensor, op, kAll, stream); }
  virtual void all_gather(const Tensor& input, const Tensor& output, void* stream = nullptr) = 0;
  virtual void reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op, void* stream = nullptr) = 0;
  virtual void broadcast(const Tensor& tensor, int32_t root, void* stream = nullptr) = 0;
  /// The order of streams, and what else is of GPUs alone. One for all channels.
  [[nodiscard]] virtual const std::shared_ptr<GpuSide>& gpu() const noexcept { return no_gpu_; }

  /// Bytes that this rank has sent so far: to another host, with headers and frames, or copied to where the other ranks read
  /// them. Data that they read in place is not counted. Must not be called while a bucket is in progress.
  [[nodiscard]] virtual int64_t sent_bytes() const noexcept { return 0; }

  /// What messages from one rank to one other are sent over. Once, of the first channel; it may be used at any time, by
  /// other threads too. NULL where there is no other rank.
  [[nodiscard]] virtual std::unique_ptr<messages::Streams> make_streams() { return nullptr; }

  // So that a rank's data outlives it: the other ranks of its host have its memory mapped, and ranks of other hosts can keep
  // a copy.
  /// The place of memory of the own arena, as the other ranks of this host address it; kNoPlace: they do not reach it.
  [[nodiscard]] virtual int64_t place_of(const void*, int64_t /*bytes*/) const noexcept { return kNoPlace; }
  static constexpr int64_t kNoPlace = -1;
  /// Memory of another rank by that name. It stays, as it is then, when that rank has died and when this transport has
  /// ended. NULL: not in reach.
  [[nodiscard]] virtual std::shared_ptr<std::byte> reach(int32_t /*rank*/, int64_t /*place*/) const noexcept {
    return nullptr;
  }
  /// The order in which ranks of other hosts are sent the data that they keep; empty if no rank can keep data. The same
  /// number of rounds on all ranks.
  [[nodiscard]] virtual std::vector<KeepRound> keep_rounds() const { return {}; }
  /// One of these rounds: `sent` and `received` belong to that round; both may be empty. Blocking
  /// collective of all ranks.
  virtual void keep(const KeepRound&, const Tensor& /*sent*/, const Tensor& /*received*/) {}

  /// The last call of an orderly end: stay until the others can complete what this rank has completed, a second at most.
  virtual void shutdown() noexcept {}

  /// The group broke: end blocked waits soon. Any thread.
  virtual void wake() noexcept = 0;

 private:
  const std::shared_ptr<GpuSide> no_gpu_ = std::make_shared<GpuSide>();
};

class OpenQueues;
class Waits;

/// What every transport is given. The referents outlive the transport.
struct TransportContext {
  bootstrap::Control* control = nullptr;
  bootstrap::Failure* failure = nullptr;
  ddp_group_options options{};
  OpenQueues* queues = nullptr;  // those of other channels are worked on while a caller waits; NULL: there are none
  int32_t channel = 0;
  std::shared_ptr<Arena> arena{};  // of the group before it recovered: its contents stay in place; or NULL
  Waits* waits = nullptr;          // learns of every wait for another rank; may be NULL
};

/// Which leaf of a sum each rank is, where the order does not depend on hosts: leaf r is rank r, or with virtual ranks the
/// node of those that it has.
[[nodiscard]] LeafMap leaves_by_rank(const ddp_group_options& options, int32_t ranks);

[[nodiscard]] inline TransportContext of_channel(TransportContext context, int32_t channel) noexcept {
  context.channel = channel;
  return context;
}

}  // namespace ddp::collective
