// SPDX-License-Identifier: Apache-2.0
// Kernels that reach the memory of all ranks of a node by one address (group option nccl_multicast): a communicator of its
// own, which has no collectives, with a team for NCCL's interface for kernels and symmetric windows over pieces of the
// group's memory.
//
// A communicator of its own, because NCCL registers a window as a buffer as well, and with NVLS the hosts of the ranks meet
// in every collective on such a buffer, without a look at an abort (README.md, "Registered memory"); and because one that
// has no multicast after all is lost, which must not be the group's.
// All is agreed by all ranks: whether it can be, whether it came about, and every window. NCCL places windows by the order
// of what was registered and deregistered before, so ranks whose orders differ (a model that is destroyed here and not yet
// there) get no more of them.
// A kernel that waits for a rank ends when the group breaks (StopWords). Nothing is unmapped before the device is idle.
// Threads: as the group's.
// Tested by gpu_host/multicast_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/nccl/communicator.hpp"
#include "collective/nccl/given_memory.hpp"
#include "collective/transport.hpp"
#include "core/error.hpp"
#include "device/gpu/device.hpp"

namespace ddp::nccl {

class Multicast {
 public:
  struct Of {
    const collective::TransportContext& context;
    const gpu::Device& device;
    Communicator& communicator;
    const GivenMemory& memory;  // whose pieces are to be windows
    ddp_gpu_stop live;          // the word that the host sets when the group breaks
  };
  /// Collective. Why there is none is logged by rank 0; has_team() says so on all ranks. Throws as a group's NCCL does.
  explicit Multicast(const Of& of);
  ~Multicast();
  Multicast(const Multicast&) = delete;
  Multicast& operator=(const Multicast&) = delete;

  [[nodiscard]] bool has_team() const noexcept { return made_ != nullptr; }

  /// A bucket's gradients and values, as they lie in memory of this rank.
  struct Blocks {
    const std::byte* grads = nullptr;
    std::byte* values = nullptr;
    int64_t bytes = 0;  // of each; 0: this rank has none that would do
    ddp_dtype dtype = DDP_F32;
  };
  /// Collective: windows over the pieces in which the blocks lie, if all ranks have them at the same places. None: not.
  [[nodiscard]] std::optional<ddp_gpu_multicast> reach(const Blocks& blocks);

  /// This piece of memory is to be freed; the device is idle.
  void forget(const void* piece) noexcept;
  /// All work is done on all ranks: the orderly end.
  void close(int64_t limit_ms, const std::function<bool()>& is_broken) noexcept;
  /// The device is idle, or nobody knows: then all is left to the process.
  void end(bool is_idle) noexcept;

 private:
  struct Made;
  [[nodiscard]] std::string obstacle() const;
  void connect();
  void make_team();
  [[nodiscard]] bool all_have(const char* what, bool mine);
  [[nodiscard]] std::string places_of(const Blocks& blocks);
  [[nodiscard]] void* window_over(const GivenMemory::Piece& piece);
  [[nodiscard]] std::optional<Error> deregister(void* window) noexcept;
  [[nodiscard]] std::vector<std::string> gather(const char* what, const std::string& mine) const;

  const Of of_;
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<Made> made_;  // NULL: there is no multicast
};

}  // namespace ddp::nccl
