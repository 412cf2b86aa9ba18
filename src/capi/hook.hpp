// The handle that a hook gets for its bucket.
// Tested by capi/hook_test.c.
#pragma once

#include "capi/handles.hpp"
#include "ddp/hook.h"
#include "pass/hook_bucket.hpp"

namespace ddp::capi {

using BucketTable = HandleTable<pass::HookBucket, ddp_bucket, 0xd5>;

/// Made when it is first asked for; the same every time.
[[nodiscard]] ddp_bucket* handle_of(pass::HookBucket& bucket);

}  // namespace ddp::capi
