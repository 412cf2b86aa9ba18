// SPDX-License-Identifier: Apache-2.0
// The result codes of the fake: numbers of the real libraries, so that texts and kinds look as they do there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/gpu/gpu_abi.h"

namespace ddp::test::fake_gpu {

enum Code : int32_t {
  kOk = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInsufficientDriver = 35,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kNoCode = 209,
  kInvalidHandle = 400,
  kNotReady = 600,
  kIllegalAddress = 700,
  kNotSetUp = 802,
  kCaptureUnsupported = 900,
  kCaptureMerge = 903,
  kCaptureIsolation = 905,
  kCapturedEvent = 907,
  kUnknown = 999,
};

enum NcclCode : int32_t {
  kNcclOk = 0,
  kNcclUnhandledCuda = 1,
  kNcclSystem = 2,
  kNcclInternal = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemote = 6,
  kNcclInProgress = 7,
};

[[nodiscard]] const char* code_name(int32_t code) noexcept;
[[nodiscard]] const char* code_text(int32_t code) noexcept;
[[nodiscard]] int32_t code_kind(int32_t code) noexcept;
[[nodiscard]] int32_t code_of_kind(int32_t kind) noexcept;

[[nodiscard]] const char* nccl_code_text(int32_t code) noexcept;
[[nodiscard]] int32_t nccl_code_kind(int32_t code) noexcept;
[[nodiscard]] int32_t nccl_code_of_kind(int32_t kind) noexcept;

}  // namespace ddp::test::fake_gpu
