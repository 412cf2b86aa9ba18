// SPDX-License-Identifier: Apache-2.0
// ddprun: the command line. README.md has its contract; ddprun --help shows how to use it.
// Tested by process/ddprun_test.sh.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>

#include "core/error.hpp"
#include "ddprun/allocation.hpp"
#include "ddprun/check.hpp"
#include "ddprun/command_line.hpp"
#include "ddprun/foreign.hpp"
#include "ddprun/hosts.hpp"
#include "ddprun/launch.hpp"
#include "ddprun/lead.hpp"
#include "ddprun/machine.hpp"
#include "ddprun/options.hpp"
#include "ddprun/report_file.hpp"
#include "ddprun/supervise.hpp"

namespace ddp::ddprun {
namespace {

// The text of ddprun --help before and after the options.
const char* const kDescription =
    "Usage: ddprun [options] program [arguments]\n"
    "\n"
    "Starts a program several times, on this machine or on several, as the ranks of one training job.\n"
    "\n"
    "  ddprun -n 4 ./train --epochs 10\n"
    "  ddprun -n 2 python3 train.py\n"
    "  ddprun -n 8 --output-dir logs --show 0 ./train   # files for every rank, rank 0 here as well\n"
    "  ddprun --hosts a:4,b:4 ./train                   # through ssh, from any machine\n"
    "  ddprun --nnodes 2 --node-rank R --rendezvous a:29500 -n 4 ./train   # by hand, on each machine\n"
    "  ddprun -n 4 --report job.html ./train            # a page with charts when it is over\n"
    "  ddprun -n 4 --metrics job.prom ./train           # the newest numbers, once a second, for Prometheus\n"
    "  ddprun --check -n 4                              # what is right and wrong with this machine, or --hosts";

const char* const kFooter =
    "What each rank finds in its environment:\n"
    "  RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT   as torchrun sets them\n"
    "  DDP_TOKEN            a secret that admits only these ranks; one that is set already is kept\n"
    "  OMP_NUM_THREADS      cores / ranks, unless it is set or there is one rank\n"
    "  DDP_JOIN_FILE        where ranks that are started again find the others (--max-restarts, --min-ranks)\n"
    "  DDP_WATCH_DIR        where ranks write their progress (--report, --metrics, --trace, or on a terminal)\n"
    "  DDP_TRACE            set if the ranks are traced (--trace)\n"
    "  DDP_JOIN             1 for a rank that is to join the others\n"
    "  DDP_RESTARTS         how often ranks were started again before this one, if they were\n"
    "  PYTHONUNBUFFERED     1, unless it is set\n"
    "  PAGER, GIT_PAGER     cat\n"
    "  TERM, NO_COLOR       dumb and 1, if the output goes anywhere but to a terminal\n"
    "\n"
    "Several machines\n"
    "  --hosts starts ddprun on each host through ssh, in the folder of the same name, and sends --env and the\n"
    "  variables that begin with DDP_, NCCL_, OMP_ or GLOO_. The token is made here, and is in no command line. There\n"
    "  is one output and one exit code; when ddprun or a connection ends, the ranks there end. In a job of Slurm or PBS\n"
    "  the hosts are found without --hosts. --nnodes is the same by hand: the same line on every machine, with its own\n"
    "  --node-rank, and DDP_TOKEN set to the same secret.\n"
    "\n"
    "Input       Rank 0 gets it, but not with --hosts. The other ranks read /dev/null.\n"
    "Output      Each line begins with its rank. stdout and stderr of a rank are terminals of their own, so a program\n"
    "            writes its lines at once and none is lost when it is killed. A line without end is shown after a moment.\n"
    "A failure   ddprun names the first rank that fails and shows its last lines. The other ranks get the grace time,\n"
    "            then SIGTERM, 5 s later SIGKILL. With --min-ranks and --max-restarts a job continues: the program\n"
    "            then makes its group with recoverable = 1 and calls ddp_group_recover.\n"
    "Errors      include/ERROR_TEXTS.md, a page of the guide, explains errors of libddp by their text.\n"
    "Progress    On a terminal the last row has the progress of a job that uses libddp: steps a second, the share of the\n"
    "            communication that is hidden, a rank that the others wait for, and numbers of ddp_group_log_metric.\n"
    "            --quiet leaves it out.\n"
    "Signals     INT, TERM, HUP, QUIT, USR1, USR2 and WINCH are sent to all ranks. After TERM the ranks get the\n"
    "            grace time, then SIGKILL. A second Ctrl-C sends SIGKILL at once.\n"
    "The end     No rank outlives ddprun, however ddprun ends.\n"
    "\n"
    "Exit code\n"
    "  0          all ranks succeeded (with --keep-going: at least one; with\n"
    "             --min-ranks or --max-restarts: enough of them)\n"
    "  1 to 255   that of the rank that failed first; 128 + signal if a signal killed it\n"
    "  128 + S    signal S ended ddprun's job, however the ranks ended: 130 for Ctrl-C, 143 for SIGTERM\n"
    "  124        --timeout was over\n"
    "  2          wrong usage\n"
    "  125        ddprun itself failed\n"
    "  126, 127   the program cannot be run; it was not found\n"
    "  With --check: 0 if nothing is wrong, 1 if something is\n";

// The description has the usage line: CLI11 does not know that a program follows.
class Formatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override { return ""; }
  /// One empty line between groups.
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (size_t at = text.find("\n\n\n"); at != text.npos; at = text.find("\n\n\n")) text.erase(at, 1);
    return text;
  }
};

