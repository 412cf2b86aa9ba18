// SPDX-License-Identifier: Apache-2.0
// What makes the fake assume the worst: modes from the environment, calls that take long, a rank that ends inside NCCL.
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "support/fake_gpu/runtime.hpp"

namespace ddp::test::fake_gpu {
namespace {

/// "late=3", or "late" for the usual number. False: it is another mode.
bool is_mode(const std::string& text, const char* name, int64_t usual, int64_t& out) {
  const size_t end = text.find('=');
  if (text.substr(0, end) != name) return false;
  const int64_t number = end == std::string::npos ? usual : std::atoll(text.c_str() + end + 1);
  if (out < number) out = number;
  return true;
}

}  // namespace

/// splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
uint64_t next_random(uint64_t& state) noexcept {
  uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

Options with_modes(Options options) {
  const char* const modes = std::getenv(kModes);
  std::istringstream all(modes == nullptr ? "" : modes);
  for (std::string mode; std::getline(all, mode, ',');)
    if (!is_mode(mode, "late", 8, options.late_ms) && !is_mode(mode, "slow_init", 300, options.slow_init_ms) &&
        !is_mode(mode, "looks", 7, options.nccl_looks) && !is_mode(mode, "one", 1, options.nccl_at_once) &&
        !is_mode(mode, "free", 1, options.frees_at_once)) {
      std::fprintf(stderr, "%s: there is no mode \"%s\"\n", kModes, mode.c_str());
      std::abort();
    }
  return options;
}

void linger(Runtime& r, Lock& lock, int32_t device) {
  const int64_t most = r.state->options.slow_init_ms;
  if (most == 0) return;
  uint64_t random = r.state->options.seed + static_cast<uint64_t>(device) * 1000 + r.state->log.size();
  const int64_t least = most / 6;
  const int64_t ms = least + static_cast<int64_t>(next_random(random) % static_cast<uint64_t>(most - least + 1));
  ++r.host_waiters;
  r.changed.wait_for(lock, std::chrono::milliseconds(ms), [&] { return r.stopping; });
  --r.host_waiters;
  r.changed.notify_all();
}

bool counts(const Call& call) noexcept { return call.is_nccl && std::string(call.name) != "nccl.comm_async_error"; }

bool dies(Runtime& r, Lock& lock, const Call& call) {
  State& s = *r.state;
  const int32_t device = call.device >= 0 ? call.device : current_device();
  if (s.death.device != device || (!s.dead && (s.death.tell == nullptr || !counts(call)))) return false;
  if (!s.dead && s.calls_before_death-- > 0) return false;
  if (!s.dead) {
    s.dead = true;
    s.device_paused[static_cast<size_t>(device)] = true;
    const std::function<void()> tell = s.death.tell;
    lock.unlock();
    tell();
    lock.lock();
  }
  static_cast<void>(r.wait(lock, [&] { return !r.state->dead; }));
  return true;
}

}  // namespace ddp::test::fake_gpu
