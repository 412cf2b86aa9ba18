// SPDX-License-Identifier: Apache-2.0
// The functions of the file libddp_cuda.so that has the fake in it.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "support/fake_gpu/fake_gpu.hpp"
#include "support/fake_gpu/fake_gpu_control.h"

namespace fake = ddp::test::fake_gpu;

namespace {

void copy_text(const std::vector<std::string>& texts, int64_t index, char* buffer, int64_t capacity) {
  const bool is_there = index >= 0 && index < static_cast<int64_t>(texts.size());
  std::snprintf(buffer, static_cast<size_t>(capacity), "%s", is_there ? texts[static_cast<size_t>(index)].c_str() : "");
}

/// With DDP_FAKE_GPU_STRICT a program that leaves violations behind ends as failed, so that programs which know nothing of
/// the fake are checked too.
__attribute__((destructor)) void judge_at_exit() {
  const char* const strict = std::getenv("DDP_FAKE_GPU_STRICT");
  const std::vector<std::string> all = fake::violations();
  if (strict == nullptr || *strict == '\0' || all.empty()) return;
  for (const std::string& text : all) std::fprintf(stderr, "fake GPU: %s\n", text.c_str());
  std::fflush(nullptr);
  ::_exit(86);
}

}  // namespace

const ddp_gpu_table* ddp_gpu_query(int32_t version) { return version == DDP_GPU_VERSION ? &fake::table() : nullptr; }

void ddp_fake_gpu_reset(int32_t devices, uint64_t seed) {
  fake::Options options;
  options.devices = devices;
  options.seed = seed;
  options.nccl_connects = true;
  fake::reset(options);
}
void ddp_fake_gpu_set_device_count(int32_t count) { fake::set_device_count(count); }
void ddp_fake_gpu_set_driver_version(int32_t version) { fake::set_driver_version(version); }
void ddp_fake_gpu_lose_device(int32_t device) { fake::lose_device(device); }
void ddp_fake_gpu_inject(const char* function, int64_t nth, int64_t times, int32_t kind, int32_t device) {
  fake::inject({function, nth, times, kind, device});
}
void ddp_fake_gpu_set_open_nccl_error(const char* text) { fake::set_open_nccl_error(text == nullptr ? "" : text); }
void ddp_fake_gpu_set_async_error(int32_t device, int32_t kind) { fake::set_async_error(device, kind); }

int64_t ddp_fake_gpu_violations(void) { return static_cast<int64_t>(fake::violations().size()); }
void ddp_fake_gpu_violation(int64_t index, char* buffer, int64_t capacity) {
  copy_text(fake::violations(), index, buffer, capacity);
}
void ddp_fake_gpu_clear_violations(void) { fake::clear_violations(); }

int64_t ddp_fake_gpu_live(void) { return fake::live().total(); }
int64_t ddp_fake_gpu_calls(const char* function) { return fake::calls(function); }
int64_t ddp_fake_gpu_host_waits(void) { return fake::host_waits(); }
int64_t ddp_fake_gpu_allocations(void) { return fake::allocations(); }
void ddp_fake_gpu_clear_log(void) { fake::clear_log(); }
void ddp_fake_gpu_log(int64_t index, char* buffer, int64_t capacity) { copy_text(fake::log(), index, buffer, capacity); }

void ddp_fake_gpu_pause_device(int32_t device) { fake::pause_device(device); }
void ddp_fake_gpu_resume_device(int32_t device) { fake::resume_device(device); }
int32_t ddp_fake_gpu_wait_idle(int64_t limit_ms) { return fake::wait_idle(limit_ms) ? 1 : 0; }
int32_t ddp_fake_gpu_peek(void* to, const void* device_memory, int64_t bytes) {
  return fake::peek(to, device_memory, bytes) ? 1 : 0;
}
int32_t ddp_fake_gpu_poke(void* device_memory, const void* from, int64_t bytes) {
  return fake::poke(device_memory, from, bytes) ? 1 : 0;
}

int32_t ddp_fake_gpu_begin_capture(void* stream) { return fake::begin_capture(stream) ? 1 : 0; }
void* ddp_fake_gpu_end_capture(void* stream) {
  const fake::GraphPtr graph = fake::end_capture(stream);
  return graph == nullptr ? nullptr : new fake::GraphPtr(graph);
}
void ddp_fake_gpu_launch_graph(void* graph, void* stream) {
  fake::launch_graph(*static_cast<fake::GraphPtr*>(graph), stream);
}
void ddp_fake_gpu_destroy_graph(void* graph) { delete static_cast<fake::GraphPtr*>(graph); }
