// SPDX-License-Identifier: Apache-2.0
// The backend number of UCX, which <ddp/types.h> does not name yet.
// Tested by process/ucx_test.cpp.
#pragma once

#include "ddp/types.h"

inline constexpr ddp_backend DDP_BACKEND_UCX = static_cast<ddp_backend>(5);
