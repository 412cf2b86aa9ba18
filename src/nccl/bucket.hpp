// SPDX-License-Identifier: Apache-2.0
// An exchange of a bucket on a GPU: the work enqueued when it is complete, and when its result may be written. It has a sum
// of gradients for all ranks or to slices, or values from their owners to all, by phases; NCCL adds, or the library
// (tree_sum.hpp). A rank's slice is a stretch of the bucket's block (core/slices.hpp), so slices work in place where
// gradients, or values, are laid out by the library.
//
// Data and metadata are sent in two ways. The gradients go through NCCL, on the communication stream. The bucket header
// (what each rank contributes, misses, weighs; the stamp) goes over the group's host transport as a bucket without data. So
// everything that holds for gradients in host memory holds here too: what is missing is named, ranks that do different
// things find out, weights and skipped ranks count. The host waits for the metadata of other hosts, never for a device.
//
// If the gradients are one block they are reduced in place: the library's, or the program's
// (pass/gradient_layout.hpp). Otherwise one kernel packs them into a block of the same layout and one writes the result
// back, so ranks may differ. It does so at once if every rank must contribute everything (`partial_allowed` is false); then
// a pass that turns out void leaves gradients undefined. Otherwise it waits for the bucket headers, and a void pass or an
// unused gradient is left as it was. A gradient that this rank does not contribute is ordered by none of its streams until
// the pass ends, so a bucket with one is written back then.
// In a capture NCCL is called by finish(), when the headers of all ranks have come (captured_start.hpp).
// mean.hpp decides where the sum is divided and in which type it is sent.
// Cost: on the host two calls for each stream, none to three launches and one message; nothing is allocated after prepare.
// Tested by gpu_host/pass_test.cpp and gpu_host/in_place_test.cpp.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

#include "device/gpu/device.hpp"
#include "exchange/transport.hpp"
#include "nccl/engine.hpp"
#include "nccl/mean.hpp"
#include "nccl/tree_sum.hpp"

namespace ddp::nccl {

// How a bucket starts while its stream is captured into a CUDA graph.
//
// NCCL registers the memory of a captured collective by itself (NCCL_GRAPH_REGISTER, on by default), including memory of the
// program. With NVLS the hosts of a node's ranks meet for that (ncclShmemAllgather in NCCL's transport/nvls.cc), and
// since 2.28 they look at no abort. So a mark must not make the call, and no rank makes it before all are about to. This
// class keeps the producers' events until then: work that is enqueued with the call comes after the bucket's own gradients,
// not after gradients that were marked meanwhile. Cost: an event for each stream of a bucket in a capture; without one, two
// questions to the runtime.
class CapturedStart {
 public:
  /// What comes next on the communication stream comes after these streams: at once, or in a capture after come(). Is it
  /// one? The first bucket takes the communication stream into it.
  [[nodiscard]] bool begin(Engine& engine, const std::vector<void*>& producers) {
    ready_.clear();
    is_on_ = false;
    if (!is_captured(engine)) {
      for (void* const stream : producers) engine.order_after(stream);
      return is_on_ = is_captured(engine);
    }
    for (void* const stream : producers) {
      ready_.emplace_back(engine.device());
      ready_.back().record(stream);
    }
    return is_on_ = true;
  }
  /// What begin() returned.
  [[nodiscard]] bool is_on() const noexcept { return is_on_; }
  void come(const Engine& engine) {
    for (const gpu::Event& event : ready_) event.hold_back(engine.stream());
    ready_.clear();
  }

 private:
  [[nodiscard]] static bool is_captured(const Engine& engine) {
    return engine.size() > 1 && engine.device().is_capturing(engine.stream());
  }

  std::vector<gpu::Event> ready_;
  bool is_on_ = false;
};

/// The metadata about an exchange: an all-reduce of nothing, which other exchanges of the same bucket are not taken for.
[[nodiscard]] collective::BucketSpec metadata_of(const collective::ExchangeSpec& spec, int32_t ranks);

/// What is sent behind the used bits of a bucket, where there is room: LaunchOrder::word(), then the capture_bits of all
/// ranks. Places in BucketHeader::used; all the same: it is left out.
struct HeaderWords {
  size_t order = 0;
  size_t captures = 0;
  size_t end = 0;

  [[nodiscard]] static HeaderWords of(const collective::BucketSpec& spec, int32_t ranks) noexcept;
  [[nodiscard]] bool has_order() const noexcept { return captures > order; }
  [[nodiscard]] bool has_captures() const noexcept { return end > captures; }
};

/// The start of the block of these pieces, if they are laid out by the plan; otherwise NULL.
[[nodiscard]] std::byte* block_of(const std::vector<collective::BucketSpec::Piece>& pieces, ddp_dtype dtype) noexcept;

/// The block of device memory in which NCCL works on a bucket: its pieces at their offsets, with padding between them and
/// behind them, so that it has a slice of the same length for each rank.
class Block {
 public:
  /// The pieces where they are, if they are laid out so and sent unchanged; of an all-reduce by NCCL also if they are
  /// `dense`, and then the block has no more than them. Else a copy: memory that
  /// the buckets of a group use one after the other (the next one is packed when this one is unpacked), or, if `kept`, its
  /// own, where something waits in it for the other ranks. Throws OUT_OF_MEMORY.
  Block(Engine& engine, const collective::ExchangeSpec& spec, ddp_dtype dtype, bool kept);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  [[nodiscard]] bool is_in_place() const noexcept { return in_place_; }
  [[nodiscard]] bool is_empty() const noexcept { return data_ == nullptr; }
  [[nodiscard]] ddp_dtype dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] int64_t count() const noexcept { return count_; }
  /// Elements of a rank's slice.
  [[nodiscard]] int64_t slice_count() const noexcept { return count_ / ranks_; }
  [[nodiscard]] std::byte* at(int64_t element) const noexcept { return data_ + element * dtype_size(dtype_); }

