// SPDX-License-Identifier: Apache-2.0
// The tests of a program as a list that is made when it runs: bodies on the transports of support/group_paths.hpp, promises
// of a suite, and tests of their own. `--filter PATTERN` runs those whose names match (`*` and `?`).
//
//   Suite suite(argc, argv);
//   suite.on(kEveryTransport, {ddp_named(sums_are_right)});
//   suite.alone({ddp_named(nothing_stays)});
//   return suite.run();
#pragma once

#include <deque>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "support/group_paths.hpp"

namespace ddp::test {

class Suite {
 public:
  struct OnPath {
    const char* name;
    void (*body)(Path);
  };
  struct Alone {
    const char* name;
    void (*body)(void**);
  };

  Suite(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; ++i)
      if (std::string(argv[i]) == "--filter") cmocka_set_test_filter(argv[i + 1]);
  }
  Suite(const Suite&) = delete;
  Suite& operator=(const Suite&) = delete;

  /// All bodies on the first transport, then on the next one.
  void on(const Paths& paths, std::initializer_list<OnPath> bodies) {
    for (const Path path : paths)
      for (const OnPath& each : bodies) add(each.name, path, [path, body = each.body] { body(path); });
  }
  void on(const Paths& paths, const std::string& name, const std::function<void(Path)>& body) {
    for (const Path path : paths) add(name, path, [path, body] { body(path); });
  }
  template <class List>
  void promises(const List& list, const Paths& paths = kEveryHostPath) {
    for (const Path path : paths)
      for (const Semantics& each : list)
        add(each.name, path, [path, run = each.run] {
          run([path](int size, const std::function<void(group::Group&, int)>& body) {
            if (size >= row_of(path).least) run_freely_on(path, size, body);
          });
        });
  }
  void alone(std::initializer_list<Alone> bodies) {
    for (const Alone& each : bodies) tests_.push_back({each.name, [body = each.body] { body(nullptr); }});
  }
  int run() {
    std::vector<CMUnitTest> units;
    for (Test& each : tests_) units.push_back({each.name.c_str(), guarded<&call>, nullptr, nullptr, &each.body});
    return _cmocka_run_group_tests("tests", units.data(), units.size(), nullptr, nullptr);
  }

 private:
  struct Test {
    std::string name;
    std::function<void()> body;
  };
  static void call(void** state) { (*static_cast<std::function<void()>*>(*state))(); }
  void add(const std::string& name, Path path, std::function<void()> body) {
    tests_.push_back({name + " " + row_of(path).name, [path, body = std::move(body)] {
                        if (!row_of(path).needs_gloo || has_gloo()) body();
                      }});
  }

  std::deque<Test> tests_;
};

}  // namespace ddp::test

#define ddp_named(function) \
  { #function, &function }
