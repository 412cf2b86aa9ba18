// SPDX-License-Identifier: Apache-2.0
#include "group/health.hpp"

#include <optional>

#include "bootstrap/failure.hpp"
#include "control/control.hpp"
#include "control/texts.hpp"
#include "core/attempt.hpp"

namespace ddp::group {

Health::Health(bootstrap::Control& control, bootstrap::Failure& failure)
    : control_(control),
      failure_(failure),
      gave_up_(bootstrap::texts::gave_up(control.member(control.rank()), nullptr, Error().text())) {}

void Health::check_usable() const {
  check_no_fault();
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
  if (failure_.woken()) failure_.check();
}

bool Health::has_fault() const noexcept { return failure_.woken(); }

void Health::abort(const Error& cause) noexcept {
  control_.abort(cause);
  failure_.set(cause);
}

void Health::give_up(const char* function, const Error& why) noexcept {
  if (control_.size() == 1 || failure_.broken()) return;
  const auto tell = [&] {
    const Error told = bootstrap::texts::gave_up(control_.member(control_.rank()), function, why.text());
    abort(Error(breaks_group(why.status()) ? why.status() : DDP_ERROR_PEER_FAILED, told.text())
              .with({.ranks = {control_.rank()}}));
  };
  if (try_to(tell)) abort(gave_up_);
}

void Health::fail(const Error& error) {
  const bool differs = error.status() == DDP_ERROR_MISMATCH;  // and the ranks cannot leave the exchange together
  if (!breaks_group(error.status()) && !differs) return;
  const Error cause = differs ? error.retold(DDP_ERROR_DIFFERENT_CALLS, error.text()) : error;
  control_.abort(cause);
  const std::optional<Error> of_all = control_.settle();  // also: the others know before the program may end for it
  failure_.set(of_all.has_value() ? *of_all : cause);
  failure_.check();  // the first cause, whichever it was
}

void Health::exit(bootstrap::Leaving how) noexcept { control_.leave(how); }

void Health::leave() noexcept {
  control_.leave();
  failure_.set(destroyed_);  // ends waits in other threads
  failure_.quiesce();
}

}  // namespace ddp::group
