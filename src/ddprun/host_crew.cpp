// SPDX-License-Identifier: Apache-2.0
// Tested by process/ddprun_hosts_test.sh and process/ddprun_sshd_restart_test.sh.
#include "ddprun/host_crew.hpp"

#include <algorithm>

namespace ddp::ddprun {

HostCrew::HostCrew(const Machines& machines, const std::string& mark, Leads& leads, Relay& relay, LocalCrew& hosts,
                   std::function<void(int32_t, const Report&)> take_seen)
    : leads_(leads), relay_(relay), hosts_(hosts), take_seen_(std::move(take_seen)) {
  for (size_t host = 0; host < machines.hosts.size(); ++host) {
    names_.push_back(machines.hosts[host].name);
    ranks_.insert(ranks_.end(), static_cast<size_t>(machines.hosts[host].ranks), State{host});
  }
  relay_.take_reports(mark, [this](int32_t host, std::string_view text) {
    if (const auto report = read_report(text); report.has_value()) take(host, *report);
  });
}

void HostCrew::start(const std::vector<int32_t>& ranks, Start how) {
  for (size_t host = 0; host < names_.size(); ++host) {
    std::vector<int32_t> there;
    for (const int32_t rank : ranks)
      if (ranks_[static_cast<size_t>(rank)].host == host) there.push_back(rank);
    if (there.empty()) continue;
    if (!hosts_.running(static_cast<int32_t>(host))) {
      hosts_.start({static_cast<int32_t>(host)}, {});
      leads_.started();
      for (const auto& [name, bytes] : files_) leads_.give(host, {Order::Kind::kFile, 0, 0, {}, name, bytes});
    }
    for (const auto& [first, last] : ranges_of(there)) leads_.give(host, {Order::Kind::kStart, first, last, how});
    for (const int32_t rank : there) ranks_[static_cast<size_t>(rank)] = {host, true};
  }
}

std::vector<Outcome> HostCrew::collect() {
  for (const Outcome& host : hosts_.collect()) {
    relay_.drain(host.rank);  // it may have reported ends before its own
    lose(host.rank, host.status);
  }
  return std::exchange(ends_, {});
}

void HostCrew::take(int32_t host, const Report& report) {
  if (report.kind == Report::Kind::kLook || report.kind == Report::Kind::kPiece) return take_seen_(host, report);
  if (report.kind == Report::Kind::kFile) {
    files_[report.name] = report.bytes;
    for (size_t other = 0; other < names_.size(); ++other)
      if (other != static_cast<size_t>(host)) leads_.give(other, {Order::Kind::kFile, 0, 0, {}, report.name, report.bytes});
    return;
  }
  if (static_cast<size_t>(report.rank) >= ranks_.size()) return;
  State& rank = ranks_[static_cast<size_t>(report.rank)];
  if (rank.host != static_cast<size_t>(host) || !rank.runs) return;
  if (report.kind == Report::Kind::kLine) return rank.last_lines.push_back(report.bytes);
  rank.runs = false;
  Outcome outcome;
  outcome.rank = report.rank;
  outcome.status = report.status;
  outcome.peak_kib = report.peak_kib;
  ends_.push_back(outcome);
}

void HostCrew::lose(int32_t host, int status) {
  leads_.close(static_cast<size_t>(host));
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].host != static_cast<size_t>(host) || !ranks_[rank].runs) continue;
    ranks_[rank].runs = false;
    Outcome outcome;
    outcome.rank = static_cast<int32_t>(rank);
    outcome.status = status != 0 ? status : 1 << 8;  // it has not reported how its ranks ended
    outcome.lost = names_[static_cast<size_t>(host)];
    ends_.push_back(outcome);
  }
}

std::deque<std::string> HostCrew::last_lines(int32_t rank) const { return ranks_[static_cast<size_t>(rank)].last_lines; }

}  // namespace ddp::ddprun
