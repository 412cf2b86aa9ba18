// SPDX-License-Identifier: Apache-2.0
// Opens libnccl.so.2 and finds its functions.
//
// A path that is given is the only one tried. Otherwise a copy that the process has already (a framework's: two different
// copies work, but share nothing), then the loader's search. A library that was opened is never closed: its threads may run
// in it. NCCL before kOldest is refused. Any thread.
// Tested by unit/cuda/nccl_test.cpp.
#pragma once

#include <string>

#include "modules/cuda/nccl_api.hpp"

namespace ddp::cuda::nccl {

struct Library {
  Functions functions{};
  int version = 0;
  std::string path;  // of the file that was opened
};

/// Returns an empty text, or one line with the attempts. `path` may be NULL or empty.
std::string open_library(const char* path, Library& out);
/// As open_library, but only the copy that the process has already.
std::string find_library(Library& out);

}  // namespace ddp::cuda::nccl
