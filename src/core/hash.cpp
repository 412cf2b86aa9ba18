// SPDX-License-Identifier: Apache-2.0
#define XXH_INLINE_ALL
#include "core/hash.hpp"

#include <xxhash.h>

#include <new>

namespace ddp {

struct Hasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

uint64_t content_hash(const void* data, size_t bytes) noexcept { return XXH3_64bits(data, bytes); }

Hasher::Hasher() : state_(std::make_unique<State>()) {
  if (state_->xxh == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_->xxh);
}
Hasher::~Hasher() = default;

void Hasher::add(const void* data, size_t bytes) noexcept { XXH3_64bits_update(state_->xxh, data, bytes); }
uint64_t Hasher::value() const noexcept { return XXH3_64bits_digest(state_->xxh); }

}  // namespace ddp
