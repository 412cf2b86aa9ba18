// SPDX-License-Identifier: Apache-2.0
// Pages that end the program when they are touched after they were unmapped.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace ddp::test {

class GradientPages {
 public:
  explicit GradientPages(int64_t bytes)
      : bytes_(static_cast<size_t>(bytes)),
        data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~GradientPages() { munmap(data_, bytes_); }
  GradientPages(const GradientPages&) = delete;
  GradientPages& operator=(const GradientPages&) = delete;
  [[nodiscard]] void* data() const noexcept { return data_; }

 private:
  size_t bytes_;
  void* data_;
};

}  // namespace ddp::test
