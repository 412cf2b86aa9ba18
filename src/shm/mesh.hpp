// SPDX-License-Identifier: Apache-2.0
// All ranks of one host with their regions, and the addresses of all ranks' memory in this process.
// Two makers: ranks that are processes pass their memfds over UNIX sockets; ranks that are threads share the mappings.
// Tested by conformance/.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "control/control.hpp"
#include "shm/fd_exchange.hpp"
#include "shm/region.hpp"

namespace ddp::shm {

struct Mesh {
  int32_t rank = 0;
  int32_t size = 1;
  bool threads = false;  // ranks are threads of one process
  std::shared_ptr<Region> own;
  std::vector<std::shared_ptr<Mapping>> mappings;  // by rank, the own one included
  std::vector<Page*> pages;                        // by rank, of this channel

  [[nodiscard]] Page& page(int32_t of) const noexcept { return *pages[static_cast<size_t>(of)]; }
  [[nodiscard]] Page& own_page() const noexcept { return page(rank); }
  /// The first page of a region: all channels of its owner sleep there.
  [[nodiscard]] Page& first_page(int32_t of) const noexcept { return mappings[static_cast<size_t>(of)]->page(); }
  [[nodiscard]] std::byte* base(int32_t of) const noexcept { return mappings[static_cast<size_t>(of)]->base(); }
};

/// How ranks that are processes share their memory: each offers its own, the ranks exchange their offers, and each maps all
/// offered memory. The last step must succeed on all ranks: the failure of one is an error of all.
class MemoryOffer {
 public:
  /// `kept`: the own region of before, whose memory stays where it is; NULL, or another arena: a new one. Throws
  /// NOT_SUPPORTED, OUT_OF_MEMORY.
  MemoryOffer(const bootstrap::Control& control, const std::shared_ptr<collective::Arena>& kept);

  /// The message for the other ranks.
  [[nodiscard]] std::string bytes() const;
  /// `offers` by rank. `patience.check` throws when the group has broken: ranks that have died send no descriptor. Once.
  [[nodiscard]] Mesh take(const std::vector<std::string>& offers, const Patience& patience);

 private:
  void meet(const std::vector<std::string>& offers, const Patience& patience);

  Mesh mesh_;
  FdExchange exchange_;
};

/// Collective. Throws the reason why the ranks cannot share memory, the same on every rank (NOT_SUPPORTED: different hosts,
/// other namespaces, no memfd, no UNIX sockets; OUT_OF_MEMORY).
/// `kept` and `patience` as above.
[[nodiscard]] Mesh connect_processes(bootstrap::Control& control, const Patience& patience,
                                     const std::shared_ptr<collective::Arena>& kept = nullptr);

/// Collective; all ranks are threads of this process.
[[nodiscard]] Mesh connect_threads(bootstrap::Control& control, os::Deadline deadline);

/// The same ranks and memory with other pages, for another channel. Collective. Throws OUT_OF_MEMORY on all ranks.
[[nodiscard]] Mesh add_pages(const Mesh& mesh, bootstrap::Control& control, os::Deadline deadline);

/// Do all ranks run on the same kernel (boot id) as far as they know?
[[nodiscard]] bool on_one_host(const bootstrap::Control& control) noexcept;

}  // namespace ddp::shm