constexpr int32_t kMostRanks = 4096;

// "all", "none", or numbers and ranges between commas.
std::vector<bool> parse_ranks(const std::string& text, int32_t ranks) {
  if (text == "all" || text == "none") return std::vector<bool>(static_cast<size_t>(ranks), text == "all");
  std::vector<bool> chosen(static_cast<size_t>(ranks));
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = 0, last = 0, length = 0;
    const bool range = sscanf(part.c_str(), "%d-%d%n", &first, &last, &length) == 2;
    if (!range && sscanf(part.c_str(), "%d%n", &first, &length) == 1) last = first;
    if (length == 0 || part.size() != static_cast<size_t>(length) || first < 0 || last < first || last >= ranks) {
      refuse("--show needs all, none, or ranks from 0 to " + std::to_string(ranks - 1) + " such as 0,2-3, not " + text +
             ".");
    }
    for (int rank = first; rank <= last; ++rank) chosen[static_cast<size_t>(rank)] = true;
  }
  return chosen;
}

// CLI11 has parsed numbers; their ranges are checked here.
void check(const Options& options) {
  const auto number = [](double value) {
    char text[32];
    snprintf(text, sizeof text, "%g", value);
    return std::string(text);
  };
  if (options.max_restarts < 0)
    refuse("--max-restarts must be 0 or more, not " + std::to_string(options.max_restarts) + ".");
  int32_t ranks = options.machines.hosts.empty() ? options.ranks : 0;
  for (const Host& host : options.machines.hosts) ranks += host.ranks;
  if (options.min_ranks < 0 || options.min_ranks > ranks)
    refuse("--min-ranks must be from 1 to the number of ranks, " + std::to_string(ranks) + ", not " +
           std::to_string(options.min_ranks) + ".");
  if (options.survives() && options.keep_going) refuse("--keep-going is --min-ranks 1; give one of them.");
  if (options.port < 0 || options.port > 65535)
    refuse("--port must be from 1 to 65535, not " + std::to_string(options.port) + ".");
  if (!(options.limits.grace_s >= 0 && options.limits.grace_s < 1e9))
    refuse("--grace must be 0 or more seconds, not " + number(options.limits.grace_s) + ".");
  if (!(options.machines.silence_s >= 3 && options.machines.silence_s < 1e6))
    refuse("--silence must be 3 or more seconds, not " + number(options.machines.silence_s) + ".");
  if (!(options.limits.timeout_s >= 0 && options.limits.timeout_s < 1e9)) {
    refuse("--timeout must be a number of seconds, not " + number(options.limits.timeout_s) + ".");
  }
  for (const auto& assignment : options.environment) {
    if (assignment.find('=') == std::string::npos || assignment.front() == '=')
      refuse("--env needs NAME=VALUE, not " + assignment + ".");
    const std::string text = refuse_variable(assignment.substr(0, assignment.find('=')));
    if (!text.empty()) throw ExitError{kExitUsage, "--env " + assignment + ": " + text};
  }
  if (!options.telling.report.empty())
    if (const std::string text = refuse_report(options.telling.report); !text.empty()) throw ExitError{kExitUsage, text};
  if (!options.telling.metrics.empty())
    if (const std::string text = refuse_file("--metrics", options.telling.metrics); !text.empty())
      throw ExitError{kExitUsage, text};
  if (options.command.empty()) refuse("Which program? For example: ddprun -n 4 ./train.");
  if (options.command.front().starts_with('-')) refuse("There is no option " + options.command.front() + ".");
}

