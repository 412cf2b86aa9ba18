// SPDX-License-Identifier: Apache-2.0
// Vectors of 16 bytes, which every 64-bit machine has in its basic instruction set; binary16 is converted in integers.
// Anonymous namespace: see vectors.hpp.
#pragma once

#include "device/cpu/conversions.hpp"

namespace ddp::cpu {
namespace {

struct Portable : PlainConversions<4> {
  static constexpr const char* kName = "portable";
  static constexpr int kWords = 4;
};

}  // namespace
}  // namespace ddp::cpu
