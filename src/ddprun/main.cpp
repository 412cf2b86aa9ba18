// ddprun: the command line. README.md says what it promises; ddprun --help says how to use it.
// Tested by process/ddprun_test.sh.
#include <fcntl.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <sstream>

#include "core/error.hpp"
#include "ddprun/foreign.hpp"
#include "ddprun/launch.hpp"
#include "ddprun/machine.hpp"
#include "ddprun/options.hpp"
#include "ddprun/supervise.hpp"

namespace ddp::ddprun {
namespace {

constexpr const char* kDescription =
    "Usage: ddprun [options] program [arguments]\n"
    "\n"
    "Starts a program several times on this machine, as the ranks of one training job.\n"
    "\n"
    "  ddprun -n 4 ./train --epochs 10\n"
    "  ddprun -n 2 python3 train.py\n"
    "  ddprun -n 8 --output-dir logs --show 0 ./train   # files for every rank, rank 0 here as well";

constexpr const char* kFooter =
    "What each rank finds in its environment:\n"
    "  RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT   as torchrun sets them\n"
    "  DDP_TOKEN            a secret that admits only these ranks; one that is set already is kept\n"
    "  OMP_NUM_THREADS      cores / ranks, unless it is set or there is one rank\n"
    "  DDP_JOIN_FILE        where ranks that are started again find the others (--max-restarts, --min-ranks)\n"
    "  DDP_JOIN             1 for a rank that is to join the others\n"
    "  DDP_RESTARTS         how often ranks were started again before this one, if they were\n"
    "  PYTHONUNBUFFERED     1, unless it is set\n"
    "  PAGER, GIT_PAGER     cat\n"
    "  TERM, NO_COLOR       dumb and 1, if the output goes anywhere but to a terminal\n"
    "\n"
    "Input       Rank 0 gets it. The other ranks read /dev/null.\n"
    "Output      Each line begins with its rank. stdout and stderr of a rank are terminals of their own, so a program\n"
    "            writes its lines at once and none is lost when it is killed. A line without end is shown after a moment.\n"
    "A failure   ddprun names the first rank that fails and shows its last lines. The other ranks get the grace time,\n"
    "            then SIGTERM, 5 s later SIGKILL. With --min-ranks and --max-restarts a job goes on: the program then\n"
    "            makes its group with recoverable = 1 and calls ddp_group_recover.\n"
    "Signals     INT, TERM, HUP, QUIT, USR1, USR2 and WINCH are passed on to all ranks. After TERM the ranks get the\n"
    "            grace time, then SIGKILL. A second Ctrl-C sends SIGKILL at once.\n"
    "The end     No rank outlives ddprun, however ddprun ends.\n"
    "\n"
    "Exit code\n"
    "  0          all ranks succeeded (with --keep-going: at least one; with\n"
    "             --min-ranks or --max-restarts: enough of them)\n"
    "  1 to 255   that of the rank that failed first; 128 + signal if a signal killed it\n"
    "  128 + S    signal S told ddprun to stop, however the ranks ended: 130 for Ctrl-C, 143 for SIGTERM\n"
    "  124        --timeout was over\n"
    "  2          wrong usage\n"
    "  125        ddprun itself failed\n"
    "  126, 127   the program cannot be run; it was not found\n";

// The description has the usage line: CLI11 does not know that a program follows.
class Formatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override { return ""; }
};

constexpr int32_t kMostRanks = 4096;

void add_options(CLI::App& app, Options& options) {
  const std::string cores = std::to_string(options.ranks);
  app.add_option("-n,--ranks", options.ranks, "Number of ranks (default: the number of cores, here " + cores + ")")
      ->type_name("N");
  app.add_option("--env", options.environment, "Set a variable for the ranks; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);  // one value each, or it would swallow the program
  app.add_option("--port", options.port, "TCP port on which the ranks meet (default: a free one)")->type_name("PORT");
  app.add_option("--output-dir", options.output_dir,
                 "Write each rank's output to DIR/rank-R/stdout.txt and stderr.txt, not here (but see --show)")
      ->type_name("DIR");
  app.add_option("--show", options.show, "Show only these ranks here: all, none, or a list such as 0 or 0,4-7")
      ->type_name("RANKS");
  app.add_flag_callback(
      "--no-prefix", [&options] { options.prefix = false; }, "Do not begin each line with [rank]");
  app.add_flag_callback(
      "--no-pty", [&options] { options.terminals = false; },
      "Give the ranks pipes for their output, not terminals; programs then buffer it");
  app.add_option("--timeout", options.timeout_s, "End the job after this time (default: no limit)")->type_name("SECONDS");
  app.add_option("--grace", options.grace_s,
                 "Time for ranks to exit after another has failed, or after SIGTERM (default: 5)")
      ->type_name("SECONDS");
  app.add_flag("--keep-going", options.keep_going,
               "Let the other ranks go on when one fails; the job succeeds if any rank does");
  app.add_option(
         "--max-restarts", options.max_restarts,
         "Start ranks that fail again, so often: they join the others (DDP_JOIN=1), or, with fewer than --min-ranks left, "
         "all start again (default: 0)")
      ->type_name("K");
  app.add_option("--min-ranks", options.min_ranks,
                 "Let the other ranks go on when some fail, as long as so many are left; the job succeeds if so many do")
      ->type_name("M");
  app.add_flag("-v,--verbose", options.verbose, "Say what is set, and how each rank ended");
  app.set_version_flag("--version", std::string("ddprun ") + DDP_VERSION_STRING);
  app.set_help_flag("-h,--help", "Print this help");
}

[[noreturn]] void refuse(const std::string& text) { throw ExitError{kExitUsage, text + " Try ddprun --help."}; }

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

// Answers options of other launchers before CLI11 sees them: it would read -np 4 as -n p.
void check_names(const CLI::App& app, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with('-') || word == "--") return;  // the program begins
    const std::string name = word.substr(0, word.find('='));
    const CLI::Option* ours = app.get_option_no_throw(name);
    const std::string answer = ours == nullptr ? our_option(word) : "";
    if (!answer.empty()) throw ExitError{kExitUsage, "There is no option " + name + ": " + answer + "."};
    if (ours != nullptr && ours->get_expected_min() > 0 && name == word) ++i;  // its value
  }
}

