// SPDX-License-Identifier: Apache-2.0
// Which machines a job has, and the command lines that start ddprun on them.
#include "ddprun/hosts.hpp"

#include "ddprun/launch.hpp"
#include "support/check.hpp"

using namespace ddp::ddprun;

std::string text_of(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) text += host.name + "=" + std::to_string(host.ranks) + " ";
  return text;
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

ddp_case(lists_of_hosts) {
  expect_equal(text_of(parse_hosts("a:4,user@b:2", 0)), std::string("a=4 user@b=2 "), "numbers");
  expect_equal(text_of(parse_hosts("a,b:2,c", 3)), std::string("a=3 b=2 c=3 "), "-n where there is none");
  expect_equal(text_of(parse_hosts("[fd00::1]:8,u@[fd00::2]", 1)), std::string("[fd00::1]=8 u@[fd00::2]=1 "), "IPv6");
  expect_refused("how many ranks on a", [] { (void)parse_hosts("a", 0); });
  expect_refused("number of ranks from 1", [] { (void)parse_hosts("a:0", 1); });
  expect_refused("number of ranks from 1", [] { (void)parse_hosts("a:x", 1); });
  expect_refused("twice", [] { (void)parse_hosts("a:1,a:2", 1); });
  expect_refused("brackets", [] { (void)parse_hosts("fd00::1:4", 1); });
  expect_refused("needs hosts", [] { (void)parse_hosts("", 1); });
  expect_refused("needs hosts", [] { (void)parse_hosts("a:1,,b:1", 1); });
  expect_refused("needs hosts", [] { (void)parse_hosts("-oProxyCommand=x:1", 1); });
  for (const char* option :
       {"[-oProxyCommand=x]:1", "u@-oProxyCommand=x:1", "u@[-oProxyCommand=x]:1", "[-x", "]-x:1", "@-x"})
    expect_refused("needs hosts", [option] { (void)parse_hosts(option, 1); });
  expect_refused("needs hosts", [] { (void)parse_hosts("a b:1", 1); });
  expect_refused("needs hosts", [] { (void)parse_hosts("a,\nb", 1); });
}

ddp_case(files_of_hosts) {
  const std::string file = "# two machines\n\n  a slots=4   # big\nuser@b:2\nc\n";
  expect_equal(text_of(parse_hostfile(file, "f", 1)), std::string("a=4 user@b=2 c=1 "), "hosts");
  expect_refused("a line is a host", [] { (void)parse_hostfile("a 4\n", "f", 1); });
  expect_refused("a line is a host", [] { (void)parse_hostfile("a slots=4 b\n", "f", 1); });
  expect_refused("names no host", [] { (void)parse_hostfile("# nothing\n", "f", 1); });
}

ddp_case(addresses) {
  expect_equal(address_of(Host{"user@b", 1}), std::string("b"), "user");
  expect_equal(address_of(Host{"u@[fd00::2]", 1}), std::string("fd00::2"), "brackets");
}

std::string said_by(const std::vector<std::string>& arguments) {
  std::string line;
  for (const std::string& argument : arguments) line += (line.empty() ? "" : " ") + shell_word(argument);
  FILE* const pipe = popen(line.c_str(), "r");
  expect(pipe != nullptr, "a shell");
  std::string text;
  std::array<char, 256> buffer{};
  for (size_t got = 0; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) text.append(buffer.data(), got);
  expect_equal(pclose(pipe), 0, "exit code of the shell");
  return text;
}

// A shell reads the words as they were meant, whatever their characters are.
ddp_case(words_reach_the_program_as_they_are) {
  Options options;
  options.machines.hosts = {{"a", 4}, {"user@[fd00::2]", 2}};
  options.machines.rendezvous = "a:29500";
  options.command = {"it's", "a b", "$HOME", "\"x\"", "", "`id`", "--show", "*"};
  options.machines.show = "0,5";
  const std::vector<std::string> command = remote_command(options, 1, "/tmp", "printf '%s\\n' led");
  expect_equal(command[0], std::string("ssh"), "program");
  expect_equal(command[command.size() - 2], std::string("user@fd00::2"), "whom ssh calls");
  expect_equal(command[command.size() - 3], std::string("--"), "the end of ssh's options");
  // ssh gives its last argument to a shell; the program has a strange name, so a plain one replaces it.
  const std::vector<std::string> real = remote_command(options, 1, "/tmp", "/usr/bin/printf");
  std::string script = real.back();
  const size_t at = script.find("'\\''--led'\\''");
  expect(at != std::string::npos, script);
  script.insert(at, "'\\''[%s]'\\'' ");
  expect_equal(said_by({"sh", "-c", script}),
               std::string("[--led][--node-rank][1][--placement][4,2][--rendezvous][a:29500][--grace][5][--show][0,5][--]"
                           "[it's][a b][$HOME][\"x\"][][`id`][--show][*]"),
               "words");
}

ddp_case(another_command_than_ssh) {
  Options options;
  options.machines.hosts = {{"a", 1}};
  options.machines.ssh = "my-shell -v";
  options.command = {"true"};
  const std::vector<std::string> command = remote_command(options, 0, "/", "ddprun");
  expect_equal(command.size(), size_t{4}, "words");
  expect(command[0] == "my-shell" && command[1] == "-v" && command[2] == "a", "its own options only");
}