Bind parse_bind(const std::string& text) {
  if (text == "core") return Bind::kCore;
  if (text == "numa") return Bind::kNuma;
  if (text == "none") return Bind::kNone;
  if (!text.empty()) refuse("--bind needs core, numa or none, not " + text + ".");
  return Bind::kAuto;
}

std::string read_hostfile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!(text << file.rdbuf())) refuse("--hostfile: the file " + path + " cannot be read, or is empty.");
  return text.str();
}

void check_rendezvous(const std::string& text) {
  const size_t colon = text.rfind(':');
  int port = 0, length = 0;
  const bool number = colon != std::string::npos && sscanf(text.c_str() + colon + 1, "%d%n", &port, &length) == 1 &&
                      colon + 1 + static_cast<size_t>(length) == text.size();
  if (!number || colon == 0 || port < 1 || port > 65535)
    refuse("--rendezvous needs the first machine and a port, as a:29500, not " + text + ".");
}

// Inside an allocation, if the machines were not named otherwise. A single machine is started without ssh.
void use_allocation(Options& options, Words& words) {
  const auto found = find_allocation([](const char* name) -> const char* { return getenv(name); },
                                     [](const std::string& path) -> std::optional<std::string> {
                                       std::ifstream file(path);
                                       std::ostringstream text;
                                       if (!file || !(text << file.rdbuf())) return std::nullopt;
                                       return text.str();
                                     });
  if (!found.has_value()) return;
  if (found->hosts.size() == 1) {
    words.ranks = found->hosts.front().ranks;
    return;
  }
  options.machines.found = found->system + " (" + found->name + ")";
  for (const Host& host : found->hosts) {
    const int32_t ranks = host.ranks > 0 ? host.ranks : usable_cores();
    words.hosts += (words.hosts.empty() ? "" : ",") + host.name + ":" + std::to_string(ranks);
  }
}

// Which machines there are, and which ranks this one has.
void place(Options& options, const Words& words, bool ranks_given) {
  if (ranks_given && (words.ranks < 1 || words.ranks > kMostRanks))
    refuse("-n must be from 1 to " + std::to_string(kMostRanks) + ", not " + std::to_string(words.ranks) + ".");
  const bool by_hosts = !words.hosts.empty() || !words.hostfile.empty(), by_hand = words.nodes != 1 || words.node >= 0;
  if (!words.hosts.empty() && !words.hostfile.empty()) refuse("Give --hosts or --hostfile, not both.");
  if (by_hosts && words.nodes != 1)
    refuse("--hosts starts all machines from here; --nnodes is for one line on each. Give one.");
  if (!options.machines.rendezvous.empty()) check_rendezvous(options.machines.rendezvous);
  options.ranks = ranks_given ? words.ranks : usable_cores();
  options.machines.placement = {options.ranks};
  if (by_hosts) {
    options.machines.hosts = words.hosts.empty() ? parse_hostfile(read_hostfile(words.hostfile), words.hostfile, words.ranks)
                                                 : parse_hosts(words.hosts, words.ranks);
    if (options.machines.rendezvous.empty()) {
      const int32_t port = options.port > 0 ? options.port : find_free_port();
      options.machines.rendezvous = address_of(options.machines.hosts.front()) + ":" + std::to_string(port);
    }
    options.ranks = static_cast<int32_t>(options.machines.hosts.size());
    options.machines.placement = {options.ranks};
  } else if (!words.placement.empty()) {
    options.machines.placement = parse_placement(words.placement);
  } else if (by_hand) {
    if (words.nodes < 1 || words.nodes > kMostRanks)
      refuse("--nnodes must be from 1 to " + std::to_string(kMostRanks) + ", not " + std::to_string(words.nodes) + ".");
    if (!ranks_given) refuse("--nnodes needs -n: how many ranks each machine starts.");
    options.machines.placement.assign(static_cast<size_t>(words.nodes), words.ranks);
  }
  const auto machines = static_cast<int32_t>(options.machines.placement.size());
  if (machines > 1 && options.machines.rendezvous.empty())
    refuse("--nnodes needs --rendezvous HOST:PORT: the first machine, and a port that is free there.");
  if (by_hand && (words.node < 0 || words.node >= machines))
    refuse("--node-rank must be from 0 to " + std::to_string(machines - 1) + ", another one on each machine.");
  options.machines.node = std::max(words.node, 0);
  if (!words.placement.empty()) options.ranks = options.machines.placement[static_cast<size_t>(options.machines.node)];
  const bool survives = options.max_restarts > 0 || options.min_ranks > 0 || options.keep_going;
  if (by_hand && machines > 1 && survives && !options.machines.led)
    refuse("--max-restarts, --min-ranks and --keep-going need one ddprun that knows all ranks: use --hosts.");
}

