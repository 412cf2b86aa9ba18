// SPDX-License-Identifier: Apache-2.0
// How a group is created: Group::create is a list of steps (create.cpp), of which each has one concern. Here is what a group
// that is formed in another way needs too.
// Tested by capi/group_test.c and capi/recovery_test.cpp.
#pragma once

#include <memory>

#include "ddp/group.h"
#include "discovery/join_place.hpp"

namespace ddp::group {

class Survival;

/// What a group needs to go on after ranks have died; NULL unless its options ask for it. `threads`: its ranks are threads
/// of one process. `place`: where new ranks find the group. Throws NOT_SUPPORTED.
[[nodiscard]] std::shared_ptr<Survival> make_survival(const ddp_group_options& options, bool threads,
                                                      std::unique_ptr<bootstrap::JoinPlace> place);

}  // namespace ddp::group
