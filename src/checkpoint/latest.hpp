// SPDX-License-Identifier: Apache-2.0
// Which file of a folder is loaded: the newest valid one. Newer files that are not valid are reported, never skipped
// silently. The folder may change meanwhile, because a job saves to it: a listed file that has vanished was removed as old,
// so there is a newer one, and the folder is scanned again. Cost: one read of each file that is looked at. Threads: as a
// load's. Tested by conformance/latest_test.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/source.hpp"
#include "checkpoint/verify.hpp"

namespace ddp::checkpoint {

/// What a load reads.
struct Picked {
  Source source;
  Opened opened;
  std::string path;                  // "": a stream
  std::vector<std::string> skipped;  // newer files, and why
};

/// verify(), whose errors name the source.
using VerifyFn = std::function<Opened(Source& source, bool only_own)>;

/// Throws NO_CHECKPOINT if the folder has no checkpoint, IO if none is valid, and errors of `verify` other than IO.
[[nodiscard]] Picked pick_latest(const std::string& folder, const VerifyFn& verify);

}  // namespace ddp::checkpoint
