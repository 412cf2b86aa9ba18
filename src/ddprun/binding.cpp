// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/binding_test.cpp and process/ddprun_test.sh.
#include "ddprun/binding.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <sstream>

#include "ddprun/machine.hpp"

namespace ddp::ddprun {
namespace {

constexpr int32_t kMostProcessors = 65'536;

bool read_number(std::string_view text, int32_t& number) {
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  return !text.empty() && failure == std::errc() && stop == end && number >= 0 && number < kMostProcessors;
}

Processors only(const Processors& wanted, const Processors& usable) {
  Processors both;
  std::set_intersection(wanted.begin(), wanted.end(), usable.begin(), usable.end(), std::back_inserter(both));
  return both;
}

/// Part `at` of `parts` equal runs of the list, or, where there are fewer entries than parts, the one entry that is its.
Processors share_of(const std::vector<Processors>& list, size_t at, size_t parts) {
  const size_t begin = at * list.size() / parts, end = std::max((at + 1) * list.size() / parts, begin + 1);
  Processors share;
  for (size_t i = begin; i < end; ++i) share.insert(share.end(), list[i].begin(), list[i].end());
  std::sort(share.begin(), share.end());
  return share;
}

}  // namespace

Processors parse_processors(const std::string& text) {
  Processors found;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    int32_t first = 0, last = 0;
    if (!read_number(std::string_view(part).substr(0, dash), first)) return {};
    last = first;
    if (dash != std::string::npos && !read_number(std::string_view(part).substr(dash + 1), last)) return {};
    for (int32_t number = first; number <= last; ++number) found.push_back(number);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::string to_text(const Processors& processors) {
  std::string text;
  for (size_t begin = 0, end = 0; begin < processors.size(); begin = end) {
    for (end = begin + 1; end < processors.size() && processors[end] == processors[end - 1] + 1;) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(processors[begin]);
    if (end > begin + 1) text += "-" + std::to_string(processors[end - 1]);
  }
  return text;
}

Processors usable_processors() {
  std::vector<cpu_set_t> mask(kMostProcessors / CPU_SETSIZE);
  const size_t bytes = mask.size() * sizeof(cpu_set_t);
  Processors found;
  if (sched_getaffinity(0, bytes, mask.data()) != 0) return found;
  for (int32_t number = 0; number < kMostProcessors; ++number)
    if (CPU_ISSET_S(static_cast<size_t>(number), bytes, mask.data())) found.push_back(number);
  return found;
}

Topology read_topology(const std::string& root, const Processors& usable) {
  Topology topology;
  for (const int32_t node : parse_processors(first_line(root + "/node/online"))) {
    Processors there = only(parse_processors(first_line(root + "/node/node" + std::to_string(node) + "/cpulist")), usable);
    if (!there.empty()) topology.nodes.push_back(std::move(there));
  }
  size_t known = 0;
  for (const Processors& node : topology.nodes) known += node.size();
  if (known != usable.size()) topology.nodes = {usable};
  for (const Processors& node : topology.nodes) {
    std::map<int32_t, Processors> cores;  // by their first thread
    for (const int32_t number : node) {
      const std::string path = root + "/cpu/cpu" + std::to_string(number) + "/topology/thread_siblings_list";
      const Processors siblings = only(parse_processors(first_line(path)), node);
      const bool is_known = std::binary_search(siblings.begin(), siblings.end(), number);
      cores[is_known ? siblings.front() : number].push_back(number);
    }
    for (const auto& [first, threads] : cores) topology.cores.push_back(threads);
  }
  return topology;
}

std::vector<Processors> place_ranks(const Topology& topology, int32_t ranks, Bind bind) {
  const bool is_auto = bind == Bind::kAuto;
  if (is_auto) bind = topology.nodes.size() > 1 && ranks > 1 ? Bind::kNuma : Bind::kNone;
  const std::vector<Processors>& list = bind == Bind::kCore ? topology.cores : topology.nodes;
  if (bind == Bind::kNone || list.empty() || list.front().empty()) return {};
  std::vector<Processors> placed;
  placed.reserve(static_cast<size_t>(ranks));
  for (int32_t rank = 0; rank < ranks; ++rank)
    placed.push_back(share_of(list, static_cast<size_t>(rank), static_cast<size_t>(ranks)));
  return placed;
}

int32_t threads_of(const std::vector<Processors>& placed) {
  int32_t least = kMostProcessors;
  for (const Processors& mine : placed) {
    const auto sharers = static_cast<int32_t>(std::count(placed.begin(), placed.end(), mine));
    least = std::min(least, static_cast<int32_t>(mine.size()) / sharers);
  }
  return std::max(least, 1);
}

}  // namespace ddp::ddprun
