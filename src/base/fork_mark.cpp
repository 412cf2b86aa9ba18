#include "base/fork_mark.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <new>

namespace ddp {
namespace {

constexpr size_t kBytes = 4096;  // the system rounds up to its pages

}  // namespace

ForkMark::ForkMark() noexcept : pid_(getpid()) {
  const int error = errno;
  void* const page = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED) {
    if (madvise(page, kBytes, MADV_WIPEONFORK) == 0)
      page_ = new (page) std::atomic<int>(1);
    else
      munmap(page, kBytes);
  }
  errno = error;
}

ForkMark::~ForkMark() {
  if (page_ != nullptr) munmap(page_, kBytes);
}

bool ForkMark::is_maker() const noexcept { return getpid() == pid_; }

}  // namespace ddp
