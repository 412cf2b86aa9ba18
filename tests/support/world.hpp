// SPDX-License-Identifier: Apache-2.0
// What tests about whole groups and models share, in one header: it is precompiled for them (tests/CMakeLists.txt).
#pragma once

#include "checkpoint/state.hpp"
#include "group/group.hpp"
#include "model/model.hpp"
#include "optim/adam.hpp"
#include "optim/sgd.hpp"
#include "support/cmocka.hpp"
#include "support/group_paths.hpp"
#include "support/on_processes.hpp"
#include "support/training.hpp"
