// SPDX-License-Identifier: Apache-2.0
// Between fork and exec only async-signal-safe calls are made: everything that allocates is prepared before. The error of a
// failing exec is sent back through a pipe that a successful one closes. Parent death: PR_SET_PDEATHSIG takes effect from
// the call on, so a parent that died just before is noticed by getppid(). Tested by process/ddprun_test.sh,
// process/ddprun_orphans_test.sh.
#include "ddprun/launch.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "core/error.hpp"
#include "ddprun/channel.hpp"
#include "ddprun/fd.hpp"
#include "ddprun/hosts.hpp"
#include "ddprun/lead.hpp"
#include "ddprun/machine.hpp"
#include "ddprun/orders.hpp"
#include "ddprun/program.hpp"
#include "ddprun/trace_file.hpp"
#include "os/loopback.hpp"

namespace ddp::ddprun {
namespace {

constexpr size_t kTokenBytes = 4096;
constexpr const char* kReportWord = "DDPRUN_REPORT_WORD";  // how a led ddprun learns the mark; no rank gets it

std::string_view name_of(std::string_view assignment) { return assignment.substr(0, assignment.find('=')); }

bool is_set(const std::vector<std::string>& environment, std::string_view name) {
  for (const auto& entry : environment) {
    if (name_of(entry) == name) return true;
  }
  return false;
}

void set(std::vector<std::string>& environment, const std::string& assignment) {
  std::erase_if(environment, [&](const std::string& entry) { return name_of(entry) == name_of(assignment); });
  environment.push_back(assignment);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  list.reserve(texts.size() + 1);
  for (auto& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

std::vector<cpu_set_t> mask_of(const Processors& processors) {
  std::vector<cpu_set_t> mask(static_cast<size_t>(processors.back()) / CPU_SETSIZE + 1);
  for (const int32_t number : processors)
    CPU_SET_S(static_cast<size_t>(number), mask.size() * sizeof(cpu_set_t), mask.data());
  return mask;
}

struct ChildPlan {
  const char* program;
  const char* folder;  // "": this one
  char** arguments;
  char** environment;
  sigset_t signal_mask;
  pid_t parent;
  int in, out, err, failure;
  const std::vector<cpu_set_t>& processors;  // empty: all
};

// In the child. Never returns.
[[noreturn]] void become_rank(const ChildPlan& plan) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(kExitInternal);
  signal(SIGPIPE, SIG_DFL);
  if (!plan.processors.empty())  // before the program touches memory; a machine that refuses runs it anywhere
    static_cast<void>(sched_setaffinity(0, plan.processors.size() * sizeof(cpu_set_t), plan.processors.data()));
  dup2(plan.in, 0);
  dup2(plan.out, 1);
  dup2(plan.err, 2);
  pthread_sigmask(SIG_SETMASK, &plan.signal_mask, nullptr);
  if (*plan.folder == '\0' || chdir(plan.folder) == 0) execve(plan.program, plan.arguments, plan.environment);
  const int cause = errno;
  while (write(plan.failure, &cause, sizeof cause) < 0 && errno == EINTR) {
  }
  _exit(kExitNotExecutable);
}

// The ranks write to pseudo-terminals. Where their output does not end on a terminal, or in files as well, colours and other
// escape sequences would be dirt. Programs must not start a pager, because that waits for keys which a rank never gets.
void describe_terminal(const Options& options, std::vector<std::string>& environment) {
  const auto set_unless_wished = [&](const std::string& assignment) {
    if (!is_set(options.environment, name_of(assignment))) set(environment, assignment);
  };
  set_unless_wished("PAGER=cat");
  set_unless_wished("GIT_PAGER=cat");
  const bool forced = is_set(environment, "FORCE_COLOR") || is_set(environment, "CLICOLOR_FORCE");
  if (forced || (options.output_dir.empty() && isatty(1) == 1 && isatty(2) == 1)) return;
  set_unless_wished("TERM=dumb");
  set_unless_wished("NO_COLOR=1");
}

// 0 when the program runs, else the errno of exec.
int read_failure(int fd) {
  int cause = 0;
  ssize_t got = 0;
  do {
    got = read(fd, &cause, sizeof cause);
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof cause) ? cause : 0;
}

/// The secret of a job on several machines: the one that was set, else a new one.
std::string read_token() {
  if (const char* token = getenv("DDP_TOKEN"); token != nullptr && *token != '\0') return token;
  const char* const path = getenv("DDP_TOKEN_FILE");
  if (path == nullptr || *path == '\0') return make_token();
  const std::string name = "DDP_TOKEN_FILE: the file " + std::string(path);
  const Fd file(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file.open() || fstat(file.get(), &info) != 0)
    throw ExitError{kExitUsage, name + " cannot be read: " + strerror(errno) + "."};
  if (!S_ISREG(info.st_mode)) throw ExitError{kExitUsage, name + " is no regular file."};
  if ((info.st_mode & 077) != 0) throw ExitError{kExitUsage, name + " can be read by others: run chmod 600 on it."};
  std::string token(kTokenBytes, '\0');
  token.resize(static_cast<size_t>(std::max<ssize_t>(read(file.get(), token.data(), token.size()), 0)));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (token.empty()) throw ExitError{kExitUsage, name + " is empty."};
  return token;
}

/// `needed`: throws if it cannot be made, otherwise returns "".
std::string make_folder(bool needed) {
  const char* const place = getenv("TMPDIR");
  std::string name = std::string(place != nullptr && *place != '\0' ? place : "/tmp") + "/ddprun-XXXXXX";
  if (mkdtemp(name.data()) != nullptr) return name;
  if (needed)
    throw make_error(DDP_ERROR_IO, "A folder %s cannot be made (%s): set TMPDIR to one that can be written to.",
                     name.c_str(), strerror(errno));
  return "";
}

/// Folders of the job, that only this user can read and that end with it.
void make_folders(const Options& options, Job& job) {
  if (options.survives()) {
    job.join_folder = OwnFolder(make_folder(true));
    set(job.environment, "DDP_JOIN_FILE=" + job.join_folder.path() + "/join");
  }
  if (options.watches()) job.watch_folder = OwnFolder(make_folder(options.needs_watching()));
  const std::string& watched = job.watch_folder.path();
  if (!watched.empty()) set(job.environment, "DDP_WATCH_DIR=" + watched);
  if (options.traces()) set(job.environment, "DDP_TRACE=" + watched + "/trace");
  if (!options.telling.trace.empty()) prepare_trace(options.telling.trace);
}

/// What this process has, without what a ddprun around this one watches its own ranks by.
std::vector<std::string> inherited_environment() {
  const char* const watched = getenv("DDP_WATCH_DIR");
  const std::string traced = "DDP_TRACE=" + std::string(watched != nullptr ? watched : "") + "/";
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view assignment = *entry;
    if (name_of(assignment) == "DDP_WATCH_DIR" || (watched != nullptr && assignment.starts_with(traced))) continue;
    environment.emplace_back(assignment);
  }
  return environment;
}

void divide_threads(const Options& options, Job& job) {
  if (options.ranks < 2 || is_set(job.environment, "OMP_NUM_THREADS")) return;
  const int32_t cores = usable_cores();
  int32_t threads = std::max(cores / options.ranks, 1);
  if (!job.placed.empty()) threads = std::min(threads, threads_of(job.placed));
  const std::string assignment = "OMP_NUM_THREADS=" + std::to_string(threads);
  set(job.environment, assignment);
  job.said.threads = assignment + " for each rank, because it was not set (cores: " + std::to_string(cores) +
                     ", ranks: " + std::to_string(options.ranks) + ")";
}

}  // namespace

Job prepare_job(const Options& options, const sigset_t& signal_mask) {
  Job job;
  job.program = find_program(options.command.front(), options.machines.folder);
  job.folder = options.machines.folder;
  job.arguments = options.command;
  job.ranks = options.ranks;
  job.signal_mask = signal_mask;
  job.environment = inherited_environment();
  for (const auto& assignment : options.environment) set(job.environment, assignment);

  const size_t colon = options.machines.rendezvous.rfind(':');
  const bool here = options.machines.rendezvous.empty();
  const std::string address = here ? os::loopback() : options.machines.rendezvous.substr(0, colon);
  const std::string port = here ? std::to_string(options.port > 0 ? options.port : find_free_port())
                                : options.machines.rendezvous.substr(colon + 1);
  job.names = names_of(options);
  if (const char* word = getenv(kReportWord); word != nullptr && options.machines.led) job.mark = report_mark(word);
  std::erase_if(job.environment, [](const std::string& entry) { return name_of(entry) == kReportWord; });
  set(job.environment, "MASTER_ADDR=" + address);
  set(job.environment, "MASTER_PORT=" + port);
  set(job.environment, "WORLD_SIZE=" + std::to_string(options.machines.world_size()));
  set(job.environment, "LOCAL_WORLD_SIZE=" + std::to_string(options.ranks));
  if (options.machines.placement.size() > 1 && !options.machines.led) {
    std::string placement;  // the names of the hosts are unknown
    int32_t node = 0;
    for (const int32_t ranks : options.machines.placement)
      placement += (placement.empty() ? "" : ",") + ("--node-rank " + std::to_string(node++)) + ":" + std::to_string(ranks);
    set(job.environment, "DDP_PLACEMENT=" + placement);
  }
  job.said.notes =
      std::to_string(options.ranks) + " ranks of " + job.program + ", MASTER_ADDR=" + address + " MASTER_PORT=" + port;
  if (is_set(job.environment, "DDP_TOKEN") || is_set(job.environment, "DDP_TOKEN_FILE")) {
    job.said.notes += ", the token that was set";
  } else if (options.machines.placement.size() > 1) {
    throw ExitError{
        kExitUsage,
        "Several machines need one secret that only they know: set DDP_TOKEN to the same text, of 16 bytes or more, on "
        "each of them (write export DDP_TOKEN=$(openssl rand -hex 32) once, and copy the value to the others), or "
        "DDP_TOKEN_FILE to a file that holds it."};
  } else {
    set(job.environment, "DDP_TOKEN=" + make_token());
    job.said.notes += ", a new DDP_TOKEN";
  }
  job.placed = place_ranks(read_topology("/sys/devices/system", usable_processors()), options.ranks, options.bind);
  for (size_t rank = 0; rank < job.placed.size(); ++rank)
    job.said.notes += (rank == 0 ? ", processors " : " | ") + to_text(job.placed[rank]);
  divide_threads(options, job);
  if (!is_set(job.environment, "PYTHONUNBUFFERED")) set(job.environment, "PYTHONUNBUFFERED=1");
  make_folders(options, job);
  if (options.terminals) job.prefix_width = options.prefix_width();
  if (options.terminals) describe_terminal(options, job.environment);
  return job;
}

Job prepare_hosts(const Options& options, const sigset_t& signal_mask) {
  Job job;
  std::error_code cause;
  const std::string ours = options.machines.ddprun.empty() ? std::filesystem::read_symlink("/proc/self/exe", cause).string()
                                                           : options.machines.ddprun;
  const std::string folder =
      options.machines.folder.empty() ? std::filesystem::current_path().string() : options.machines.folder;
  job.environment = inherited_environment();
  for (int32_t node = 0; node < options.ranks; ++node) job.commands.push_back(remote_command(options, node, folder, ours));
  job.names = names_of(options);
  job.program = find_program(job.commands.front().front());
  job.ranks = options.ranks;
  job.signal_mask = signal_mask;
  std::vector<std::string> assignments = options.environment;
  std::string placement;
  for (const Host& host : options.machines.hosts)
    placement += (placement.empty() ? "" : ",") + address_of(host) + ":" + std::to_string(host.ranks);
  assignments.push_back("DDP_PLACEMENT=" + placement);
  if (options.leads_ranks() || options.watches()) {
    const std::string word = make_token().substr(0, 16);
    job.mark = report_mark(word);
    assignments.push_back(kReportWord + ("=" + word));
  }
  if (!options.telling.trace.empty()) {
    job.watch_folder = OwnFolder(make_folder(true));
    prepare_trace(options.telling.trace);
  }
  job.header = lead_header(job.environment, assignments, read_token());
  if (!options.machines.found.empty()) {
    job.said.allocation = std::to_string(options.ranks) + " hosts of " + options.machines.found + ":";
    for (const Host& host : options.machines.hosts)
      job.said.allocation += " " + host.name + ":" + std::to_string(host.ranks);
  }
  job.said.notes = "ddprun on " + std::to_string(options.ranks) + " hosts; the ranks meet at " + options.machines.rendezvous;
  return job;
}

std::string refuse_variable(const std::string& name) {
  const std::string text = "ddprun sets " + name + " itself";
  if (name == "RANK" || name == "LOCAL_RANK") return text + ": each rank gets its own number.";
  if (name == "WORLD_SIZE" || name == "LOCAL_WORLD_SIZE") return text + ": choose the number of ranks with -n.";
  if (name == "MASTER_PORT") return text + ": choose the port with --port.";
  if (name == "DDP_WATCH_DIR") return text + ": see --report.";
  if (name == "DDP_TRACE") return text + ": see --trace.";
  if (name == "DDP_JOIN" || name == "DDP_JOIN_FILE") return text + ": see --max-restarts.";
  if (name == "MASTER_ADDR") return text + ": for several machines write --rendezvous HOST:PORT, or --hosts.";
  return "";
}

Rank launch_rank(const Job& job, int32_t rank, int input, const std::vector<std::string>& extra) {
  std::vector<std::string> environment = job.environment;
  for (const std::string& assignment : extra) set(environment, assignment);
  const bool is_host = !job.commands.empty();
  if (!is_host) {
    set(environment, "RANK=" + std::to_string(job.names.first + rank));
    set(environment, "LOCAL_RANK=" + std::to_string(rank));
  }
  std::vector<std::string> arguments = is_host ? job.commands[static_cast<size_t>(rank)] : job.arguments;
  const std::vector<char*> argument_list = pointers(arguments), environment_list = pointers(environment);

  const winsize size = terminal_size(job.prefix_width.value_or(0));
  Channel out = job.prefix_width ? make_terminal(size) : make_pipe(),
          err = job.prefix_width ? make_terminal(size) : make_pipe();
  Channel failure = make_pipe();
  const Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::vector<cpu_set_t> processors =
      job.placed.empty() ? std::vector<cpu_set_t>() : mask_of(job.placed[static_cast<size_t>(rank)]);
  const ChildPlan plan{job.program.c_str(),
                       job.folder.c_str(),
                       const_cast<char**>(argument_list.data()),
                       const_cast<char**>(environment_list.data()),
                       job.signal_mask,
                       getpid(),
                       input >= 0 ? input : null.get(),
                       out.theirs.get(),
                       err.theirs.get(),
                       failure.theirs.get(),
                       processors};
  const pid_t pid = fork();
  if (pid < 0) {
    throw make_error(DDP_ERROR_OUT_OF_MEMORY, "Rank %d could not be started (%s): use fewer ranks or %s.",
                     job.names.first + rank, strerror(errno),
                     errno == ENOMEM ? "give them more memory (ulimit -v, the container's limit)" : "raise ulimit -u");
  }
  if (pid == 0) become_rank(plan);
  setpgid(pid, pid);  // also here: the group exists before any signal, whichever process is first
  failure.theirs.reset();
  const int cause = read_failure(failure.ours.get());
  if (cause != 0) {
    waitpid(pid, nullptr, 0);
    const char* hint = cause == ENOEXEC  ? " (a script needs a first line such as #!/bin/sh)"
                       : cause == ENOENT ? " (the interpreter in its first line, or its loader)"
                                         : "";
    throw ExitError{kExitNotExecutable, "The program " + job.program + " cannot be run: " + strerror(cause) + hint + "."};
  }
  fcntl(out.ours.get(), F_SETFL, O_NONBLOCK);
  fcntl(err.ours.get(), F_SETFL, O_NONBLOCK);
  return {pid, std::move(out.ours), std::move(err.ours)};
}

}  // namespace ddp::ddprun
