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
constexpr std::string_view kPort = "write --port PORT; all ranks run on this machine";
constexpr std::string_view kOneMachine =
    "ddprun starts ranks on this machine only. For several machines use mpirun, srun or torchrun: libddp reads their "
    "variables";
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
    {"--master-addr", kOneMachine},
    {"--main-process-ip", kOneMachine},
    {"--rdzv-backend", kOneMachine},
    {"--rdzv-endpoint", kOneMachine},
    {"--rdzv-id", kOneMachine},
    {"--nnodes", kOneMachine},
    {"--node-rank", kOneMachine},
    {"--num-machines", kOneMachine},
    {"--machine-rank", kOneMachine},
    {"--standalone", "leave it out, ddprun is always so"},
    {"-H", kOneMachine},
    {"--host", kOneMachine},
    {"--hosts", kOneMachine},
    {"--hostfile", kOneMachine},
    {"--machinefile", kOneMachine},
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
    {"--max-restarts", "ddprun does not restart ranks; --keep-going lets the other ranks go on"},
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
