// SPDX-License-Identifier: Apache-2.0
#include "discovery/nodelist.hpp"

namespace ddp::bootstrap {

std::string first_host(std::string_view nodelist) {
  // Each bracket holds ranges; the first host takes the first number of each, with its leading zeros: rack[2-3]n[01-04] ->
  // rack2n01.
  std::string host;
  size_t i = 0;
  while (i < nodelist.size() && nodelist[i] != ',') {
    if (nodelist[i] != '[') {
      host += nodelist[i++];
      continue;
    }
    const size_t close = nodelist.find(']', i);
    if (close == std::string_view::npos) return "";
    const std::string_view inside = nodelist.substr(i + 1, close - i - 1);
    const std::string_view first = inside.substr(0, inside.find_first_of(",-"));
    if (first.empty() || first.find('[') != std::string_view::npos) return "";
    host += first;
    i = close + 1;
  }
  return host;
}

}  // namespace ddp::bootstrap
