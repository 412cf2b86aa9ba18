// ddprun: the command line. README.md says what it promises; ddprun --help says how to use it.
// Tested by process/ddprun_test.sh.
#include <fcntl.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/error.hpp"
#include "run/launch.hpp"
#include "run/machine.hpp"
#include "run/options.hpp"
#include "run/supervise.hpp"

namespace ddp::run {
namespace {

constexpr const char* kDescription =
    "Usage: ddprun [options] program [arguments]\n"
    "\n"
    "Start a program several times on this machine, as the ranks of one training job.\n"
    "\n"
    "  ddprun -n 4 ./train --epochs 10\n"
    "  ddprun -n 2 python3 train.py\n"
    "\n"
    "Each rank finds in its environment who it is and where to meet the others: RANK, WORLD_SIZE,\n"
    "LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (as torchrun sets them) and DDP_TOKEN,\n"
    "a secret that admits only these ranks. ddp_group_create(NULL, NULL, &group) reads them.";

constexpr const char* kFooter =
    "What else is set: OMP_NUM_THREADS=1 for more than one rank, and PYTHONUNBUFFERED=1, unless they are set already.\n"
    "Input goes to rank 0; the others read /dev/null.\n"
    "When a rank fails, the others get the grace time, then SIGTERM, and SIGKILL 5 s later. Ctrl-C goes to all\n"
    "ranks; a second one kills them. No rank outlives ddprun, however it ends.\n"
    "\n"
    "Exit code: 0 if all ranks succeed, else that of the rank that failed first (128 + signal), 124 after --timeout,\n"
    "2 wrong usage, 125 ddprun itself failed, 126 the program cannot be run, 127 it was not found.\n";

// The description has the usage line: CLI11 does not know that a program follows.
class Formatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override { return ""; }
};

constexpr int32_t kMostRanks = 4096;

void add_options(CLI::App& app, Options& options) {
  const std::string cores = std::to_string(options.ranks);
  app.add_option("-n,--ranks", options.ranks, "Number of ranks; without it the number of cores, here " + cores)
      ->type_name("N");
  app.add_option("--port", options.port, "TCP port on which the ranks meet; without it a free one")->type_name("PORT");
  app.add_option("--env", options.environment, "Set a variable for the ranks; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);  // one value each, or it would swallow the program
  app.add_option("--output-dir", options.output_dir, "Write the output of rank R to DIR/rank-R.txt instead of here")
      ->type_name("DIR");
  app.add_flag_callback(
      "--no-prefix", [&options] { options.prefix = false; }, "Do not begin each line of output with [rank]");
  app.add_option("--grace", options.grace_s, "Time for the others to end by themselves after a rank has failed (default 5)")
      ->type_name("SECONDS");
  app.add_option("--timeout", options.timeout_s, "End the job after this time")->type_name("SECONDS");
  app.add_flag("-v,--verbose", options.verbose, "Say what is set, and how each rank ended");
  app.set_version_flag("--version", std::string("ddprun ") + DDP_VERSION_STRING);
  app.set_help_flag("-h,--help", "Print this help");
}

[[noreturn]] void refuse(const std::string& text) { throw ExitError{kExitUsage, text + " Try ddprun --help."}; }

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
}  // namespace ddp::run

int main(int argc, char** argv) { return ddp::run::guarded_main(argc, argv); }
