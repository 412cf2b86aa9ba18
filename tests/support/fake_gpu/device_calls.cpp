// SPDX-License-Identifier: Apache-2.0
// The device itself: which there are, which is current, waiting for all of one.
#include <cstdio>

#include "support/fake_gpu/calls.hpp"
#include "support/fake_gpu/capture.hpp"
#include "support/fake_gpu/nccl.hpp"

namespace ddp::test::fake_gpu::entry {
namespace {

int32_t check_device(const Runtime& r, int32_t device) {
  if (r.state->options.devices == 0) return kNoDevice;
  return device >= 0 && device < r.state->options.devices ? kOk : kInvalidDevice;
}

Call without_driver(const char* name) {
  Call call{name};
  call.needs_driver = false;
  return call;
}

}  // namespace

int32_t driver_version(int32_t* out_version) {
  return entered(without_driver("driver_version"), [&](Runtime& r, Lock&) -> int32_t {
    if (out_version == nullptr) return kInvalidValue;
    *out_version = r.state->options.driver_version;
    return kOk;
  });
}

int32_t device_count(int32_t* out_count) {
  if (out_count != nullptr) *out_count = 0;
  return entered(Call{"device_count"}, [&](Runtime& r, Lock&) -> int32_t {
    if (out_count == nullptr) return kInvalidValue;
    *out_count = r.state->options.devices;
    return *out_count > 0 ? kOk : kNoDevice;
  });
}

int32_t device_name(int32_t device, char* buffer, int64_t capacity) {
  return entered(Call{"device_name"}, [&](Runtime& r, Lock&) -> int32_t {
    if (buffer == nullptr || capacity <= 0) return kInvalidValue;
    std::snprintf(buffer, static_cast<size_t>(capacity), "Fake GPU %d", device);
    return check_device(r, device);
  });
}

int32_t device_is_used(int32_t device, int32_t* out_used) {
  return entered(Call{"device_is_used"}, [&](Runtime& r, Lock&) -> int32_t {
    if (out_used == nullptr) return kInvalidValue;
    *out_used = 1;
    return check_device(r, device);
  });
}

int32_t get_device(int32_t* out_device) {
  return entered(Call{"get_device"}, [&](Runtime&, Lock&) -> int32_t {
    if (out_device == nullptr) return kInvalidValue;
    *out_device = current_device();
    return kOk;
  });
}

int32_t set_device(int32_t device) {
  return entered(Call{"set_device"}, [&](Runtime& r, Lock&) -> int32_t {
    const int32_t code = check_device(r, device);
    if (code == kOk) current_device() = device;
    return code;
  });
}

int32_t synchronize() {
  return entered(Call{"synchronize"}, [&](Runtime& r, Lock& lock) -> int32_t {
    if (const int32_t code = check_unsafe(r, "synchronize"); code != kOk) return code;
    for (const CapturePtr& capture : r.state->captures)
      for (const StreamPtr& stream : capture->members)
        if (stream->device == current_device()) return refuse(*capture, "synchronize", kCaptureUnsupported);
    if (!r.wait_for(lock, r.streams_of(current_device()))) return kUnknown;
    r.learn(r.state->ended[static_cast<size_t>(current_device())], true);
    return kOk;
  });
}

int32_t load_kernels() {
  return entered(Call{"load_kernels"}, [](Runtime& r, Lock& lock) -> int32_t {
    linger(r, lock, current_device());
    return kOk;
  });
}

int32_t relax_capture() {
  return entered(without_driver("relax_capture"), [](Runtime&, Lock&) -> int32_t {
    is_relaxed() = true;
    return kOk;
  });
}

int32_t open_nccl(const char*, const ddp_nccl_table** out, char* error, int64_t capacity) {
  return entered(without_driver("open_nccl"), [&](Runtime& r, Lock&) -> int32_t {
    const std::string& text = r.state->open_nccl_error;
    if (error != nullptr && capacity > 0) std::snprintf(error, static_cast<size_t>(capacity), "%s", text.c_str());
    if (out == nullptr || !text.empty()) return 1;
    *out = &nccl();
    return 0;
  });
}

int32_t find_nccl(const ddp_nccl_table** out, char* error, int64_t capacity) {
  return open_nccl(nullptr, out, error, capacity);
}

}  // namespace ddp::test::fake_gpu::entry
