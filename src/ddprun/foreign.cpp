// SPDX-License-Identifier: Apache-2.0
// Other launchers: mpirun (Open MPI, MPICH), torchrun, accelerate, srun.
// Tested by process/ddprun_test.sh.
#include "ddprun/foreign.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>

#include "core/closest.hpp"
#include "ddprun/launch.hpp"
#include "ddprun/program.hpp"

namespace ddp::ddprun {
namespace {

struct Foreign {
  std::string_view name;  // with '-' between words
  std::string_view answer;
};

constexpr std::string_view kRanks = "write -n N";
constexpr std::string_view kPort = "write --port PORT; for several machines --rendezvous HOST:PORT";
constexpr std::string_view kMeet = "write --rendezvous HOST:PORT, the same on every machine";
constexpr std::string_view kNodes = "write --nnodes N";
constexpr std::string_view kNode = "write --node-rank R";
constexpr std::string_view kHosts = "write --hosts a:4,b:4";
constexpr std::string_view kPrefix = "lines have their rank in front unless --no-prefix is given";
constexpr std::string_view kFiles =
    "write --output-dir DIR for files for each rank, and --show all or --show 0 to see ranks here as well";

constexpr Foreign kForeign[] = {
    {"-np", kRanks},  // with its number behind it; apart from it, it is understood
    {"-c", kRanks},
    {"--n", kRanks},
    {"--nproc", kRanks},
    {"--nprocs", kRanks},
    {"--nproc-per-node", kRanks},
    {"--num-processes", kRanks},
    {"--num-proc", kRanks},
    {"--ntasks", kRanks},
    {"--ntasks-per-node", kRanks},
    {"-ppn", kRanks},
    {"-N", kRanks},
    {"--world-size", kRanks},
    {"--master-port", kPort},
    {"--main-process-port", kPort},
    {"--master-addr", kMeet},
    {"--main-process-ip", kMeet},
    {"--rdzv-backend", kMeet},
    {"--rdzv-endpoint", kMeet},
    {"--rdzv-id", "leave it out: the machines that know the same DDP_TOKEN are one job"},
    {"--num-machines", kNodes},
    {"--machine-rank", kNode},
    {"--standalone", "leave it out, ddprun is always so"},
    {"-H", kHosts},
    {"--host", kHosts},
    {"--machinefile", "write --hostfile FILE"},
    {"-x", "write --env NAME=VALUE; variables that are set already reach the ranks without it"},
    {"-env", "write --env NAME=VALUE"},
    {"-genv", "write --env NAME=VALUE"},
    {"--export", "write --env NAME=VALUE; variables that are set already reach the ranks without it"},
    {"-l", kPrefix},
    {"--label", kPrefix},
    {"--tag-output", kPrefix},
    {"--prefix-output", kPrefix},
    {"-o", kFiles},
    {"--output", kFiles},
    {"--output-filename", kFiles},
    {"--log-dir", kFiles},
    {"--redirects", kFiles},
    {"-t", kFiles},
    {"--tee", kFiles},
    {"--local-ranks-filter", "write --show RANKS, for example --show 0"},
    {"-m", "write python3 -m MODULE as the program"},
    {"--module", "write python3 -m MODULE as the program"},
    {"--no-python", "leave it out: the program is run as it is written"},
    {"--oversubscribe", "leave it out: more ranks than cores are allowed"},
    {"--allow-run-as-root", "leave it out: root may run ddprun"},
    {"--time", "write --timeout SECONDS"},
};

/// "write ...": the name here of the option that other launchers call `word`; "" if they have no such option.
std::string our_option(std::string_view word) {
  std::string name(word.substr(0, word.find('=')));
  std::replace(name.begin(), name.end(), '_', '-');
  while (!name.empty() && name.back() >= '0' && name.back() <= '9') name.pop_back();
  for (const auto& foreign : kForeign) {
    if (foreign.name == name) return std::string(foreign.answer);
  }
  return "";
}

std::string did_you_mean(const CLI::App& app, const std::string& typed) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty())  // those without a group are for other ddpruns
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string_view meant = closest(typed, known);
  return meant.empty() ? "" : " Did you mean " + std::string(meant) + "?";
}

}  // namespace

void refuse(const std::string& text) { throw ExitError{kExitUsage, text + " Try ddprun --help."}; }

void check_names(const CLI::App& app, std::vector<const char*>& words) {
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string word = words[i];
    if (!word.starts_with('-') || word == "--") return;    // the program begins
    if (word == "-np" || word == "--np") words[i] = "-n";  // a habit of all MPI users
    const std::string name = std::string(words[i]).substr(0, word.find('='));
    const CLI::Option* ours = app.get_option_no_throw(name);
    const std::string answer = ours == nullptr ? our_option(word) : "";
    if (!answer.empty()) throw ExitError{kExitUsage, "There is no option " + name + ": " + answer + "."};
    if (ours == nullptr && word.starts_with("--")) refuse("There is no option " + name + "." + did_you_mean(app, name));
    if (ours != nullptr && ours->get_expected_min() > 0 && word.find('=') == std::string::npos) ++i;  // its value
  }
}

// CLI11's message for a value that is no number is "Could not convert: --ranks = two".
void refuse_words(const std::string& text) {
  const size_t name = text.find("--"), equals = text.find(" = ");
  if (!text.starts_with("Could not convert: ") || name == std::string::npos || equals == std::string::npos)
    refuse(text + ".");
  refuse(text.substr(name, equals - name) + " needs a number, not " + text.substr(equals + 3) + ".");
}

void check_program(const CLI::App& app, const Options& options) {
  const std::string& name = options.command.front();
  if (!options.machines.hosts.empty() || app.get_option_no_throw("--" + name) == nullptr ||
      name.find('/') != std::string::npos || is_in_path(name))
    return;
  throw ExitError{kExitNotFound,
                  "The program " + name + " was not found in PATH. Did you mean the option: ddprun --" + name + "?"};
}

}  // namespace ddp::ddprun