 private:
  void lie_on(const collective::ExchangeSpec& spec) noexcept;

  Engine& engine_;
  const ddp_dtype dtype_;
  int64_t count_;
  const int32_t ranks_;
  bool in_place_ = false;
  bool kept_ = false;
  std::byte* data_ = nullptr;  // NULL: there is one rank, or there is nothing
};

/// Elements of a block.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

class Operation final : public collective::BucketOperation {
 public:
  Operation(Engine& engine, std::unique_ptr<collective::BucketOperation> metadata, const collective::ExchangeSpec& spec);

  void wait_for_stream(void* stream) override { producers_.push_back(stream); }
  void start(const collective::BucketHeader& mine) override;
  [[nodiscard]] collective::Progress advance(int64_t budget_bytes) override;
  void finish() override;
  void write_unused(void* stream) override;
  [[nodiscard]] bool local_done() const noexcept override { return capture_.is_on() || metadata_->local_done(); }
  [[nodiscard]] const collective::BucketHeader& header() const noexcept override { return metadata_->header(); }
  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept override;
  /// Only in place: results are divided when they are written back.
  [[nodiscard]] double leave_sum(bool may) noexcept override;
  [[nodiscard]] std::string describe() const override;

  /// So that no mark waits while NCCL connects what launch() uses (first_uses.hpp), it is used once in advance, on memory
  /// with unused contents. First, on each rank, the allocations for it; throws OUT_OF_MEMORY. Then, if no rank threw,
  /// together; not in a capture. Throws as collectives.
  void prepare_use();
  void use_once();

 private:
  /// What NCCL is asked for by launch(), or what it is connected for; none: nothing.
  [[nodiscard]] std::optional<BlockCollective> uses() const noexcept;
  /// Enqueues what needs nothing from the other ranks; the producers are waited for already. The same collectives on all
  /// ranks. `mine`: also the word of the order behind the used bits.
  void launch(const collective::BucketHeader& mine);
  void reduce(const collective::BucketHeader& mine);
  void gather(const collective::BucketHeader& mine);
  /// All ranks have spoken: enqueues the rest.
  void settle(const collective::BucketHeader& joined);

  [[nodiscard]] Range whole() const noexcept { return {0, block_.count()}; }
  /// This rank's slice.
  [[nodiscard]] Range own() const noexcept;
  /// Where the sum is needed.
  [[nodiscard]] Range result() const noexcept { return spec_.gives ? whole() : own(); }

  /// What this rank contributes, scaled, into the block.
  void fill(const collective::BucketHeader& mine, const Scale& by);
  void pack(const collective::BucketHeader& mine, const Scale& by);
  /// The block's elements of these ranges to the pieces; `joined`: of those that it uses, NULL: of all.
  /// Nothing once the group is broken: the program may use that memory for something else then.
  void unpack(std::initializer_list<Range> ranges, const collective::BucketHeader* joined, const Scale& by);
  /// The pieces' elements of this range into the block.
  void collect(const Range& range, const collective::BucketHeader& uses);
  /// In place.
  void scale(const Range& range, const Scale& by);
  /// What is enqueued from here on is this work on the block, for traces.
  void time(trace::GpuWork work) noexcept { timed_.next(work, block_.count() * dtype_size(block_.dtype())); }

  void announce(uint64_t order_word);
  void compare_ranks() const;
  [[nodiscard]] bool announces_late() const noexcept;
  template <class Body>
  void attempt(Body&& body);
  void throw_problem() const;
  void settle_once();
  [[nodiscard]] bool writes_unused() const noexcept;
  /// Of each piece the part in the range.
  template <class Fn>
  void each_part(const Range& range, const Fn& fn) const;
  /// One launch of the spans that were noted, in the order of the communication stream.
  void move(trace::GpuWork work, const Conversion& how, ddp_gpu_stop stop, const char* doing);

  Engine& engine_;
  std::unique_ptr<collective::BucketOperation> metadata_;
  collective::ExchangeSpec spec_;
  const Adder adder_;
  Block block_;
  std::unique_ptr<TreeSum> sum_;  // NULL: NCCL adds, or nothing is added
  std::vector<ddp_gpu_span> spans_;
  const HeaderWords words_;        // which the ranks compare
  collective::BucketHeader mine_;  // with them
  std::vector<void*> producers_;   // streams; for the next start()
  CapturedStart capture_;          // launched by finish(), if it is on
  std::optional<Error> problem_;   // of this rank while it launched
  enum class Settled { kNo, kButUnused, kYes };
  struct {
    Settled settled = Settled::kYes;
    bool leaves_sum = false;
  } state_;
  gpu::Array unused_;  // for use_once(), where the block holds tensors
  gpu::Timed timed_;
};

}  // namespace ddp::nccl
