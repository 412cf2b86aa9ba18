// SPDX-License-Identifier: Apache-2.0
// CMocka with the headers it wants before it, for C++ tests.
#pragma once

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

extern "C" {
#include <cmocka.h>
}
#undef fail  // clashes with std::ios::fail
