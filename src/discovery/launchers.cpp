// SPDX-License-Identifier: Apache-2.0
#include "discovery/launchers.hpp"

#include <array>
#include <charconv>
#include <utility>

#include "control/limits.hpp"

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

namespace {

// The variables that appear in error texts.
constexpr std::array kShown = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "PMI_RANK",
    "PMI_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMIX_RANK",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_NTASKS",
    "SLURM_STEP_NODELIST",
    "SLURM_JOB_NODELIST",
    "JOB_COMPLETION_INDEX",
};

class Environment {
 public:
  explicit Environment(EnvironmentFn fn) : fn_(fn) {}

  [[nodiscard]] std::string text(const char* name) const {
    const char* value = fn_(name);
    return value != nullptr ? value : "";
  }
  [[nodiscard]] bool has(const char* name) const { return !text(name).empty(); }

  template <class Number = int32_t>
  [[nodiscard]] std::optional<Number> number(const char* name) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    Number parsed = 0;
    const char* end = value.data() + value.size();
    const auto [stop, failure] = std::from_chars(value.data(), end, parsed);
    if (failure != std::errc() || stop != end)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "the environment variable %s is \"%s\", which is not a number", name,
                       value.substr(0, 64).c_str());
    return parsed;
  }
  template <class Number = int32_t>
  [[nodiscard]] std::optional<Number> number(const char* name, const char* otherwise) const {
    const auto value = number<Number>(name);
    return value.has_value() ? value : number<Number>(otherwise);
  }

 private:
  EnvironmentFn fn_;
};

Launch torchrun(const Environment& env) {
  Launch launch;
  launch.launcher = "torchrun";
  launch.rank = env.number("RANK");
  launch.size = env.number("WORLD_SIZE");
  launch.local_rank = env.number("LOCAL_RANK");
  launch.local_size = env.number("LOCAL_WORLD_SIZE");
  launch.port_may_be_taken = env.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  launch.job = env.text("TORCHELASTIC_RUN_ID");
  // A straggler of an earlier round must not meet the ranks of the next one. Each host's agent counts for itself, and a
  // restart that another host caused is not counted: the numbers are equal on one host alone.
  if (launch.one_host() && env.has("TORCHELASTIC_RESTART_COUNT")) launch.job += "/" + env.text("TORCHELASTIC_RESTART_COUNT");
  return launch;
}

Launch open_mpi(const Environment& env) {
  Launch launch;
  launch.launcher = "Open MPI";
  launch.rank = env.number("OMPI_COMM_WORLD_RANK");
  launch.size = env.number("OMPI_COMM_WORLD_SIZE");
  launch.local_rank = env.number("OMPI_COMM_WORLD_LOCAL_RANK");
  launch.local_size = env.number("OMPI_COMM_WORLD_LOCAL_SIZE");
  launch.job = env.has("PMIX_NAMESPACE") ? env.text("PMIX_NAMESPACE") : env.text("OMPI_MCA_ess_base_jobid");
  launch.needs_parent = launch.job.empty();
  return launch;
}

bool in_slurm_step(const Environment& env) { return env.has("SLURM_STEP_ID") || env.has("SLURM_STEPID"); }

Launch pmi(const Environment& env) {
  Launch launch;
  launch.launcher = "PMI (MPICH, Intel MPI)";
  // srun --mpi=pmi2 sets PMI_RANK and PMI_SIZE too, and Slurm's own variables say more. Ranks that an mpirun started inside
  // a step have inherited Slurm's, which are not about them; mpirun gives them MPI_LOCALRANKID.
  if (in_slurm_step(env) && !env.has("MPI_LOCALRANKID")) return launch;
  launch.rank = env.number("PMI_RANK", "PMIX_RANK");
  launch.size = env.number("PMI_SIZE");
  launch.local_rank = env.number("MPI_LOCALRANKID");
  launch.local_size = env.number("MPI_LOCALNRANKS");
  launch.job = env.has("PMI_JOBID") ? env.text("PMI_JOBID") : env.text("PMIX_NAMESPACE");
  launch.needs_parent = launch.job.empty();
  return launch;
}

// Only inside a step: a batch script itself sees SLURM_PROCID and SLURM_NTASKS too, and a program that is started there
// without srun is alone.
Launch slurm(const Environment& env) {
  Launch launch;
  launch.launcher = "Slurm";
  if (!in_slurm_step(env)) return launch;
  launch.rank = env.number("SLURM_PROCID");
  launch.size = env.number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
  launch.local_rank = env.number("SLURM_LOCALID");
  if (env.number("SLURM_STEP_NUM_NODES", "SLURM_NNODES") == 1) launch.local_size = launch.size;
  launch.host =
      first_host(env.has("SLURM_STEP_NODELIST") ? env.text("SLURM_STEP_NODELIST") : env.text("SLURM_JOB_NODELIST"));
  const auto job = env.number<int64_t>("SLURM_JOB_ID", "SLURM_JOBID");
  const auto step = env.number<int64_t>("SLURM_STEP_ID", "SLURM_STEPID");
  const bool is_one_job = !env.has("SLURM_HET_SIZE");  // the components of a heterogeneous job have numbers of their own
  if (is_one_job) launch.job = std::to_string(job.value_or(0)) + "." + std::to_string(step.value_or(0));
  if (is_one_job && env.has("SLURM_RESTART_COUNT")) launch.job += "/" + env.text("SLURM_RESTART_COUNT");
  // Below the range from which the kernel gives out ports; the ports of a job's steps differ by the length of the port walk.
  const int64_t spread = (job.value_or(0) % 900) * 7 + step.value_or(0) % 900;
  launch.port = static_cast<int32_t>(15'000 + (spread % 900 + 900) % 900 * limits::kPorts);
  return launch;
}

Launch kubernetes(const Environment& env) {
  Launch launch;
  launch.launcher = "Kubernetes";
  launch.rank = env.number("JOB_COMPLETION_INDEX");
  if (!launch.rank.has_value()) return launch;
  launch.size = env.number("WORLD_SIZE", "JOB_COMPLETIONS");
  launch.local_rank = 0;
  launch.port = 29'500;  // a pod has its ports for itself
  return launch;
}

}  // namespace

Launch read_launch(EnvironmentFn environment) {
  const Environment env(environment);
  Launch found;
  for (const auto read : {torchrun, open_mpi, pmi, slurm, kubernetes}) {
    Launch launch = read(env);
    const bool complete = launch.rank.has_value() && launch.size.has_value();
    const bool partly = launch.rank.has_value() || launch.size.has_value();
    if (complete || (partly && found.launcher.empty())) found = std::move(launch);
    if (complete) break;
  }
  if (env.has("MASTER_ADDR")) found.host = env.text("MASTER_ADDR");
  if (const auto port = env.number("MASTER_PORT"); port.has_value()) found.port = port;
  return found;
}

std::string describe_variables(EnvironmentFn environment) {
  const Environment env(environment);
  std::string text;
  for (const char* name : kShown) {
    if (!env.has(name)) continue;
    if (!text.empty()) text += ", ";
    text += std::string(name) + "=" + env.text(name).substr(0, 64);
  }
  return text.empty() ? "none" : text;
}

}  // namespace ddp::bootstrap
