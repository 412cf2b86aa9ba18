// SPDX-License-Identifier: Apache-2.0
#include "shm/region.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "core/attempt.hpp"
#include "os/huge_pages.hpp"

namespace ddp::shm {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kLine = 64;
constexpr int64_t kSmallest = int64_t{256} << 20;
constexpr int64_t kMovingMs = 2000;  // that a call may spend on huge pages: a system short of them compacts its memory first

constexpr int64_t round_up(int64_t value, int64_t unit) noexcept { return (value + unit - 1) / unit * unit; }
constexpr int64_t kHeader = round_up(static_cast<int64_t>(sizeof(Page)), kPage);

Fd open_memfd(int64_t size) {
  Fd fd(memfd_create("libddp", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0)
    throw make_error(status_of_errno(errno, DDP_ERROR_NOT_SUPPORTED),
                     "memfd_create failed (%s): no shared memory on this machine%s", std::strerror(errno),
                     advice_of_errno(errno));
  if (ftruncate(fd.get(), size) != 0 || fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY, "a shared memory file of %lld bytes was refused (%s)",
                     static_cast<long long>(size), std::strerror(errno));
  return fd;
}

}  // namespace

Mapping::Mapping(int fd, int64_t size) : size_(size) {
  const auto length = static_cast<size_t>(size);
  void* const place = os::reserve_addresses(length);
  on_error([&] { map(fd, static_cast<std::byte*>(place), 0); },
           [&](const Error&) {
             if (place != nullptr) os::unmap(place, length);
           });
  base_ = static_cast<std::byte*>(place);
}

void Mapping::map(int fd, std::byte* base, int64_t from) const {
  const auto length = static_cast<size_t>(size_ - from);
  void* const place = base + from;
  if (base == nullptr ||
      mmap(place, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, from) == MAP_FAILED)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY, "%lld bytes of shared memory could not be mapped (%s)",
                     static_cast<long long>(size_), std::strerror(errno));
  (void)madvise(place, length, MADV_DONTDUMP);
  (void)madvise(place, length, MADV_HUGEPAGE);
}

void Mapping::map_again(int fd, int64_t from) { map(fd, base_, from); }

Mapping::~Mapping() {
  if (base_ != nullptr) os::unmap(base_, static_cast<size_t>(size_));
}

int64_t Region::default_limit(int32_t ranks) noexcept {
  struct sysinfo info {};
  int64_t memory = int64_t{16} << 30;
  if (sysinfo(&info) == 0) memory = static_cast<int64_t>(info.totalram) * info.mem_unit;
  // Addresses of all ranks together stay below 2^46, half of a process's address space.
  const int64_t share = (int64_t{1} << 46) / std::max(ranks, 1);
  return round_up(std::max(std::min(memory, share), kSmallest), os::kHugePage);
}

Region::Region(int64_t limit) {
  for (int64_t size = round_up(limit, os::kHugePage);; size = round_up(size / 2, os::kHugePage)) {
    const std::optional<Error> refused = try_to<Error>([&] {
      Fd fd = open_memfd(size);
      mapping_ = std::make_shared<Mapping>(fd.get(), size);
      fd_ = std::move(fd);
    });
    if (!refused) break;
    if (refused->status() != DDP_ERROR_OUT_OF_MEMORY || size / 2 < kSmallest) throw Error(*refused);
  }
  reserve({0, round_up(kHeader, os::kHugePage)});
  new (mapping_->base()) Page;
}

/// The blocks that only this allocation touches.
Region::Blocks Region::blocks_of(Used::const_iterator entry) const noexcept {
  Blocks blocks{entry->first / os::kHugePage * os::kHugePage, round_up(entry->second, os::kHugePage)};
  const int64_t before = entry == used_.begin() ? kHeader : std::prev(entry)->second;
  if (before > blocks.begin) blocks.begin += os::kHugePage;
  const auto after = std::next(entry);
  if (after != used_.end() && after->first < blocks.end) blocks.end -= os::kHugePage;
  return blocks;
}

// A page in each block is what a huge page needs to be made of; what the system does not give as huge pages is then reserved
// as small ones.
void Region::reserve(Blocks blocks) {
  if (blocks.begin >= blocks.end) return;
  const auto ask = [&](int64_t begin, int64_t bytes) {
    int result = 0;
    do {
      result = fallocate(fd_.get(), 0, begin, bytes);
    } while (result != 0 && errno == EINTR);
    return result == 0;
  };
  bool given = true;
  for (int64_t at = blocks.begin; at < blocks.end && given; at += os::kHugePage) given = ask(at, kPage);
  if (given) {
    (void)os::to_huge_pages(mapping_->base() + blocks.begin, blocks.end - blocks.begin, os::Deadline::in_ms(kMovingMs));
    given = ask(blocks.begin, blocks.end - blocks.begin);
  }
  if (given) return;
  const int error = errno;
  release(blocks);
  throw make_error(DDP_ERROR_OUT_OF_MEMORY, "%lld bytes of shared memory could not be reserved (%s)",
                   static_cast<long long>(blocks.end - blocks.begin), std::strerror(error));
}

