// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/hosts_test.cpp and process/ddprun_hosts_test.sh.
#include "ddprun/hosts.hpp"

#include <algorithm>
#include <sstream>

#include "ddprun/foreign.hpp"
#include "ddprun/launch.hpp"

namespace ddp::ddprun {
namespace {

constexpr int32_t kMostRanksOfAHost = 4096;

int32_t to_ranks(const std::string& text, const std::string& where) {
  const bool digits =
      !text.empty() && text.size() < 6 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  const int32_t ranks = digits ? std::stoi(text) : 0;
  if (ranks < 1 || ranks > kMostRanksOfAHost)
    refuse(where + " needs a number of ranks from 1 to " + std::to_string(kMostRanksOfAHost) + ", not \"" + text + "\".");
  return ranks;
}

// The last colon begins the number, but not one inside an IPv6 address, which is in brackets.
Host parse_host(const std::string& text, int32_t ranks, const std::string& where) {
  const size_t bracket = text.rfind(']'), colon = text.rfind(':');
  const bool has_number = colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  Host host{text.substr(0, has_number ? colon : std::string::npos), ranks};
  if (host.name.find(':') != std::string::npos && host.name.find('[') == std::string::npos)
    refuse(where + ": write an IPv6 address in brackets, as [fd00::1]:4, not " + text + ".");
  const bool has_spaces =
      std::any_of(host.name.begin(), host.name.end(), [](unsigned char c) { return c <= ' ' || c == 127; });
  const std::string address = address_of(host);
  if (address.empty() || address.front() == '-' || host.name.front() == '-' || has_spaces)  // ssh would take an option
    refuse(where + " needs hosts such as a:4,b:4, not \"" + text + "\".");
  if (has_number) host.ranks = to_ranks(text.substr(colon + 1), where);
  if (host.ranks < 1)
    refuse(where + ": how many ranks on " + host.name + "? Write " + host.name + ":4, or -n 4 for all hosts.");
  return host;
}

void refuse_twice(const std::vector<Host>& hosts, const std::string& where) {
  for (size_t i = 0; i < hosts.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (hosts[i].name == hosts[j].name) refuse(where + " has " + hosts[i].name + " twice; add its numbers.");
}

/// Asks nothing, and notices within half of the silence that a connection is dead.
std::vector<std::string> ssh_settings(double silence_s) {
  const int interval = std::clamp(static_cast<int>(silence_s / 6), 1, 60);
  return {"BatchMode=yes", "ConnectTimeout=30", "ServerAliveInterval=" + std::to_string(interval), "ServerAliveCountMax=3"};
}

std::string seconds_of(double seconds) {
  char text[32];
  snprintf(text, sizeof text, "%g", seconds);
  return text;
}

}  // namespace

std::vector<Host> parse_hosts(const std::string& text, int32_t ranks) {
  std::vector<Host> hosts;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) hosts.push_back(parse_host(part, ranks, "--hosts"));
  if (hosts.empty()) refuse("--hosts needs hosts such as a:4,b:4.");
  refuse_twice(hosts, "--hosts");
  return hosts;
}

std::vector<Host> parse_hostfile(const std::string& text, const std::string& name, int32_t ranks) {
  std::vector<Host> hosts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host, slots, rest;
    if (!(words >> host)) continue;
    if (words >> slots && (!slots.starts_with("slots=") || words >> rest))
      refuse("--hostfile " + name + ": a line is a host, as a:4 or a slots=4, not \"" + line + "\".");
    if (!slots.empty()) host.append(":").append(slots, 6);
    hosts.push_back(parse_host(host, ranks, "--hostfile " + name));
  }
  if (hosts.empty()) refuse("--hostfile " + name + " names no host.");
  refuse_twice(hosts, "--hostfile " + name);
  return hosts;
}

std::vector<int32_t> parse_placement(const std::string& text) {
  std::vector<int32_t> ranks;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) ranks.push_back(to_ranks(part, "--placement"));
  return ranks;
}

std::string address_of(const Host& host) {
  const size_t at = host.name.rfind('@');
  std::string address = at == std::string::npos ? host.name : host.name.substr(at + 1);
  std::erase_if(address, [](char c) { return c == '[' || c == ']'; });
  return address;
}

std::string shell_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::vector<std::string> remote_command(const Options& options, int32_t node, const std::string& folder,
                                        const std::string& ddprun) {
  const Host& host = options.machines.hosts[static_cast<size_t>(node)];
  std::vector<std::string> command;
  std::istringstream words(options.machines.ssh);
  for (std::string word; words >> word;) command.push_back(word);
  if (command.empty()) command.emplace_back("ssh");
  if (command.front() == "ssh" || command.front().ends_with("/ssh")) {
    for (const std::string& setting : ssh_settings(options.machines.silence_s))
      command.insert(command.end(), {"-o", setting});
    command.emplace_back("--");
  }
  const size_t at = host.name.rfind('@');
  command.push_back((at == std::string::npos ? "" : host.name.substr(0, at + 1)) + address_of(host));

  std::string placement;
  for (const Host& each : options.machines.hosts) placement += (placement.empty() ? "" : ",") + std::to_string(each.ranks);
  std::vector<std::string> theirs{ddprun,         "--led",
                                  "--node-rank",  std::to_string(node),
                                  "--placement",  placement,
                                  "--rendezvous", options.machines.rendezvous,
                                  "--grace",      seconds_of(options.limits.grace_s)};
  if (options.machines.silence_s != Machines().silence_s)
    theirs.insert(theirs.end(), {"--silence", seconds_of(options.machines.silence_s)});
  if (options.bind != Bind::kAuto)
    theirs.insert(theirs.end(), {"--bind", options.bind == Bind::kCore   ? "core"
                                           : options.bind == Bind::kNuma ? "numa"
                                                                         : "none"});
  if (options.leads_ranks()) theirs.emplace_back("--obey");
  if (!options.machines.show.empty()) theirs.insert(theirs.end(), {"--show", options.machines.show});
  if (!options.output_dir.empty()) theirs.insert(theirs.end(), {"--output-dir", options.output_dir});
  if (!options.prefix) theirs.emplace_back("--no-prefix");
  if (!options.terminals) theirs.emplace_back("--no-pty");
  if (options.telling.verbose) theirs.emplace_back("--verbose");
  if (options.watches()) theirs.emplace_back("--watched");
  if (options.traces()) theirs.emplace_back("--traced");
  theirs.emplace_back("--");
  theirs.insert(theirs.end(), options.command.begin(), options.command.end());

  const std::string no_folder =
      "ddprun: host " + host.name + " cannot enter the folder " + folder +
      (options.machines.folder.empty() ? ", from which the job was started; or give --chdir FOLDER" : "");
  const std::string no_ddprun = "ddprun: ddprun is not at " + ddprun + " on host " + host.name +
                                ": install libddp there at the same path, or give --ddprun PATH";
  std::string script = "cd " + shell_word(folder) + " || { echo " + shell_word(no_folder) +
                       " >&2; exit 125; }; command -v " + shell_word(ddprun) + " >/dev/null || { echo " +
                       shell_word(no_ddprun) + " >&2; exit 127; }; exec";
  for (const std::string& word : theirs) script += " " + shell_word(word);
  command.push_back("exec sh -c " + shell_word(script));  // whatever shell the user has there
  return command;
}

}  // namespace ddp::ddprun
