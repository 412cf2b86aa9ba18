// SPDX-License-Identifier: Apache-2.0
#include "nccl/stop_words.hpp"

#include <algorithm>
#include <cstdint>

namespace ddp::nccl {
namespace {

constexpr int64_t kWord = static_cast<int64_t>(sizeof(uint32_t));
constexpr int64_t kApart = 256;  // bytes between the copies
constexpr size_t kStreams = 64;  // that have a copy of their own

}  // namespace

StopWords::StopWords(const gpu::Device& device)
    : device_(device),
      word_(device, kWord, "the word that stops kernels"),
      copies_(device, static_cast<int64_t>(kStreams) * kApart, "the word that stops kernels") {
  streams_.reserve(kStreams);
}

/// Two streams do not share one, unless a program has very many.
std::byte* StopWords::word_of(void* stream) {
  const std::lock_guard lock(mutex_);
  size_t at = static_cast<size_t>(std::find(streams_.begin(), streams_.end(), stream) - streams_.begin());
  if (at == streams_.size() && at == kStreams) at = 1 + reinterpret_cast<uintptr_t>(stream) / 64 % (kStreams - 1);
  if (at == streams_.size()) streams_.push_back(stream);
  return copies_.data() + static_cast<int64_t>(at) * kApart;
}

ddp_gpu_stop StopWords::copy_on(void* stream) {
  auto* const copy = reinterpret_cast<uint32_t*>(word_of(stream));
  const gpu::Device::Current current(device_);
  device_.check(device_.table().copy_word(static_cast<const uint32_t*>(word_.on_device()), copy, stream),
                "reading the word that stops kernels");
  return copy;
}

ddp_gpu_stop StopWords::original() const noexcept { return static_cast<const uint32_t*>(word_.on_device()); }

void StopWords::set() noexcept { __atomic_store_n(reinterpret_cast<uint32_t*>(word_.host()), 1u, __ATOMIC_SEQ_CST); }

std::byte* StopWords::spare() const noexcept { return copies_.data() + kApart / 2; }

}  // namespace ddp::nccl
