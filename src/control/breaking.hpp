// SPDX-License-Identifier: Apache-2.0
// How a rank breaks its group: the cause goes to all ranks over the control plane, and to the waiting threads of this one.
// Threads: any.
// Tested by process/first_cause_test.cpp, gpu_host/failure_test.cpp and scarce/collectives_test.cpp.
#pragma once

#include "bootstrap/failure.hpp"
#include "control/control.hpp"
#include "core/error.hpp"

namespace ddp::bootstrap {

void abort(Control& control, Failure& failure, const Error& cause) noexcept;

/// The same with the cause that the ranks agree on, which may be another one: what failed here may be the effect of a
/// failure of another rank, of which this one has not heard yet. Waits for it, limits::kFirstCauseMs at most.
void abort_settled(Control& control, Failure& failure, const Error& cause);

/// This rank cannot continue: the others get its rank and reason, and the call if `function` is not NULL. Has no effect in a
/// group of one, or in a broken one. `spare`, from gave_up(), is the cause where there is no memory for a text.
void give_up(Control& control, Failure& failure, const char* function, const Error& why, const Error& spare) noexcept;
[[nodiscard]] Error gave_up(const Control& control);

/// An error of an exchange: breaks the group on all ranks if it is of that kind, and then throws the first cause.
void fail(Control& control, Failure& failure, const Error& error);

}  // namespace ddp::bootstrap
