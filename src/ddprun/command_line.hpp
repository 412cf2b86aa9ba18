// SPDX-License-Identifier: Apache-2.0
// The options of ddprun: their names, their texts in --help, and where their values are kept.
#pragma once

#include <cstdint>
#include <string>

#include "ddprun/options.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace ddp::ddprun {

/// What is given as text and becomes something else.
struct Words {
  std::string hosts, hostfile, placement, bind;
  int32_t ranks = 0;  // 0: -n is not given
  int32_t nodes = 1;
  int32_t node = -1;  // -1: not given
  bool check = false, json = false, quiet = false;
};

void add_options(CLI::App& app, Options& options, Words& words);

}  // namespace ddp::ddprun