// By process that this ddprun starts.
std::vector<bool> shown_here(const Options& options) {
  if (options.machines.hosts.empty()) {
    const std::vector<bool> all = parse_ranks(options.machines.show, options.machines.world_size());
    const auto first = all.begin() + options.machines.first_rank();
    return {first, first + options.ranks};
  }
  int32_t world = 0;
  for (const Host& host : options.machines.hosts) world += host.ranks;
  static_cast<void>(parse_ranks(options.machines.show, world));  // the hosts choose
  return std::vector<bool>(options.machines.hosts.size(), true);
}

// Is stderr a terminal that no other program writes to? A program that reads stdout through a pipe often does.
bool owns_terminal() {
  struct stat out {};
  return isatty(2) == 1 && (fstat(1, &out) != 0 || !(S_ISFIFO(out.st_mode) || S_ISSOCK(out.st_mode)));
}

[[noreturn]] void check_machines(const Options& options, const Words& words, std::vector<std::string> given) {
  if (!options.command.empty()) refuse("--check starts no program: leave out " + options.command.front() + ".");
  std::erase_if(given, [](const std::string& word) { return word == "--check" || word == "--json"; });
  throw ExitError{run_check(given, words.json), ""};
}

// Everything from the first word that is not an option is the program's, also what looks like our options.
Options parse(int argc, char** argv) {
  Options options;
  Words words;
  CLI::App app(kDescription, "ddprun");
  app.formatter(std::make_shared<Formatter>());
  app.footer(kFooter);
  app.prefix_command();
  add_options(app, options, words);
  std::vector<const char*> typed(argv, argv + argc);
  check_names(app, typed);
  try {
    app.parse(argc, typed.data());
  } catch (const CLI::Success& success) {  // --help, --version
    app.exit(success);
    throw ExitError{0, ""};
  } catch (const CLI::ParseError& error) {
    refuse_words(error.what());
  }
  options.command = app.remaining();
  if (words.check) check_machines(options, words, {argv + 1, argv + argc});
  if (words.json) refuse("--json is for --check.");
  if (!options.command.empty() && options.command.front() == "--") options.command.erase(options.command.begin());
  const bool named = !words.hosts.empty() || !words.hostfile.empty() || words.nodes != 1 || words.node >= 0;
  bool ranks_given = app.get_option("-n")->count() > 0;
  if (!named && !ranks_given && words.placement.empty()) {
    use_allocation(options, words);
    ranks_given = words.ranks > 0;
  }
  options.bind = parse_bind(words.bind);
  place(options, words, ranks_given);
  check(options);
  check_program(app, options);
  if (options.machines.show.empty()) options.machines.show = options.output_dir.empty() ? "all" : "none";
  options.shown = shown_here(options);
  options.telling.shows_progress = !words.quiet && !options.machines.led && options.prefix && owns_terminal();
  return options;
}

// Descriptors 0 to 2 must be taken, or a pipe to a rank would get such a number.
void open_standard_descriptors() {
  for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = open("/dev/null", O_RDWR)) {
    if (fd <= 2) continue;
    close(fd);
    return;
  }
}

int guarded_main(int argc, char** argv) {
  try {
    open_standard_descriptors();
    if (argc == 2 && (argv[1] == std::string(kCheckRank) || argv[1] == std::string(kCheckRankJson)))
      return check_as_rank(argv[1] == std::string(kCheckRankJson));
    const Options options = parse(argc, argv);
    if (options.machines.led) Leash::read_environment();
    return run_job(options);
  } catch (const ExitError& error) {
    if (!error.text.empty()) fprintf(stderr, "ddprun: %s\n", error.text.c_str());
    return error.code;
  } catch (const std::exception& error) {
    fprintf(stderr, "ddprun: %s\n", error.what());
    return kExitInternal;
  }
}

}  // namespace
}  // namespace ddp::ddprun

int main(int argc, char** argv) { return ddp::ddprun::guarded_main(argc, argv); }
