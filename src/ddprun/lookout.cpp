// SPDX-License-Identifier: Apache-2.0
// A page belongs to one process: that of a rank which was started again begins at 0. Waits for places of a group are counted
// only between two looks at the same group, because after a recovery its places are other ranks'.
// Tested by unit/ddprun/lookout_test.cpp and process/ddprun_report_test.sh.
#include "ddprun/lookout.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace ddp::ddprun {
namespace {

Counts counts_of(const trace::LivePage& page) {
  Counts counts;
  counts.passes = page.passes.count;
  counts.steps = page.work.steps;
  counts.backward_ns = page.passes.backward_ns;
  counts.comm_ns = page.passes.comm_ns;
  counts.exposed_ns = page.passes.exposed_ns;
  counts.sent_bytes = page.passes.sent_bytes;
  counts.step_ns = page.work.step_ns;
  counts.saves = page.work.saves;
  counts.save_ns = page.work.save_ns;
  counts.voids = page.passes.voids;
  counts.recoveries = page.place.recoveries;
  return counts;
}

/// Since the page was as `before`; NULL: since it was made.
std::vector<ProgramValue> logged_since(const trace::LiveNumbers* before, const trace::LiveNumbers& now) {
  std::vector<ProgramValue> program;
  for (size_t i = 0; i < now.program.size(); ++i) {  // names stay in their places
    const trace::ProgramNumber& number = now.program[i];
    const int64_t known = before != nullptr && i < before->program.size() ? before->program[i].times : 0;
    if (number.times > known) program.push_back({number.name, number.value, number.times - known});
  }
  return program;
}

bool same_process(const trace::LivePage& a, const trace::LivePage& b) {
  return a.made.pid == b.made.pid && a.made.at_ns == b.made.at_ns;
}

}  // namespace

int64_t resident_kib(pid_t pid) {
  if (pid <= 0) return 0;
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  int64_t whole = 0, resident = 0;
  return file >> whole >> resident ? resident * (sysconf(_SC_PAGESIZE) / 1024) : 0;
}

Look Lookout::look(const std::vector<Watched>& ranks) {
  Look look;
  for (const Watched& rank : ranks) look.ranks.push_back(look_at(rank, look));
  return look;
}

RankLook Lookout::look_at(const Watched& rank, Look& look) {
  RankLook seen;
  seen.rank = rank.rank;
  seen.resident_kib = resident_kib(rank.pid);
  seen.cores = cores_;
  std::optional<trace::LiveNumbers> page = trace::read_live(trace::live_path(folder_, rank.rank));
  if (!page.has_value()) return seen;
  seen.transports = page->place.transports;
  const auto found = last_.find(rank.rank);
  const bool goes_on = found != last_.end() && same_process(found->second, *page);
  seen.since = counts_of(*page) - (goes_on ? counts_of(found->second) : Counts());
  seen.program = logged_since(goes_on ? &found->second : nullptr, *page);
  seen.group = page->group;
  seen.buckets = {page->passes.gradient_bytes, page->passes.buckets, page->passes.largest_bucket,
                  page->passes.smallest_bucket};
  const int64_t resident = resident_kib(page->made.pid);  // a shell that was started has started the program
  if (resident > 0) {
    seen.resident_kib = resident;
    if (page->place.held == 1) seen.place = page->place.rank;
  }
  if (!goes_on || found->second.place.generation == page->place.generation) {
    look.awaited_ns.resize(std::max(look.awaited_ns.size(), page->waited_ns.size()));
    for (size_t place = 0; place < page->waited_ns.size(); ++place) {
      const bool known = goes_on && place < found->second.waited_ns.size();
      const int64_t waited = page->waited_ns[place] - (known ? found->second.waited_ns[place] : 0);
      if (static_cast<int32_t>(place) == page->place.rank || waited <= 0) continue;
      look.awaited_ns[place] += waited;
      seen.waited_ns += waited;
    }
  }
  last_[rank.rank] = std::move(*page);
  return seen;
}

}  // namespace ddp::ddprun
