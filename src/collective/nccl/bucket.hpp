// Buckets of gradients on a GPU: what is enqueued when one is complete, and when its result may be written.
//
// Data and metadata are sent in two ways. The gradients go through NCCL, on the communication stream. The bucket header
// (what each rank contributes, misses, weighs; the stamp) goes over the group's host transport as a bucket without data. So
// everything that holds for gradients in host memory holds here too: what is missing is named, ranks that do different
// things find out, weights and skipped ranks count. The host waits for the metadata of other hosts, never for a device.
//
// Where the gradients lie in one block of the library they are reduced in place. Otherwise one kernel packs them into the
// bucket's memory and one writes the result back; the layout is the same, so ranks may differ. It does so at once if every
// rank must contribute everything (`partial_allowed` is false); then a pass that turns out void leaves gradients undefined.
// Otherwise it waits for the bucket headers, and a void pass or an unused gradient is left as it was.
// mean.hpp says where the sum is divided and in which type it travels.
// Cost: on the host two calls for each stream, one to four launches and one message; nothing is allocated after prepare.
// Tested by gpu_host/pass_test.cpp.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "collective/nccl/mean.hpp"
#include "collective/nccl/nccl_transport.hpp"
#include "collective/transport.hpp"

namespace ddp::nccl {

/// The metadata about an exchange: an all-reduce of nothing, which other exchanges of the same bucket are not taken for.
[[nodiscard]] collective::BucketSpec metadata_of(const collective::ExchangeSpec& spec);

/// Common to all operations of a bucket on a GPU.
class Operation : public collective::BucketOperation {
 public:
  Operation(NcclTransport& transport, std::unique_ptr<collective::BucketOperation> metadata)
      : transport_(transport), metadata_(std::move(metadata)) {}

  void wait_for_stream(void* stream) final { producers_.push_back(stream); }
  void start(const collective::BucketHeader& mine) final;
  [[nodiscard]] collective::Progress advance(int64_t budget_bytes) final;
  void finish() final;
  [[nodiscard]] bool local_done() const noexcept final { return metadata_->local_done(); }
  [[nodiscard]] const collective::BucketHeader& header() const noexcept final { return metadata_->header(); }

 protected:
  /// Enqueue what needs nothing from the other ranks; the producers are waited for already. The same collectives on all
  /// ranks.
  virtual void launch(const collective::BucketHeader& mine) = 0;
  /// All ranks have spoken: enqueue the rest.
  virtual void settle(const collective::BucketHeader& joined) = 0;
  [[nodiscard]] NcclTransport& transport() const noexcept { return transport_; }
  /// One launch of spans, in the order of the communication stream.
  void move(const std::vector<ddp_gpu_span>& spans, ddp_dtype from, ddp_dtype to, double factor, ddp_gpu_stop stop,
            const char* doing) const;

 private:
  void settle_once();

  NcclTransport& transport_;
  std::unique_ptr<collective::BucketOperation> metadata_;
  std::vector<void*> producers_;  // streams; for the next start()
  std::optional<Error> problem_;  // of this rank while it launched
  bool settled_ = true;
};

/// All ranks get the whole sum.
class Bucket final : public Operation {
 public:
  Bucket(NcclTransport& transport, std::unique_ptr<collective::BucketOperation> metadata,
         const collective::BucketSpec& spec);
  ~Bucket() override;

  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept override;
  [[nodiscard]] std::string describe() const override;

 private:
  void launch(const collective::BucketHeader& mine) override;
  void settle(const collective::BucketHeader& joined) override;
  void reduce_in_place(const collective::BucketHeader& mine);
  void reduce_copy(const collective::BucketHeader& mine);
  void unpack(const collective::BucketHeader* joined, double factor);

  collective::BucketSpec spec_;
  std::vector<int64_t> offsets_;  // of the pieces in the bucket's memory, elements
  int64_t count_ = 0;             // elements, with what lies between
  bool in_place_ = false;
  std::byte* memory_ = nullptr;  // unless in place; from the transport
  std::vector<ddp_gpu_span> spans_;
};

}  // namespace ddp::nccl
