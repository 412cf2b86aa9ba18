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
#include "os/log.hpp"
#include "shm/extent.hpp"
#include "shm/refusal.hpp"

namespace ddp::shm {
namespace {

constexpr int64_t kSmallest = int64_t{256} << 20;
constexpr int64_t kMovingMs = 2000;  // that a call may spend on huge pages: a system short of them compacts its memory first

constexpr int64_t round_up(int64_t value, int64_t unit) noexcept { return (value + unit - 1) / unit * unit; }
constexpr int64_t kHeader = round_up(static_cast<int64_t>(sizeof(Page)), kPageBytes);

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif

Fd open_memfd(int64_t size) {
  Fd fd(memfd_create("libddp", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
  if (fd.get() < 0 && errno == EINVAL) fd = Fd(memfd_create("libddp", MFD_CLOEXEC | MFD_ALLOW_SEALING));
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
  for (int64_t at = blocks.begin; at < blocks.end && given; at += os::kHugePage) given = ask(at, kPageBytes);
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
  const int64_t wanted = round_up(std::min(bytes, mapping_->size()), kLineBytes);
  const std::lock_guard lock(mutex_);
  // Large allocations start on a page, so that the ranks' shares of them end on pages.
  const int64_t unit = wanted >= kPageBytes ? kPageBytes : kLineBytes;
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
  void* const memory = alloc(bytes);
  const auto note = [&] {
    const std::lock_guard lock(mutex_);  // a thread that works on messages may make memory, too
    of_transport_.push_back(memory);
  };
  on_error(note, [&](const Error&) { static_cast<void>(free(memory)); });
  return memory;
}

void Region::renew() {
  for (void* const memory : std::exchange(of_transport_, {})) static_cast<void>(free(memory));
  if (!make_private()) throw Error();
  Fd fd = open_memfd(mapping_->size());
  const std::lock_guard lock(mutex_);
  for (const int64_t begin : std::exchange(retired_, {})) used_.erase(begin);  // no mapping is of the new file
  for (const auto& [begin, end] : used_) copy_to(fd.get(), begin, end);
  mapping_->map_again(fd.get());
  fd_ = std::move(fd);
  reserve({0, round_up(kHeader, os::kHugePage)});
  for (auto entry = used_.cbegin(); entry != used_.cend(); ++entry) reserve(blocks_of(entry));
  new (mapping_->base()) Page;
  fenced_ = false;
  for (auto entry = lent_.begin(); entry != lent_.end();) {
    const auto here = entry++;
    const std::optional<Error> failed = try_to([&] { lend(here->second); });
    if (!failed) continue;
    os::log_of(*failed, DDP_LOG_WARNING, "memory of ddp_group_share stays private after the recovery: %s", failed->what());
    lent_.erase(here);
  }
}

void Region::fence() {
  if (!make_private()) throw Error();
  const std::lock_guard lock(mutex_);
  for (const int64_t begin : std::exchange(retired_, {})) used_.erase(begin);
  if (fenced_ || used_.empty()) return;
  Fd fd = open_memfd(mapping_->size());
  for (const auto& [begin, end] : used_) copy_to(fd.get(), begin, end);
  mapping_->map_again(fd.get(), kHeader);
  fd_ = std::move(fd);
  fenced_ = true;
}

void Region::share(void* data, int64_t bytes) {
  Lent lent(static_cast<std::byte*>(data), bytes);
  const std::lock_guard lock(mutex_);
  if (find_lent(lent_, lent.begin(), lent.bytes()) != nullptr)
    throw Error(DDP_ERROR_INVALID_ARGUMENT, "ddp_group_share: some of this memory is shared with the group already");
  drop_retired();
  LentMap made;  // before the memory, so that nothing can fail after it
  const auto entry = made.emplace(lent.begin(), std::move(lent)).first;
  lend(entry->second);
  lent_.merge(made);
}

/// The first place that is as far from a huge page's boundary as the program's pages are; -1 without room.
int64_t Region::find_place(const Lent& lent) const noexcept {
  const auto wanted = static_cast<int64_t>(reinterpret_cast<uintptr_t>(lent.begin()) % os::kHugePage);
  const auto from = [&](int64_t at) {
    const int64_t place = at / os::kHugePage * os::kHugePage + wanted;
    return place < at ? place + os::kHugePage : place;
  };
  int64_t begin = from(kHeader);
  for (const auto& [used_begin, used_end] : used_) {
    if (used_begin - begin >= lent.bytes()) break;
    begin = std::max(begin, from(used_end));
  }
  return lent.bytes() <= mapping_->size() - begin ? begin : -1;
}

void Region::lend(Lent& lent) {
  static std::mutex one_at_a_time;  // of all groups of this process: what one has looked at, no other maps meanwhile
  const std::lock_guard lock(one_at_a_time);
  const std::string reason = refusal_of(lent.data(), lent.asked_bytes());
  if (!reason.empty())
    throw make_error(DDP_ERROR_NOT_SUPPORTED, "ddp_group_share: these %lld bytes stay private memory: %s",
                     static_cast<long long>(lent.asked_bytes()), reason.c_str());
  const int64_t begin = find_place(lent);
  if (begin < 0)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY,
                     "ddp_group_share: %lld bytes do not fit into this rank's shared memory of %lld",
                     static_cast<long long>(lent.bytes()), static_cast<long long>(mapping_->size()));
  retired_.reserve(retired_.size() + lent_.size() + 1);  // so that take_back() needs no memory
  const auto entry = used_.emplace(begin, begin + lent.bytes()).first;
  on_error(
      [&] {
        reserve(blocks_of(entry));
        lent.share(fd_.get(), begin);
      },
      [&](const Error&) {
        release(blocks_of(entry));
        used_.erase(entry);
      });
}

os::Left Region::take_back(Lent& lent) {
  if (!lent.is_shared()) return os::Left::kAll;
  const os::Left left = lent.take_back();
  if (left != os::Left::kStuck) retired_.push_back(lent.offset());
  return left;
}

bool Region::unshare(void* data) {
  const std::lock_guard lock(mutex_);
  const auto entry = std::find_if(lent_.begin(), lent_.end(), [&](const auto& each) { return each.second.data() == data; });
  if (entry == lent_.end()) return false;
  if (entry->second.is_held())
    throw Error(
        DDP_ERROR_INVALID_STATE,
        "ddp_group_unshare: a model's buckets lie in this memory, and other ranks reach it; destroy the model before");
  switch (take_back(entry->second)) {
    case os::Left::kAll: lent_.erase(entry); return true;
    case os::Left::kStuck:
      throw Error(DDP_ERROR_OUT_OF_MEMORY, "ddp_group_unshare: there is no memory for private pages; it stays shared");
    case os::Left::kNothing:
    case os::Left::kPartly: break;
  }
  lent_.erase(entry);
  throw Error(DDP_ERROR_INVALID_STATE,
              "ddp_group_unshare: this memory was freed or mapped anew while it was shared; call ddp_group_unshare before");
}

bool Region::make_private() noexcept {
  const std::lock_guard lock(mutex_);
  if (!lent_.empty()) page().withdrawn.store(1);
  bool all = true;
  for (auto& [begin, lent] : lent_) {
    if (take_back(lent) != os::Left::kStuck) continue;
    all = false;
    os::log(DDP_LOG_ERROR, "%lld bytes of ddp_group_share stay in the reach of other ranks: there is no memory",
            static_cast<long long>(lent.bytes()));
  }
  return all;
}

/// Places that the program's memory is no mapping of any more can be used again.
void Region::drop_retired() noexcept {
  std::optional<os::FileIdentity> file;
  if (retired_.empty() || try_to([&] { file = os::identity_of(fd_.get()); })) return;
  const auto is_mapped = [&](int64_t begin) {
    const auto entry = used_.find(begin);
    if (is_mapped_privately(*file, entry->first, entry->second)) return true;
    release(blocks_of(entry));
    used_.erase(entry);
    return false;
  };
  retired_.erase(std::partition(retired_.begin(), retired_.end(), is_mapped), retired_.end());
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

int64_t Region::place_of(const void* data, int64_t bytes) const noexcept {
  if (const int64_t offset = offset_of(data, bytes); offset != kNotInReach) return offset;
  const std::lock_guard lock(mutex_);
  const Lent* const lent = find_lent(lent_, data, bytes);
  return lent == nullptr ? kNotInReach : lent->place_of(static_cast<const std::byte*>(data), bytes);
}

int64_t Region::whole_place_of(const void* data, int64_t bytes) const noexcept {
  const int64_t place = place_of(data, bytes);
  return place != kNotInReach && (place & kPagesOnly) != 0 ? kNotInReach : place;
}

std::shared_ptr<const void> Region::hold(const void* data, int64_t bytes) const noexcept {
  const std::lock_guard lock(mutex_);
  const Lent* const lent = find_lent(lent_, data, bytes);
  return lent == nullptr ? nullptr : lent->hold();
}

void populate(void* data, int64_t bytes) noexcept {
#ifdef MADV_POPULATE_WRITE
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = address / kPageBytes * kPageBytes;
  (void)madvise(reinterpret_cast<void*>(begin), address + static_cast<uintptr_t>(bytes) - begin, MADV_POPULATE_WRITE);
#else
  (void)data;
  (void)bytes;
#endif
}

}  // namespace ddp::shm
