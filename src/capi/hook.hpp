// SPDX-License-Identifier: Apache-2.0
// The handle that a hook gets for its bucket.
// Tested by capi/hook_test.c.
#pragma once

#include "ddp/hook.h"
#include "parts/hooks/hook_bucket.hpp"

namespace ddp::capi {

/// Made when it is first asked for; the same every time.
[[nodiscard]] ddp_bucket* handle_of(parts::HookBucket& bucket);

}  // namespace ddp::capi
