// SPDX-License-Identifier: Apache-2.0
// One exchange of a bucket between hosts: its sum for all ranks or for the owners of slices, or values from their owners to
// all. Pieces in library memory are reduced, read and written where they are. Private ones are copied into shared memory
// before the bucket is announced and back at the end. All of that is in finish(), and a channel does one exchange after the
// other, so all buckets of a channel use one piece of shared memory (Host::place).
//
// Cost: a rank with a rail reads and writes 1/rails of the bucket of every local rank; private pieces are copied twice more.
// Threads: start from the thread that marks, finish from the queue.
// Tested by process/hierarchy_test.cpp and process/hierarchy_sharded_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hosts/host.hpp"

namespace ddp::hierarchy {

class Bucket final : public collective::BucketOperation {
 public:
  /// Collective over the group. Throws OUT_OF_MEMORY on all ranks if one lacks it.
  Bucket(Host& host, const collective::ExchangeSpec& spec, os::Deadline deadline);

  void start(const collective::BucketHeader& mine) override;
  [[nodiscard]] collective::Progress advance(int64_t budget_bytes) override;
  void finish() override;
  [[nodiscard]] bool local_done() const noexcept override { return true; }
  [[nodiscard]] const collective::BucketHeader& header() const noexcept override { return header_; }
  [[nodiscard]] bool set_address(int32_t piece, std::byte* data) noexcept override;
  [[nodiscard]] std::string describe() const override;

 private:
  /// A piece in this process's own memory, with its copy in shared memory.
  struct Private {
    size_t piece = 0;
    std::byte* data = nullptr;  // NULL: no address is known yet
    std::byte* copy = nullptr;
    int64_t bytes = 0;
  };

  [[nodiscard]] std::vector<int64_t> place_pieces(const collective::BucketSpec& spec, os::Deadline deadline);
  [[nodiscard]] HostArray meet_pieces(const collective::BucketSpec& spec, const std::vector<int64_t>& offsets);
  bool try_announce();
  void combine_headers();
  void copy_in() noexcept;
  void copy_out() noexcept;
  template <class Copy>
  void each_own(const Private& piece, const Copy& copy) const;
  void work_on_slice() noexcept;
  [[nodiscard]] bool is_used(size_t piece) const noexcept { return header_.uses(piece); }

  Host& host_;
  const socket::Phases phases_;
  const std::vector<OwnedSpan>* own_;  // NULL: everything
  collective::SliceWork work_;
  collective::Stamp stamp_;
  size_t pieces_;
  std::vector<Private> private_;
  std::vector<std::shared_ptr<const void>> holds_;  // of memory of the program that is shared
  std::unique_ptr<HostReduceInput> mine_;
  Crossing crossing_;
  collective::BucketHeader header_;
  uint64_t sequence_ = 0;
};

}  // namespace ddp::hierarchy
