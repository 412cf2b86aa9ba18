// SPDX-License-Identifier: Apache-2.0
// One rank's shared memory: an anonymous file (memfd) that exists only as long as it is mapped, so nothing is left
// behind by a killed process and the size of /dev/shm does not matter. Large in addresses, small in memory: blocks of 2 MiB
// are reserved when memory is handed out, so running out is an error at that call and never a SIGBUS later. Each is one huge
// page where the system can give one (os/huge_pages.hpp), for this rank and for all that map it.
// Layout: Page, then memory for alloc (first fit, 64-byte units; unused blocks go back to the system), and that of the
// program which is shared where it is (lent.hpp). Threads: alloc and free under a lock; the mapping itself is constant.
// Tested by unit/exchange/region_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "exchange/arena.hpp"
#include "shm/fd.hpp"
#include "shm/lent.hpp"
#include "shm/page.hpp"

namespace ddp::shm {

/// A mapping of `size` bytes of a memfd, one's own or a peer's.
class Mapping {
 public:
  Mapping(int fd, int64_t size);  // begins on a huge page's boundary; throws OUT_OF_MEMORY; does not keep the fd
  /// Another file in its place, from this byte on, a multiple of a page; throws OUT_OF_MEMORY.
  void map_again(int fd, int64_t from = 0);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] int64_t size() const noexcept { return size_; }
  [[nodiscard]] Page& page() const noexcept { return *reinterpret_cast<Page*>(base_); }

 private:
  void map(int fd, std::byte* base, int64_t from) const;

  std::byte* base_ = nullptr;
  int64_t size_ = 0;
};

class Region final : public collective::Arena {
 public:
  /// `limit` bytes of addresses; halved until the system grants them. Throws OUT_OF_MEMORY, NOT_SUPPORTED (no memfd).
  explicit Region(int64_t limit);
  ~Region() override { (void)make_private(); }

  /// How many bytes of addresses a rank should ask for when `ranks` share the host.
  [[nodiscard]] static int64_t default_limit(int32_t ranks) noexcept;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] const std::shared_ptr<Mapping>& mapping() const noexcept { return mapping_; }
  [[nodiscard]] Page& page() const noexcept { return mapping_->page(); }

  [[nodiscard]] void* alloc(int64_t bytes) override;
  [[nodiscard]] bool free(void* data) noexcept override;
  /// Memory of the transport itself, until the region is renewed.
  [[nodiscard]] void* alloc_for_transport(int64_t bytes);

  /// Other memory with the same contents at the same addresses, and a new page: a process that mapped the old one, and may
  /// still write to it, does not reach this rank any more. The region must not be used meanwhile. Throws as the constructor;
  /// then nothing has changed.
  void renew();
  /// The same for all but the page, which threads of this rank may still use.
  void fence() override;
  [[nodiscard]] bool is_shared() const noexcept override { return true; }

  void share(void* data, int64_t bytes) override;
  [[nodiscard]] bool unshare(void* data) override;
  bool make_private() noexcept override;

  /// Offset of memory that is wholly inside one allocation; kNotInReach otherwise.
  [[nodiscard]] int64_t offset_of(const void* data, int64_t bytes) const noexcept;
  /// The same, and the place of memory of the program that is shared, as in extent.hpp.
  [[nodiscard]] int64_t place_of(const void* data, int64_t bytes) const noexcept;
  /// The same of memory that is in reach as a whole.
  [[nodiscard]] int64_t whole_place_of(const void* data, int64_t bytes) const noexcept;
  /// What an operation keeps that reaches into memory of the program; NULL for other memory. While there is one, the memory
  /// is not made private by unshare().
  [[nodiscard]] std::shared_ptr<const void> hold(const void* data, int64_t bytes) const noexcept;

 private:
  struct Blocks {
    int64_t begin = 0;
    int64_t end = 0;
  };
  using Used = std::map<int64_t, int64_t>;  // begin -> end of each allocation, in bytes from the base
  [[nodiscard]] Blocks blocks_of(Used::const_iterator entry) const noexcept;
  void reserve(Blocks blocks);
  void copy_to(int fd, int64_t begin, int64_t end) const;
  void release(Blocks blocks) noexcept;
  void lend(Lent& lent);
  [[nodiscard]] int64_t find_place(const Lent& lent) const noexcept;
  [[nodiscard]] os::Left take_back(Lent& lent);
  void drop_retired() noexcept;

  Fd fd_;
  std::shared_ptr<Mapping> mapping_;
  mutable std::mutex mutex_;  // guards all below
  Used used_;
  std::vector<void*> of_transport_;
  LentMap lent_;
  std::vector<int64_t> retired_;  // begins of places in used_ that were lent; this process may map them privately
  bool fenced_ = false;
};

/// Ask for the pages of a span now, for writing, so that the first pass does not pay for page faults. Best effort.
void populate(void* data, int64_t bytes) noexcept;

}  // namespace ddp::shm
