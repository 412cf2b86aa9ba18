#include "comm/rail/module.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "base/error.hpp"

#ifndef DDP_MODULE_DIR
#define DDP_MODULE_DIR "/usr/lib/ddp"
#endif

namespace ddp {
namespace {

constexpr const char* kGlooFile = "libddp_gloo.so";

std::string folder_of_this_library() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&open_rail_module), &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::string join(const std::vector<std::string>& texts) {
  std::string all;
  for (const auto& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
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

const ddp_rail_table& open_rail_module(const std::vector<std::string>& candidates) {
  for (const std::string& file : candidates) {
    if (access(file.c_str(), F_OK) != 0) continue;
    void* module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr)
      throw make_error(DDP_ERROR_NOT_SUPPORTED, "the Gloo module cannot be loaded: %s; install Gloo (Debian: libgloo0) or the module "
                       "that was built for this system", dlerror());
    const auto query = reinterpret_cast<ddp_rail_query_fn>(dlsym(module, DDP_RAIL_QUERY_NAME));
    const ddp_rail_table* table = query != nullptr ? query(DDP_RAIL_VERSION) : nullptr;
    if (table == nullptr)
      throw make_error(DDP_ERROR_NOT_SUPPORTED, "the Gloo module %s belongs to another version of libddp; install both from the same "
                       "release", file.c_str());
    return *table;
  }
  throw make_error(DDP_ERROR_NOT_SUPPORTED, "training between hosts needs the Gloo module, which is not installed (searched: %s); "
                   "install it, or set DDP_MODULE_PATH to its folder", join(candidates).c_str());
}

const ddp_rail_table& load_gloo_module() {
  return open_rail_module(module_candidates(kGlooFile, secure_getenv("DDP_MODULE_PATH")));
}

}  // namespace ddp
