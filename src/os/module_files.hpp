// SPDX-License-Identifier: Apache-2.0
// Where the parts of libddp that are opened at run time (libddp_gloo.so, libddp_cuda.so) are looked for.
//
// Searched: the folders in DDP_MODULE_PATH (separated by ':'), the folder of libddp and its subfolder "ddp", the folder of
// installation.
// Threads: any.
// Tested by unit/os/module_files_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "core/error.hpp"

namespace ddp::os {

/// The files that are tried, in order. `module_path` may be NULL.
[[nodiscard]] std::vector<std::string> module_candidates(const char* file_name, const char* module_path);

/// As above, with DDP_MODULE_PATH (ignored in a process with raised privileges).
[[nodiscard]] std::vector<std::string> module_candidates(const char* file_name);

/// "a, b, c", for an error.
[[nodiscard]] std::string listed(const std::vector<std::string>& files);

struct OpenedModule {
  void* handle = nullptr;
  std::string file;
};

/// The first of the files that exists, opened for good; empty if none does. Throws `not_loaded` if the system does not load
/// it, and NOT_SUPPORTED in a program that is linked statically as a whole: it would get a second C library.
[[nodiscard]] OpenedModule open_module(const char* module, const std::vector<std::string>& files, const char* advice);

/// The error of a module that the system does not load, with its message (dlerror): OUT_OF_MEMORY if it had no memory or
/// descriptors, else NOT_SUPPORTED with the advice.
[[nodiscard]] Error not_loaded(const char* module, const char* said, const char* advice);

}  // namespace ddp::os
