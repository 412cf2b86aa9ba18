// SPDX-License-Identifier: Apache-2.0
#include "os/module_files.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "os/at_exit.hpp"

#ifndef DDP_MODULE_DIR
#define DDP_MODULE_DIR "/usr/lib/ddp"
#endif

namespace ddp::os {
namespace {

std::string folder_of_this_library() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&listed), &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

/// The program names no loader (`cc -static`): the first object that is listed is the program itself.
bool has_no_loader() {
  const auto look = [](dl_phdr_info* info, size_t, void* named) {
    for (int i = 0; i < info->dlpi_phnum; i++)
      if (info->dlpi_phdr[i].p_type == PT_INTERP) *static_cast<bool*>(named) = true;
    return 1;
  };
  bool named = false;
  dl_iterate_phdr(look, &named);
  return !named;
}

}  // namespace

std::vector<std::string> module_candidates(const char* file_name, const char* module_path) {
  std::vector<std::string> files;
  std::string_view rest = module_path != nullptr ? module_path : "";
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    if (!folder.empty()) files.push_back(std::string(folder) + "/" + file_name);
  }
  const std::string own = folder_of_this_library();
  if (!own.empty()) {
    files.push_back(own + "/" + file_name);
    files.push_back(own + "/ddp/" + file_name);
  }
  files.push_back(std::string(DDP_MODULE_DIR) + "/" + file_name);
  return files;
}

std::vector<std::string> module_candidates(const char* file_name) {
  return module_candidates(file_name, secure_getenv("DDP_MODULE_PATH"));
}

std::string listed(const std::vector<std::string>& files) {
  std::string all;
  for (const auto& file : files) all += (all.empty() ? "" : ", ") + file;
  return all;
}

OpenedModule open_module(const char* module, const std::vector<std::string>& files, const char* advice) {
  if (has_no_loader())
    throw make_error(DDP_ERROR_NOT_SUPPORTED, "%s cannot be loaded: this program is linked with -static; %s", module,
                     "link it without (libddp.a may stay)");
  for (const std::string& file : files) {
    if (access(file.c_str(), F_OK) != 0) continue;
    void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw not_loaded(module, dlerror(), advice);
    be_first_at_exit();
    return {handle, file};
  }
  return {};
}

Error not_loaded(const char* module, const char* said, const char* advice) {
  const std::string_view text = said != nullptr ? said : "";
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  if (has("cannot allocate") || has("cannot create shared object descriptor") || has(std::strerror(ENOMEM)) ||
      has(std::strerror(EMFILE)) || has(std::strerror(ENFILE)))
    return make_error(DDP_ERROR_OUT_OF_MEMORY, "%s cannot be loaded: %s", module, said);
  return make_error(DDP_ERROR_NOT_SUPPORTED, "%s cannot be loaded: %s; %s", module, said, advice);
}

}  // namespace ddp::os
