// SPDX-License-Identifier: Apache-2.0
// What a group is made of; a recovery puts another one in its place. For group.cpp, ending.cpp and those that make one:
// create.cpp and recovery.cpp.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "bootstrap/failure.hpp"
#include "control/control.hpp"
#include "exchange/gpu_side.hpp"
#include "exchange/waits.hpp"
#include "group/channels.hpp"
#include "group/group.hpp"
#include "group/health.hpp"
#include "group/memory.hpp"
#include "group/recoverable.hpp"
#include "group/sparse_rows.hpp"

namespace ddp::gpu {
class OwnGpu;
}  // namespace ddp::gpu
namespace ddp::group {

struct Group::Impl {
  Impl(std::unique_ptr<bootstrap::Control> with, const ddp_group_options& asked, const Origin& from,
       std::shared_ptr<Recoverable> before, Arenas memory_of_before, std::shared_ptr<gpu::OwnGpu> gpu_of_before)
      : options(asked),
        origin(from),
        recoverable(std::move(before)),
        arenas(std::move(memory_of_before)),
        own_gpu(std::move(gpu_of_before)),
        control(std::move(with)) {}

  const ddp_group_options options;
  const Origin origin;
  const std::shared_ptr<Recoverable> recoverable;
  Arenas arenas;
  std::shared_ptr<gpu::OwnGpu> own_gpu;
  // Destroyed in reverse: the transports and their threads first, then the control plane's, then what they point to.
  bootstrap::Failure failure;
  std::unique_ptr<bootstrap::Control> control;
  collective::Waits waits{control->calls(), control->size(), world_ranks()};
  Health health{*control, failure};
  Channels channels;
  struct {
    std::shared_ptr<collective::GpuSide> side;  // what the transports do there
    std::shared_ptr<Gpu> own;
  } gpu;  // these two: from connect() on
  std::optional<Memory> memory;
  Rows rows;           // the last sparse sum
  std::mutex closing;  // close() once
  ddp_backend backend = DDP_BACKEND_AUTO;

  /// Of a sub-group: the ranks in the group that was created. Else none.
  [[nodiscard]] std::vector<int32_t> world_ranks() const {
    std::vector<int32_t> ranks;
    for (int32_t rank = 0; rank < control->size(); ++rank)
      if (const int32_t world = control->member(rank).world_rank; world >= 0) ranks.push_back(world);
    return ranks;
  }
  /// NULL: the group cannot recover.
  [[nodiscard]] Survival* survival() const noexcept;
  void connect(const char* function);
  /// See Survival::confirm().
  void confirm();
  void retire() noexcept;
  /// An attempt to build it has failed: it is over for all ranks that are in it.
  void give_up(const char* function, const Error& why) noexcept;

 private:
  void build(const char* function);
};

}  // namespace ddp::group
