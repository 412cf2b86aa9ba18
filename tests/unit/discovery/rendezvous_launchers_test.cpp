// SPDX-License-Identifier: Apache-2.0
// What each launcher's variables mean, as a table; the environment is a map. The variables of Open MPI and MPICH are those
// that real runs of their mpirun show.

#include "discovery/launchers.hpp"
#include "discovery/rendezvous.hpp"
#include "support/check.hpp"

using ddp::bootstrap::Meeting;
using ddp::test::expect;
using ddp::test::expect_contains;
using ddp::test::expect_equal;
using ddp::test::expect_error;
using Variables = std::map<std::string, std::string>;

Variables variables;

const char* lookup(const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}

ddp_group_options defaults() { return {.rank = -1, .world_size = -1}; }

Meeting resolve(const char* rendezvous, Variables set, ddp_group_options options = defaults()) {
  variables = std::move(set);
  return ddp::bootstrap::resolve_meeting(rendezvous, options, lookup);
}

std::string refused(const char* rendezvous, Variables set, ddp_group_options options = defaults()) {
  return expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { static_cast<void>(resolve(rendezvous, std::move(set), options)); });
}

ddp_group_options as(int32_t rank, int32_t size) {
  ddp_group_options options = defaults();
  options.rank = rank;
  options.world_size = size;
  return options;
}

void expect_meeting(const Meeting& got, Meeting::Kind kind, const std::string& place, int32_t rank, int32_t size,
                    int32_t local) {
  expect_equal(static_cast<int>(got.kind), static_cast<int>(kind), "kind");
  expect_equal(got.place, place, "place");
  expect_equal(got.rank, rank, "rank");
  expect_equal(got.size, size, "size");
  expect_equal(got.local_rank, local, "local rank");
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "29400"},
                             {"TORCHELASTIC_RUN_ID", "job7"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"}};

Variables with(Variables set, const Variables& more) {
  for (const auto& [name, value] : more) set[name] = value;
  return set;
}

ddp_case(a_program_started_alone_is_a_group_of_one) {
  const Meeting meeting = resolve(nullptr, {});
  expect_equal(meeting.size, 1, "size");
  expect_equal(meeting.rank, 0, "rank");
}

ddp_case(torchrun_over_two_hosts) {
  const Meeting meeting = resolve("env://", kTorchrun);
  expect_meeting(meeting, Meeting::Kind::kEnvironment, "node1:29400", 5, 8, 1);
  expect_equal(meeting.job, std::string("job7"), "the job; each host counts the restarts for itself");
  expect(!meeting.port_may_be_taken, "the port is free");
}

ddp_case(torchrun_whose_agent_listens_on_the_port) {
  expect(resolve("env://", with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})).port_may_be_taken,
         "the port is taken");
  expect(!resolve("env://", with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).port_may_be_taken,
         "the port is free");
}

ddp_case(ranks_of_one_host_meet_on_the_loopback_address) {
  const Meeting meeting = resolve("env://", with(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}}));
  expect_equal(meeting.place, std::string("127.0.0.1:29400"), "place");
  expect_equal(meeting.job, std::string("job7/2"), "job and round");
}

ddp_case(the_job_counts_elsewhere_if_its_launcher_gave_the_numbers) {
  expect_equal(resolve("tcp://a:7", kTorchrun).job, std::string("job7"), "at an address");
  expect_equal(resolve("file:///a/b", kTorchrun).job, std::string("job7"), "at a file");
  for (const auto& options : {as(1, 8), as(1, -1), as(-1, 8)})
    expect_equal(resolve("tcp://a:7", kTorchrun, options).job, std::string(""), "ranks of several launchers may meet");
}

ddp_case(an_ipv6_address_is_bracketed) {
  expect_equal(resolve("env://", with(kTorchrun, {{"MASTER_ADDR", "fd00::2"}})).place, std::string("[fd00::2]:29400"),
               "place");
}

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_RANK", "1"},
                            {"PMIX_NAMESPACE", "1144651777"}};

ddp_case(open_mpi_on_one_host_needs_nothing_more) {
  const Meeting meeting = resolve("env://", kOpenMpi);
  expect_equal(static_cast<int>(meeting.kind), static_cast<int>(Meeting::Kind::kFile), "kind");
  expect(meeting.private_place, "in a private directory");
  expect(!meeting.needs_parent, "the job has a name");
  expect_equal(meeting.job, std::string("1144651777"), "job");
  expect_equal(meeting.rank, 1, "rank");
  expect_equal(meeting.local_rank, 1, "local rank");
}

