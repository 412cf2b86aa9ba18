// SPDX-License-Identifier: Apache-2.0
// The handle that a hook gets for its bucket, and for the group in the hook.
// Tested by capi/hook_test.c.
#pragma once

#include "capi/tables.hpp"
#include "ddp/hook.h"
#include "parts/hooks/hook_bucket.hpp"

namespace ddp::capi {

/// The bucket that is open in a hook.
inline std::shared_ptr<parts::HookBucket> bucket_of(const ddp_bucket* handle, const char* function) {
  auto bucket = object_of(handle, function);
  bucket->require_open(function);
  return bucket;
}
inline std::shared_ptr<parts::HookBucket> bucket_of(const ddp_group* handle, const char* function) {
  return bucket_of(reinterpret_cast<const ddp_bucket*>(handle), function);
}

/// Made when it is first asked for; the same every time.
[[nodiscard]] ddp_bucket* handle_of(parts::HookBucket& bucket);

}  // namespace ddp::capi