// CLI11 has parsed numbers; here is what they may be.
void check(const Options& options) {
  const auto number = [](double value) {
    char text[32];
    snprintf(text, sizeof text, "%g", value);
    return std::string(text);
  };
  if (options.ranks < 1 || options.ranks > kMostRanks) {
    refuse("-n must be from 1 to " + std::to_string(kMostRanks) + ", not " + std::to_string(options.ranks) + ".");
  }
  if (options.max_restarts < 0)
    refuse("--max-restarts must be 0 or more, not " + std::to_string(options.max_restarts) + ".");
  if (options.min_ranks < 0 || options.min_ranks > options.ranks)
    refuse("--min-ranks must be from 1 to the number of ranks, " + std::to_string(options.ranks) + ", not " +
           std::to_string(options.min_ranks) + ".");
  if (options.survives() && options.keep_going) refuse("--keep-going is --min-ranks 1; give one of them.");
  if (options.port < 0 || options.port > 65535)
    refuse("--port must be from 1 to 65535, not " + std::to_string(options.port) + ".");
  if (!(options.grace_s >= 0 && options.grace_s < 1e9))
    refuse("--grace must be 0 or more seconds, not " + number(options.grace_s) + ".");
  if (!(options.timeout_s >= 0 && options.timeout_s < 1e9)) {
    refuse("--timeout must be a number of seconds, not " + number(options.timeout_s) + ".");
  }
  for (const auto& assignment : options.environment) {
    if (assignment.find('=') == std::string::npos || assignment.front() == '=')
      refuse("--env needs NAME=VALUE, not " + assignment + ".");
    const std::string text = refuse_variable(assignment.substr(0, assignment.find('=')));
    if (!text.empty()) throw ExitError{kExitUsage, "--env " + assignment + ": " + text};
  }
  if (options.command.empty()) refuse("Which program? For example: ddprun -n 4 ./train.");
  if (options.command.front().starts_with('-')) refuse("There is no option " + options.command.front() + ".");
}

// Everything from the first word that is not an option is the program's, also what looks like our options.
Options parse(int argc, char** argv) {
  Options options;
  options.ranks = usable_cores();
  CLI::App app(kDescription, "ddprun");
  app.formatter(std::make_shared<Formatter>());
  app.footer(kFooter);
  app.prefix_command();
  add_options(app, options);
  check_names(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    app.exit(success);
    throw ExitError{0, ""};
  } catch (const CLI::ParseError& error) {
    refuse(std::string(error.what()) + ".");
  }
  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--") options.command.erase(options.command.begin());
  check(options);
  if (options.show.empty()) options.show = options.output_dir.empty() ? "all" : "none";
  options.shown = parse_ranks(options.show, options.ranks);
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
    return run_job(parse(argc, argv));
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
