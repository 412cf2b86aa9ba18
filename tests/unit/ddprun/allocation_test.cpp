// SPDX-License-Identifier: Apache-2.0
// The machines of a job of Slurm or PBS, from environments as these make them.
#include "ddprun/allocation.hpp"

#include "ddprun/launch.hpp"
#include "support/check.hpp"

using namespace ddp::ddprun;

using Environment = std::map<std::string, std::string>;

std::string found(const Environment& environment, const std::map<std::string, std::string>& files = {}) {
  const auto allocation = find_allocation(
      [&](const char* name) -> const char* {
        const auto at = environment.find(name);
        return at == environment.end() ? nullptr : at->second.c_str();
      },
      [&](const std::string& path) -> std::optional<std::string> {
        const auto at = files.find(path);
        return at == files.end() ? std::nullopt : std::optional(at->second);
      });
  if (!allocation.has_value()) return "none";
  std::string text = allocation->system + ":";
  for (const Host& host : allocation->hosts) text += " " + host.name + "=" + std::to_string(host.ranks);
  return text;
}

// sbatch --nodes=3 --ntasks-per-node=4, Slurm 22.05, shortened to what matters.
const Environment kBatch{{"SLURM_JOB_ID", "4711"},
                         {"SLURM_JOB_NODELIST", "node[08-10]"},
                         {"SLURM_NODELIST", "node[08-10]"},
                         {"SLURM_JOB_NUM_NODES", "3"},
                         {"SLURM_NNODES", "3"},
                         {"SLURM_NTASKS", "12"},
                         {"SLURM_NTASKS_PER_NODE", "4"},
                         {"SLURM_TASKS_PER_NODE", "4(x3)"},
                         {"SLURM_JOB_CPUS_PER_NODE", "32(x3)"},
                         {"SLURM_PROCID", "0"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "0"}};

Environment with(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}

ddp_case(a_job_script_of_slurm) {
  expect_equal(found(kBatch), std::string("Slurm: node08=4 node09=4 node10=4"), "tasks on each");
  Environment uneven = with(kBatch, "SLURM_TASKS_PER_NODE", "3(x2),1");
  uneven.erase("SLURM_NTASKS_PER_NODE");
  expect_equal(found(uneven), std::string("Slurm: node08=3 node09=3 node10=1"), "another number on the last");
  Environment nodes_only = kBatch;  // sbatch --nodes=3
  for (const char* name : {"SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"}) nodes_only.erase(name);
  nodes_only["SLURM_TASKS_PER_NODE"] = "32(x3)";
  expect_equal(found(nodes_only), std::string("Slurm: node08=0 node09=0 node10=0"), "no tasks were asked for");
  expect_equal(found(with(kBatch, "SLURM_STEP_ID", "4294967290")), std::string("Slurm: node08=4 node09=4 node10=4"),
               "an interactive shell of salloc");
}

ddp_case(ranks_have_no_allocation) {
  expect_equal(found(with(kBatch, "SLURM_STEP_ID", "0")), std::string("none"), "under srun");
  expect_equal(found(with(kBatch, "OMPI_COMM_WORLD_RANK", "1")), std::string("none"), "under mpirun");
  expect_equal(found({}), std::string("none"), "outside");
}

ddp_case(a_job_of_pbs) {
  const Environment job{{"PBS_JOBID", "12.head"}, {"PBS_NODEFILE", "/var/spool/pbs/aux/12.head"}, {"NCPUS", "8"}};
  expect_equal(found(job, {{"/var/spool/pbs/aux/12.head", "n1.cluster\nn1.cluster\nn2.cluster\nn1.cluster\n"}}),
               std::string("PBS: n1.cluster=3 n2.cluster=1"), "lines");
}

template <class Body>
void expect_refused(const std::string& part, Body&& body) {
  try {
    body();
  } catch (const ExitError& error) {
    expect_equal(error.code, kExitUsage, "exit code");
    return expect_contains(error.text, part);
  }
  throw std::runtime_error("it was not refused: " + part);
}

ddp_case(what_cannot_be_read_is_refused) {
  expect_refused("SLURM_JOB_NODELIST is \"node[08\"", [] { (void)found(with(kBatch, "SLURM_JOB_NODELIST", "node[08")); });
  expect_refused("SLURM_TASKS_PER_NODE", [] { (void)found(with(kBatch, "SLURM_TASKS_PER_NODE", "4(x2)")); });
  expect_refused("PBS_NODEFILE", [] { (void)found({{"PBS_NODEFILE", "/gone"}}); });
  expect_refused("PBS_NODEFILE", [] { (void)found({{"PBS_NODEFILE", "/empty"}}, {{"/empty", "\n"}}); });
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word + " ";
  return text;
}

ddp_case(lists_of_nodes) {
  expect_equal(joined(expand_nodelist("n[01-03,7],login1")), std::string("n01 n02 n03 n7 login1 "), "ranges");
  expect_equal(joined(expand_nodelist("rack[2-3]n[1,3]")), std::string("rack2n1 rack2n3 rack3n1 rack3n3 "), "two brackets");
  expect_equal(joined(expand_nodelist("n[098-101]-ib.site")),
               std::string("n098-ib.site n099-ib.site n100-ib.site n101-ib.site "), "zeros, and a rest");
  expect_equal(joined(expand_nodelist("a")), std::string("a "), "one");
  for (const char* wrong : {"", "a,,b", "n[1-", "n]1[", "n[]", "n[x]", "n[3-1]", "n[1-99999999]", "n[-1]", "n[1-3]]"})
    expect(expand_nodelist(wrong).empty(), wrong);
}

ddp_case(lists_of_counts) {
  const std::vector<int32_t> counts = expand_counts("2(x3),1,16(x1)");
  expect(counts == std::vector<int32_t>({2, 2, 2, 1, 16}), "counts");
  for (const char* wrong : {"", "x", "2(x", "2(x)", "2(3)", "0", "-1", "2(x0)", "1,,1"})
    expect(expand_counts(wrong).empty(), wrong);
}
