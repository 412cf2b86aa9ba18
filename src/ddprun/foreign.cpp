// SPDX-License-Identifier: Apache-2.0
// mpirun (Open MPI, MPICH), torchrun, accelerate, srun.
// Tested by process/ddprun_test.sh.
#include "ddprun/foreign.hpp"

#include <algorithm>

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
    {"-np", kRanks},
    {"--np", kRanks},
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

}  // namespace

std::string our_option(std::string_view word) {
  std::string name(word.substr(0, word.find('=')));
  std::replace(name.begin(), name.end(), '_', '-');
  while (!name.empty() && name.back() >= '0' && name.back() <= '9') name.pop_back();
  for (const auto& foreign : kForeign) {
    if (foreign.name == name) return std::string(foreign.answer);
  }
  return "";
}

}  // namespace ddp::ddprun
