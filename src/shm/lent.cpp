// SPDX-License-Identifier: Apache-2.0
#include "shm/lent.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.hpp"
#include "shm/extent.hpp"
#include "shm/region.hpp"

namespace ddp::shm {
namespace {

int64_t number_of(const std::byte* address) noexcept { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(address)); }

/// EFAULT: a page that cannot be read, as a guard page.
Error not_copied(const os::FileWindow& window, int error) {
  if (error == EFAULT)
    return Error(DDP_ERROR_NOT_SUPPORTED, "ddp_group_share: a page of this memory cannot be read; it stays private");
  return make_error(DDP_ERROR_OUT_OF_MEMORY, "ddp_group_share: %lld bytes could not be copied into shared memory (%s)",
                    static_cast<long long>(window.bytes), std::strerror(error));
}

void copy_to_file(const os::FileWindow& window, int fd, int64_t offset) {
  for (int64_t at = 0; at < window.bytes;) {
    const ssize_t written = pwrite(fd, window.begin + at, static_cast<size_t>(window.bytes - at), offset + at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw not_copied(window, errno);
    at += written;
  }
}

}  // namespace

Lent::Lent(std::byte* data, int64_t bytes) noexcept : data_(data), asked_bytes_(bytes) {
  const int64_t before = (kPageBytes - number_of(data) % kPageBytes) % kPageBytes;
  window_.begin = data + before;
  window_.bytes = std::max<int64_t>(bytes - before, 0) / kPageBytes * kPageBytes;
}

void Lent::share(int fd, int64_t offset) {
  os::FileWindow window = window_;
  window.fd = fd;
  window.file = os::identity_of(fd);
  window.offset = offset;
  if (token_ == nullptr) token_ = std::make_shared<const int>();
  auto forks = std::make_unique<os::PrivateInForks>(window);
  copy_to_file(window, fd, offset);
  const auto length = static_cast<size_t>(window.bytes);
  if (mmap(window.begin, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, offset) == MAP_FAILED)
    throw make_error(status_of_errno(errno, DDP_ERROR_NOT_SUPPORTED),
                     "ddp_group_share: shared memory could not be mapped over %lld bytes of the program (%s)",
                     static_cast<long long>(window.bytes), std::strerror(errno));
  (void)madvise(window.begin, length, MADV_HUGEPAGE);
  populate(window.begin, window.bytes);
  window_ = window;
  forks_ = std::move(forks);
}

os::Left Lent::take_back() noexcept {
  if (!is_shared()) return os::Left::kAll;
  const os::Left left = os::make_private(window_);
  if (left != os::Left::kStuck) forks_.reset();
  return left;
}

int64_t Lent::place_of(const std::byte* data, int64_t bytes) const noexcept {
  const std::byte* const end = window_.begin + window_.bytes;
  if (!is_shared() || data >= end || data + bytes <= window_.begin) return kNotInReach;
  const int64_t place = window_.offset + (data - window_.begin);
  if (data >= window_.begin && data + bytes <= end) return place;
  const int64_t last = number_of(data + bytes) / kPageBytes * kPageBytes;
  if (data + kPageBytes <= window_.begin || last > number_of(end)) return kNotInReach;
  return place | kPagesOnly;
}

const Lent* find_lent(const LentMap& lent, const void* data, int64_t bytes) noexcept {
  const auto* const begin = static_cast<const std::byte*>(data);
  auto after = lent.lower_bound(begin + bytes);
  if (after == lent.begin()) return nullptr;
  const Lent& last = std::prev(after)->second;
  return last.begin() + last.bytes() > begin ? &last : nullptr;
}

bool is_mapped_privately(const os::FileIdentity& file, int64_t begin, int64_t end) {
  bool is_mapped = false;
  const bool read = os::walk_areas(os::Detail::kPlaces, [&](const os::Area& area) {
    const auto first = static_cast<int64_t>(area.offset);
    const auto last = first + static_cast<int64_t>(area.end - area.begin);
    is_mapped = area.file == file && !area.is_shared() && first < end && last > begin;
    return !is_mapped;
  });
  return is_mapped || !read;
}

}  // namespace ddp::shm
