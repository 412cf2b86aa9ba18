// SPDX-License-Identifier: Apache-2.0
// Ranks on processors, from topologies that this machine need not have.
#include "ddprun/binding.hpp"

#include "support/check.hpp"

using namespace ddp::ddprun;

std::string text_of(const std::vector<Processors>& list) {
  std::string text;
  for (const Processors& one : list) text += to_text(one) + " ";
  return text;
}

// Two nodes of four cores with two threads each, numbered as Intel's are: the second threads come behind all first ones.
Topology two_nodes() {
  return {{parse_processors("0-3,8-11"), parse_processors("4-7,12-15")},
          {{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15}}};
}

ddp_case(lists_of_processors) {
  expect_equal(to_text(parse_processors("0-3,8,10-11")), std::string("0-3,8,10-11"), "there and back");
  expect_equal(to_text(parse_processors("3,1,2,2")), std::string("1-3"), "in order, each once");
  for (const char* wrong : {"", "x", "1-", "-1", "1-x", "1,,2", "99999999"}) expect(parse_processors(wrong).empty(), wrong);
}

ddp_case(ranks_on_nodes) {
  expect_equal(text_of(place_ranks(two_nodes(), 2, Bind::kAuto)), std::string("0-3,8-11 4-7,12-15 "),
               "a node each, by itself");
  expect_equal(text_of(place_ranks(two_nodes(), 4, Bind::kNuma)), std::string("0-3,8-11 0-3,8-11 4-7,12-15 4-7,12-15 "),
               "neighbours share one");
  expect_equal(text_of(place_ranks(two_nodes(), 3, Bind::kNuma)), std::string("0-3,8-11 0-3,8-11 4-7,12-15 "), "three");
  expect_equal(text_of(place_ranks(two_nodes(), 1, Bind::kNuma)), std::string("0-15 "), "one has both");
  expect(place_ranks(two_nodes(), 1, Bind::kAuto).empty(), "one rank is not bound by itself");
  expect(place_ranks(two_nodes(), 2, Bind::kNone).empty(), "none");
  const Topology one{{{0, 1}}, {{0}, {1}}};
  expect(place_ranks(one, 2, Bind::kAuto).empty(), "one node: not bound by itself");
}

ddp_case(ranks_on_cores) {
  expect_equal(text_of(place_ranks(two_nodes(), 8, Bind::kCore)), std::string("0,8 1,9 2,10 3,11 4,12 5,13 6,14 7,15 "),
               "both threads of a core");
  expect_equal(text_of(place_ranks(two_nodes(), 3, Bind::kCore)), std::string("0-1,8-9 2-4,10-12 5-7,13-15 "),
               "all are used");
  expect_equal(text_of(place_ranks({{{0, 1}}, {{0}, {1}}}, 5, Bind::kCore)), std::string("0 0 0 1 1 "),
               "more ranks than cores");
  expect(place_ranks({}, 2, Bind::kCore).empty(), "nothing is known");
}

ddp_case(threads_fit_the_mask) {
  expect_equal(threads_of(place_ranks(two_nodes(), 2, Bind::kNuma)), 8, "a node each");
  expect_equal(threads_of(place_ranks(two_nodes(), 4, Bind::kNuma)), 4, "two share a node");
  expect_equal(threads_of(place_ranks(two_nodes(), 8, Bind::kCore)), 2, "a core each");
  expect_equal(threads_of({{0}, {0}, {1}}), 1, "at least one");
}

void put(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text << "\n";
}

ddp_case(what_the_kernel_says) {
  char folder[] = "/tmp/ddprun-test-XXXXXX";
  expect(mkdtemp(folder) != nullptr, "a folder");
  const std::string root = folder;
  expect_equal(text_of(read_topology(root, {0, 1, 5}).cores), std::string("0 1 5 "), "nothing there: cores");
  expect_equal(text_of(read_topology(root, {0, 1, 5}).nodes), std::string("0-1,5 "), "nothing there: nodes");
  put(root + "/node/online", "0-2");
  put(root + "/node/node0/cpulist", "0-3");
  put(root + "/node/node1/cpulist", "4-7");
  put(root + "/node/node2/cpulist", "");  // memory alone
  for (int i = 0; i < 8; ++i)
    put(root + "/cpu/cpu" + std::to_string(i) + "/topology/thread_siblings_list",
        std::to_string(i / 2 * 2) + "-" + std::to_string(i / 2 * 2 + 1));
  const Topology all = read_topology(root, parse_processors("0-7"));
  expect_equal(text_of(all.nodes), std::string("0-3 4-7 "), "nodes");
  expect_equal(text_of(all.cores), std::string("0-1 2-3 4-5 6-7 "), "cores");
  const Topology part = read_topology(root, parse_processors("1,4-6"));
  expect_equal(text_of(part.nodes), std::string("1 4-6 "), "what may be used of the nodes");
  expect_equal(text_of(part.cores), std::string("1 4-5 6 "), "and of the cores");
  expect_equal(text_of(read_topology(root, parse_processors("6-9")).nodes), std::string("6-9 "),
               "nodes that do not say all");
  std::filesystem::remove_all(root);
}
