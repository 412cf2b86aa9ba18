// SPDX-License-Identifier: Apache-2.0
// NCCL has handlers of exit() that take it down, set up when it is first used. A thread that is inside it then, or calls it
// later, crashes; here that is a violation.
#include <cstdlib>
#include <string>

#include "support/fake_gpu/runtime.hpp"

namespace ddp::test::fake_gpu {
namespace {

void take_down() {
  if (is_fork()) return;
  Runtime& r = runtime();
  const Lock lock(r.mutex);
  r.taken_down = true;
  if (r.ending > 0) r.violate("exit() takes NCCL down while a thread is inside a call that ends a communicator");
}

void set_up() {
  static const int done = std::atexit(take_down);
  static_cast<void>(done);
}

}  // namespace

BesideExit::BesideExit(Runtime& r, const Call& call) : runtime_(r), counts_(call.is_nccl && call.releases ? 1 : 0) {
  if (!call.is_nccl) return;
  set_up();
  if (r.taken_down) r.violate(std::string(call.name) + " is called after exit() has taken NCCL down");
  r.ending += counts_;
}

}  // namespace ddp::test::fake_gpu
