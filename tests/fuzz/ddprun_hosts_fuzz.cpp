// SPDX-License-Identifier: Apache-2.0
// Any bytes as a list of machines, a file of machines, or the ranks of each. They are refused with a sentence, or what was
// understood can be given to ssh: a name that is no option, and a number of ranks.
#include <cstdint>
#include <string>
#include <vector>

#include "ddprun/hosts.hpp"
#include "ddprun/launch.hpp"
#include "fuzz/must.hpp"

namespace {

using namespace ddp::ddprun;

void check(const std::vector<Host>& hosts) {
  must(!hosts.empty(), "some host");
  for (const Host& host : hosts) {
    must(!host.name.empty() && host.name.front() != '-', "a name that is no option");
    must(host.name.find_first_of(" \t\n") == std::string::npos, "a name without spaces");
    must(host.ranks > 0, "ranks");
    const std::string address = address_of(host);
    must(!address.empty() && address.front() != '-', "an address that is no option");
  }
}

template <class Body>
void try_to(Body&& body) {
  try {
    body();
  } catch (const ExitError& error) {
    must(error.code == kExitUsage && !error.text.empty(), "refusals have a sentence");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int32_t ranks = data[0] % 4;
  try_to([&] { check(parse_hosts(text, ranks)); });
  try_to([&] { check(parse_hostfile(text, "hosts", ranks)); });
  try_to([&] {
    for (const int32_t each : parse_placement(text)) must(each > 0, "ranks of a machine");
  });
  const std::string word = shell_word(text);
  must(word.size() >= text.size(), "a word of a shell has all of it");
  return 0;
}
