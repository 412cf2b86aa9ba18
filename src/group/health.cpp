// SPDX-License-Identifier: Apache-2.0
#include "group/health.hpp"

#include "bootstrap/failure.hpp"
#include "control/breaking.hpp"
#include "control/control.hpp"

namespace ddp::group {

Health::Health(bootstrap::Control& control, bootstrap::Failure& failure)
    : control_(control), failure_(failure), gave_up_(bootstrap::gave_up(control)) {}

void Health::check_usable() const {
  check_open();
  failure_.check();
}

void Health::check_open() const {
  const Life life = life_.load();
  if (life == Life::kDestroyed) throw Error(DDP_ERROR_INVALID_STATE, "the group was destroyed");
  if (life == Life::kExits)
    throw Error(DDP_ERROR_INVALID_STATE,
                "this process is in exit(), and its rank has left the group; make the call before exit(), or in an atexit() "
                "handler that is set up after the group was made");
}

void Health::check_no_fault() const {
  check_open();
  failure_.check_fault();
}

bool Health::has_fault() const noexcept { return failure_.woken(); }

void Health::abort(const Error& cause) noexcept { bootstrap::abort(control_, failure_, cause); }

void Health::give_up(const char* function, const Error& why) noexcept {
  bootstrap::give_up(control_, failure_, function, why, gave_up_);
}

void Health::fail(const Error& error) { bootstrap::fail(control_, failure_, error); }

bool Health::fail_alone(const Error& error) noexcept {
  if (!failure_.broken() || failure_.woken()) return false;
  if (error.status() != DDP_ERROR_ABORTED) failure_.set(error);
  return true;
}

void Health::exit(bootstrap::Leaving how) noexcept { control_.leave(how); }

void Health::leave() noexcept {
  control_.leave();
  failure_.set(destroyed_);  // ends waits in other threads
  failure_.quiesce();
}

}  // namespace ddp::group