ddp_case(open_mpi_over_hosts_asks_for_master_addr) {
  const auto text = refused("env://", with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}}));
  expect_contains(text, "MASTER_ADDR (the host of rank 0) and MASTER_PORT are missing");
  expect_contains(text, "OMPI_COMM_WORLD_SIZE=4");
  const Variables given = {{"OMPI_COMM_WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "7000"}};
  expect_meeting(resolve("env://", with(kOpenMpi, given)), Meeting::Kind::kEnvironment, "a:7000", 1, 4, 1);
}

const Variables kMpich = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};

ddp_case(mpich_on_one_host_is_told_apart_by_its_launcher) {
  const Meeting meeting = resolve("env://", kMpich);
  expect_equal(static_cast<int>(meeting.kind), static_cast<int>(Meeting::Kind::kFile), "kind");
  expect(meeting.private_place && meeting.needs_parent, "private, named by the launcher's process");
  expect_equal(meeting.size, 2, "size");
}

const Variables kSlurm = {{"SLURM_PROCID", "3"},
                          {"SLURM_NTASKS", "8"},
                          {"SLURM_STEP_NUM_TASKS", "4"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_STEP_NODELIST", "n[07-08]"},
                          {"SLURM_JOB_NODELIST", "n[01-08]"},
                          {"SLURM_STEP_NUM_NODES", "2"},
                          {"SLURM_JOB_ID", "4711"},
                          {"SLURM_STEP_ID", "0"}};

std::string host_of(const Meeting& meeting) { return meeting.place.substr(0, meeting.place.rfind(':')); }

ddp_case(slurm_meets_on_the_first_host_of_the_step) {
  const Meeting meeting = resolve("env://", kSlurm);
  expect_equal(host_of(meeting), std::string("n07"), "host");
  expect_equal(meeting.rank, 3, "rank");
  expect_equal(meeting.size, 4, "tasks of the step, not of the job");
  expect_equal(meeting.job, std::string("4711.0"), "job");
  const int port = std::stoi(meeting.place.substr(meeting.place.rfind(':') + 1));
  expect(port >= 15'000 && port < 32'768, "a port below those that the kernel gives out");
  expect(resolve("env://", with(kSlurm, {{"SLURM_STEP_ID", "1"}})).place != meeting.place, "another step, another port");
  expect_equal(resolve("env://", with(kSlurm, {{"MASTER_PORT", "4000"}})).place, std::string("n07:4000"),
               "MASTER_PORT wins");
}

ddp_case(a_batch_script_without_srun_is_alone) {
  Variables set = kSlurm;
  set.erase("SLURM_STEP_ID");
  expect_equal(resolve("env://", set).size, 1, "size");
}

ddp_case(srun_with_pmi_is_slurm) {
  const Variables pmi2 = {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PMI_FD", "8"}, {"PMI_JOBID", "4711.0"}};
  const Meeting meeting = resolve("env://", with(kSlurm, pmi2));
  expect_equal(host_of(meeting), std::string("n07"), "host");
  expect_equal(meeting.rank, 3, "rank");
  expect_equal(meeting.local_rank, 1, "local rank");
  expect_equal(meeting.place, resolve("env://", kSlurm).place, "place");
}

ddp_case(mpirun_inside_a_step_is_mpirun) {
  const Variables hydra = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  const Meeting meeting = resolve("env://", with(kSlurm, hydra));
  expect_equal(meeting.rank, 1, "rank");
  expect_equal(meeting.size, 2, "size");
  expect(meeting.private_place, "all on one host");
}

ddp_case(components_of_a_heterogeneous_job_have_no_common_number) {
  expect_equal(resolve("tcp://a:7", with(kSlurm, {{"SLURM_HET_SIZE", "2"}})).job, std::string(""), "job");
}

ddp_case(slurms_large_step_numbers_are_read) {
  expect_equal(resolve("env://", with(kSlurm, {{"SLURM_STEP_ID", "4294967290"}})).job, std::string("4711.4294967290"),
               "job");
}

ddp_case(node_lists_give_their_first_host) {
  const std::map<std::string, std::string> table = {{"n1", "n1"},
                                                    {"n1,n2", "n1"},
                                                    {"n[01-04,7]", "n01"},
                                                    {"n[3,5-6]", "n3"},
                                                    {"rack2n[9-12]", "rack2n9"},
                                                    {"a[1-2]b[03-04]", "a1b03"},
                                                    {"login,n[1-2]", "login"},
                                                    {"", ""},
                                                    {"n[", ""},
                                                    {"n[]", ""},
                                                    {"gpu[2-3]-ib.cluster,x", "gpu2-ib.cluster"}};
  for (const auto& [list, host] : table) expect_equal(ddp::bootstrap::first_host(list), host, "first host of " + list);
}

ddp_case(kubernetes_indexed_jobs) {
  const Variables set = {{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "job-0.svc"}};
  expect_meeting(resolve("env://", set), Meeting::Kind::kEnvironment, "job-0.svc:29500", 2, 3, 0);
}

ddp_case(what_is_missing_and_what_was_found_is_said) {
  auto text = refused("env://", {{"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}});
  expect_contains(text, "the rank (RANK or options->rank) is missing");
  expect_contains(text, "found in the environment: WORLD_SIZE=4, MASTER_ADDR=a");
  text = refused("env://", {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}});
  expect_contains(text, "MASTER_PORT is missing");
  text = refused("env://", {{"MASTER_ADDR", "a"}});
  expect_contains(text, "RANK");
  text = refused("tcp://a:1", {});
  expect_contains(text, "found in the environment: none");
}

ddp_case(wrong_values_are_named) {
  expect_contains(refused("env://", with(kTorchrun, {{"RANK", "five"}})), "RANK is \"five\"");
  expect_contains(refused("env://", with(kTorchrun, {{"RANK", "8"}})), "rank 8 is out of range");
  expect_contains(refused("env://", with(kTorchrun, {{"MASTER_PORT", "70000"}})), "MASTER_PORT is 70000");
  expect_contains(refused("env://", with(kTorchrun, {{"WORLD_SIZE", "0"}})), "world size of 0");
}

ddp_case(explicit_options_win) {
  expect_meeting(resolve("env://", kTorchrun, as(2, 3)), Meeting::Kind::kEnvironment, "node1:29400", 2, 3, 1);
}

ddp_case(a_group_of_one_can_be_asked_for_under_any_launcher) {
  const Meeting meeting = resolve("env://", kTorchrun, as(-1, 1));
  expect_equal(meeting.rank, 0, "rank");
  expect_equal(meeting.size, 1, "size");
}

ddp_case(who_joins_needs_no_number) {
  ddp_group_options joins = defaults();
  joins.join = joins.recoverable = 1;
  const Variables address = {{"MASTER_ADDR", "fd00::1"}, {"MASTER_PORT", "29400"}};
  expect_meeting(resolve("env://", address, joins), Meeting::Kind::kEnvironment, "[fd00::1]:29400", 0, 1, 0);
  expect_meeting(resolve("env://", kTorchrun, joins), Meeting::Kind::kEnvironment, "node1:29400", 0, 1, 1);
  expect_meeting(resolve("env://", {}, joins), Meeting::Kind::kEnvironment, "", 0, 1, 0);
  expect_meeting(resolve("tcp://a:29400", {}, joins), Meeting::Kind::kTcp, "a:29400", 0, 1, 0);
  expect_contains(refused("env://", {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}}, joins), "MASTER_PORT is 70000");
  // A rank that is alone can be joined too.
  ddp_group_options alone = as(0, 1);
  expect_meeting(resolve("env://", address, alone), Meeting::Kind::kEnvironment, "", 0, 1, 0);
  alone.recoverable = 1;
  expect_meeting(resolve("env://", address, alone), Meeting::Kind::kEnvironment, "[fd00::1]:29400", 0, 1, 0);
}

ddp_case(forms_of_the_rendezvous_text) {
  expect_meeting(resolve("tcp://a:7#left", {}, as(1, 2)), Meeting::Kind::kTcp, "a:7", 1, 2, 0);
  expect_equal(resolve("tcp://a:7#left", {}, as(1, 2)).group_name, std::string("left"), "group");
  expect_meeting(resolve("tcp://[::1]:7", {}, as(0, 2)), Meeting::Kind::kTcp, "[::1]:7", 0, 2, 0);
  expect_meeting(resolve("file:///a/b", {}, as(0, 2)), Meeting::Kind::kFile, "/a/b", 0, 2, 0);
  expect_meeting(resolve("local://x", kTorchrun, as(1, 2)), Meeting::Kind::kLocal, "x", 1, 2, 1);
  for (const char* text :
       {"", "tcp://", "tcp://a", "tcp://a:0", "tcp://a:70000", "tcp://::1:7", "tcp://:7", "file://", "file://a", "local://",
        "store://", "http://a:1", "env://x", "tcp://a:1#", "tcp://a:1#a/b", "tcp://a:1#.."})
    static_cast<void>(refused(text, {}, as(0, 2)));
}

ddp_case(ranks_that_are_threads_must_say_who_they_are) {
  expect_contains(refused("local://x", kTorchrun), "options->rank and options->world_size are missing");
}
