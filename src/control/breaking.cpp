// SPDX-License-Identifier: Apache-2.0
#include "control/breaking.hpp"

#include <optional>
#include <string>

#include "control/texts.hpp"
#include "core/attempt.hpp"

namespace ddp::bootstrap {

void abort(Control& control, Failure& failure, const Error& cause) noexcept {
  control.abort(cause);
  failure.set(cause);
}

void abort_settled(Control& control, Failure& failure, const Error& cause) {
  control.abort(cause);
  const std::optional<Error> of_all = control.settle();
  failure.set(of_all.has_value() ? *of_all : cause);
}

Error gave_up(const Control& control) { return texts::gave_up(control.member(control.rank()), nullptr, Error().text()); }

void give_up(Control& control, Failure& failure, const char* function, const Error& why, const Error& spare) noexcept {
  if (control.size() == 1 || failure.broken()) return;
  const auto tell = [&] {
    const Error told = texts::gave_up(control.member(control.rank()), function, why.text());
    abort_settled(control, failure,
                  Error(breaks_group(why.status()) ? why.status() : DDP_ERROR_PEER_FAILED, told.text())
                      .with({.ranks = {control.rank()}}));
  };
  if (try_to(tell)) abort_settled(control, failure, spare);
}

void fail(Control& control, Failure& failure, const Error& error) {
  const bool differs = error.status() == DDP_ERROR_MISMATCH;  // and the ranks cannot leave the exchange together
  if (!breaks_group(error.status()) && !differs) return;
  const Error cause = differs ? error.retold(DDP_ERROR_DIFFERENT_CALLS, error.text()) : error;
  abort_settled(control, failure, cause);  // also: the others know before the program may end for it
  failure.check();                         // the first cause, whichever it was
}

}  // namespace ddp::bootstrap
