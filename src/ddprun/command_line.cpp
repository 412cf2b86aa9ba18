// SPDX-License-Identifier: Apache-2.0
// Tested by process/ddprun_test.sh.
#include "ddprun/command_line.hpp"

#include <CLI/CLI.hpp>

#include "ddp/types.h"
#include "ddprun/machine.hpp"

namespace ddp::ddprun {
namespace {

/// Where the ranks are.
void add_machines(CLI::App& app, Options& options, Words& words) {
  constexpr const char* kGroup = "Several machines";
  app.add_option("--hosts", words.hosts, "Start the ranks on these hosts, through ssh; without numbers -n on each")
      ->type_name("HOST:N,...")
      ->group(kGroup);
  app.add_option("--hostfile", words.hostfile, "The same from a file: a host in each line, as a:4 or a slots=4")
      ->type_name("FILE")
      ->group(kGroup);
  app.add_option("--ssh", options.machines.ssh, "What starts a command on a host (default: ssh)")
      ->type_name("COMMAND")
      ->group(kGroup);
  app.add_option("--ddprun", options.machines.ddprun, "With --hosts: the path of ddprun there (default: as here)")
      ->type_name("PATH")
      ->group(kGroup);
  app.add_option("--silence", options.machines.silence_s,
                 "With --hosts: end the ranks of a host that gets no data from this ddprun for this time (default: 30)")
      ->type_name("SECONDS")
      ->group(kGroup);
  app.add_option("--nnodes", words.nodes, "Number of machines on which this line is given; each starts -n ranks")
      ->type_name("N")
      ->group(kGroup);
  app.add_option("--node-rank", words.node, "Which of them this is: 0 to N - 1")->type_name("R")->group(kGroup);
  app.add_option("--rendezvous", options.machines.rendezvous,
                 "Where the ranks of several machines meet: the first machine, and a port that is free there")
      ->type_name("HOST:PORT")
      ->group(kGroup);
  app.add_option("--placement", words.placement)->group("");  // by a ddprun that leads this one
  app.add_flag("--led", options.machines.led)->group("");
  app.add_flag("--watched", options.telling.watched)->group("");
  app.add_flag("--traced", options.telling.traced)->group("");
  app.add_flag("--obey", options.machines.obeys)->group("");
}

void add_ranks(CLI::App& app, Options& options, Words& words) {
  constexpr const char* kGroup = "Ranks";
  const std::string cores = std::to_string(usable_cores());
  app.add_option("-n,--ranks", words.ranks,
                 "Number of ranks on this machine (default: what Slurm or PBS gave, else its cores, here " + cores + ")")
      ->type_name("N")
      ->group(kGroup);
  app.add_option("--env", options.environment, "Set a variable for the ranks; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false)  // one value each, or it would swallow the program
      ->group(kGroup);
  app.add_option("--chdir", options.machines.folder,
                 "Start the ranks in this folder, with --hosts on each host (default: this one)")
      ->type_name("DIR")
      ->group(kGroup);
  app.add_option("--port", options.port, "TCP port on which the ranks meet (default: a free one)")
      ->type_name("PORT")
      ->group(kGroup);
  app.add_option(
         "--bind", words.bind,
         "Bind each rank to its share of the cores (core), to a NUMA node (numa), or not (none); default: numa where "
         "there are several nodes")
      ->type_name("HOW")
      ->group(kGroup);
}

void add_output(CLI::App& app, Options& options, Words& words) {
  constexpr const char* kGroup = "Output";
  app.add_option("--output-dir", options.output_dir,
                 "Write each rank's output to DIR/rank-R/stdout.txt and stderr.txt, not here (but see --show)")
      ->type_name("DIR")
      ->group(kGroup);
  app.add_option("--show", options.machines.show, "Show only these ranks here: all, none, or a list such as 0 or 0,4-7")
      ->type_name("RANKS")
      ->group(kGroup);
  app.add_flag_callback(
         "--no-prefix", [&options] { options.prefix = false; }, "Do not begin each line with [rank]")
      ->group(kGroup);
  app.add_flag_callback(
         "--no-pty", [&options] { options.terminals = false; },
         "Give the ranks pipes for their output, not terminals; programs then buffer it")
      ->group(kGroup);
  app.add_flag("-q,--quiet", words.quiet, "Show no progress line on the terminal")->group(kGroup);
  app.add_flag("-v,--verbose", options.telling.verbose, "Print what is set, and how each rank ended")->group(kGroup);
}

void add_failures(CLI::App& app, Options& options) {
  constexpr const char* kGroup = "Failures and time limits";
  app.add_option("--max-restarts", options.max_restarts,
                 "Start ranks that fail again, up to K times: they join the others (DDP_JOIN=1), or, with fewer than "
                 "--min-ranks left, all start again (default: 0)")
      ->type_name("K")
      ->group(kGroup);
  app.add_option("--min-ranks", options.min_ranks,
                 "Let the other ranks continue when some fail, if at least M are left; the job succeeds if M ranks do")
      ->type_name("M")
      ->group(kGroup);
  app.add_flag("--keep-going", options.keep_going,
               "Let the other ranks continue when one fails; the job succeeds if any rank does")
      ->group(kGroup);
  app.add_option("--timeout", options.limits.timeout_s, "End the job after this time (default: no limit)")
      ->type_name("SECONDS")
      ->group(kGroup);
  app.add_option("--grace", options.limits.grace_s,
                 "Time for ranks to exit after another has failed, or after SIGTERM (default: 5)")
      ->type_name("SECONDS")
      ->group(kGroup);
}

void add_reports(CLI::App& app, Options& options, Words& words) {
  constexpr const char* kGroup = "Reports";
  app.add_option("--report", options.telling.report,
                 "Write a page about the job when it is over: throughput, communication, memory, failures; and FILE.json")
      ->type_name("FILE.html")
      ->group(kGroup);
  app.add_option("--metrics", options.telling.metrics,
                 "Write the newest numbers of all ranks once a second, as OpenMetrics text (Prometheus)")
      ->type_name("FILE")
      ->group(kGroup);
  app.add_option("--trace", options.telling.trace,
                 "Write what all ranks did, and when, into a file that Perfetto and chrome://tracing open")
      ->type_name("FILE")
      ->group(kGroup);
  app.add_flag("--check", words.check, "Start no program: check these machines and measure them (some seconds)")
      ->group(kGroup);
  app.add_flag("--json", words.json, "With --check: as JSON")->group(kGroup);
}

}  // namespace

// The help has them in this order.
void add_options(CLI::App& app, Options& options, Words& words) {
  add_ranks(app, options, words);
  add_machines(app, options, words);
  add_output(app, options, words);
  add_failures(app, options);
  add_reports(app, options, words);
  app.set_version_flag("--version", std::string("ddprun ") + DDP_VERSION_STRING)->group("Help");
  app.set_help_flag("-h,--help", "Print this help")->group("Help");
}

}  // namespace ddp::ddprun
