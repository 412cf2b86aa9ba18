// SPDX-License-Identifier: Apache-2.0
// Tested by process/ddprun_test.sh.
#include "ddprun/program.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "ddprun/launch.hpp"

namespace ddp::ddprun {
namespace {

bool is_file(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool is_executable(const std::string& path) { return is_file(path) && access(path.c_str(), X_OK) == 0; }

/// What to do with a file that cannot be run as it is.
std::string how_to_run(std::string_view name, const std::string& path) {
  constexpr std::pair<std::string_view, std::string_view> kRunners[] = {{".py", "python3"}, {".jl", "julia"}};
  constexpr std::pair<std::string_view, std::string_view> kSources[] = {
      {".c", "C"},   {".cc", "C++"},  {".cpp", "C++"},     {".cxx", "C++"},   {".cu", "CUDA"},
      {".go", "Go"}, {".rs", "Rust"}, {".f90", "Fortran"}, {".f", "Fortran"}, {".F90", "Fortran"}};
  for (const auto& [ending, runner] : kRunners)
    if (name.ends_with(ending)) return "write " + std::string(runner) + " " + path;
  for (const auto& [ending, language] : kSources)
    if (name.ends_with(ending)) return "it is " + std::string(language) + " source; compile it first";
  return "chmod +x " + path + " makes it so";
}

/// Or "".
std::string search_path(const std::string& name) {
  const char* path = getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  for (;;) {
    const auto colon = rest.find(':');
    const std::string folder(rest.substr(0, colon));
    std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (is_executable(candidate)) return candidate;
    if (colon == std::string_view::npos) return "";
    rest.remove_prefix(colon + 1);
  }
}

}  // namespace

bool is_in_path(const std::string& name) { return !search_path(name).empty(); }

std::string find_program(const std::string& name, const std::string& folder) {
  if (!folder.empty() && !is_folder(folder)) throw ExitError{kExitUsage, "--chdir: there is no folder " + folder + "."};
  const bool is_beside = !folder.empty() && !name.starts_with('/');
  const std::string path = is_beside ? std::filesystem::absolute(folder).string() + "/" + name : name;
  if (name.find('/') != std::string::npos) {
    if (is_executable(path)) return path;
    if (is_folder(path)) throw ExitError{kExitNotExecutable, path + " is a folder, not a program."};
    if (!is_file(path)) throw ExitError{kExitNotFound, "The program " + path + " was not found."};
    throw ExitError{kExitNotExecutable, "The file " + path + " is not executable: " + how_to_run(name, name) + "."};
  }
  const std::string found = search_path(name);
  if (!found.empty()) return is_beside ? std::filesystem::absolute(found).string() : found;
  std::string text = "The program " + name + " was not found in PATH";
  if (is_executable(path)) throw ExitError{kExitNotFound, text + "; did you mean ./" + name + "?"};
  if (is_folder(path)) text += "; " + name + " is a folder";
  if (is_file(path)) text += "; the file " + name + " is not executable: " + how_to_run(name, "./" + name);
  throw ExitError{kExitNotFound, text + "."};
}

}  // namespace ddp::ddprun