void Region::release(Blocks blocks) noexcept {
  if (blocks.begin < blocks.end)
    (void)fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, blocks.begin, blocks.end - blocks.begin);
}

void* Region::alloc(int64_t bytes) {
  const int64_t wanted = round_up(bytes, kLine);
  const std::lock_guard lock(mutex_);
  // Large allocations start on a page, so that the ranks' shares of them end on pages.
  const int64_t unit = wanted >= kPage ? kPage : kLine;
  int64_t begin = kHeader;
  for (const auto& [used_begin, used_end] : used_) {
    if (used_begin - begin >= wanted) break;
    begin = round_up(used_end, unit);
  }
  if (wanted > mapping_->size() - begin)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY, "%lld bytes do not fit into this rank's shared memory of %lld bytes",
                     static_cast<long long>(bytes), static_cast<long long>(mapping_->size()));
  struct Entry {
    Used& used;
    Used::iterator at;
    bool kept = false;
    ~Entry() {
      if (!kept) used.erase(at);
    }
  } entry{used_, used_.emplace(begin, begin + wanted).first};
  reserve(blocks_of(entry.at));
  entry.kept = true;
  std::byte* data = mapping_->base() + begin;
  std::memset(data, 0, static_cast<size_t>(wanted));  // also the first touch, by the rank that uses it
  return data;
}

void* Region::alloc_for_transport(int64_t bytes) {
  of_transport_.reserve(of_transport_.size() + 1);
  of_transport_.push_back(alloc(bytes));
  return of_transport_.back();
}

void Region::renew() {
  for (void* const memory : std::exchange(of_transport_, {})) static_cast<void>(free(memory));
  Fd fd = open_memfd(mapping_->size());
  const std::lock_guard lock(mutex_);
  for (const auto& [begin, end] : used_) copy_to(fd.get(), begin, end);
  mapping_->map_again(fd.get());
  fd_ = std::move(fd);
  reserve({0, round_up(kHeader, os::kHugePage)});
  for (auto entry = used_.cbegin(); entry != used_.cend(); ++entry) reserve(blocks_of(entry));
  new (mapping_->base()) Page;
  fenced_ = false;
}

void Region::fence() {
  const std::lock_guard lock(mutex_);
  if (fenced_ || used_.empty()) return;
  Fd fd = open_memfd(mapping_->size());
  for (const auto& [begin, end] : used_) copy_to(fd.get(), begin, end);
  mapping_->map_again(fd.get(), kHeader);
  fd_ = std::move(fd);
  fenced_ = true;
}

/// Bytes of the mapping to the same place in a file.
void Region::copy_to(int fd, int64_t begin, int64_t end) const {
  for (int64_t at = begin; at < end;) {
    const ssize_t written = pwrite(fd, mapping_->base() + at, static_cast<size_t>(end - at), at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      throw make_error(DDP_ERROR_OUT_OF_MEMORY, "%lld bytes of shared memory could not be copied (%s)",
                       static_cast<long long>(end - begin), std::strerror(errno));
    at += written;
  }
}

bool Region::free(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto entry = used_.find(static_cast<std::byte*>(data) - mapping_->base());
  if (entry == used_.end()) return false;
  release(blocks_of(entry));
  used_.erase(entry);
  return true;
}

int64_t Region::offset_of(const void* data, int64_t bytes) const noexcept {
  const int64_t begin = static_cast<const std::byte*>(data) - mapping_->base();
  if (data < mapping_->base() || begin >= mapping_->size()) return kNotInReach;
  const std::lock_guard lock(mutex_);
  auto after = used_.upper_bound(begin);
  if (after == used_.begin()) return kNotInReach;
  --after;
  return begin + bytes <= after->second ? begin : kNotInReach;
}

void populate(void* data, int64_t bytes) noexcept {
#ifdef MADV_POPULATE_WRITE
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = address / kPage * kPage;
  (void)madvise(reinterpret_cast<void*>(begin), address + static_cast<uintptr_t>(bytes) - begin, MADV_POPULATE_WRITE);
#else
  (void)data;
  (void)bytes;
#endif
}

}  // namespace ddp::shm
