// SPDX-License-Identifier: Apache-2.0
// main() of tests. A program of several files is named after their folder, and has a link with the name of each file
// (CMakeLists.txt): test.unit.os.log is the file unit/os/log_test.cpp in the program test.unit.os, and `test.unit.os log` is
// the same. The cases of a file are listed where they are defined (ddp_case in check.hpp, ddp_case_on in group_paths.hpp),
// or it has a main() of its own. `--filter PATTERN` runs the cases whose names match (`*` and `?`).
#include <exception>

#include "support/check.hpp"

namespace {

struct Case {
  std::string_view file;
  std::string name;
  std::function<void()> body;
};
struct Before {
  std::string_view file;
  void (*call)(int, char**);
};
struct File {
  std::string_view name;
  std::string_view path;
  int (*main)() = nullptr;
  int (*main_with_words)(int, char**) = nullptr;
};

std::deque<Case>& cases() {
  static std::deque<Case> all;
  return all;
}

std::vector<Before>& befores() {
  static std::vector<Before> all;
  return all;
}

CMUnitTest around{};

std::vector<File>& files() {
  static std::vector<File> all;
  return all;
}

const File* find(std::string_view name) {
  for (const File& file : files())
    if (file.name == name) return &file;
  return nullptr;
}

void run_case(void** state) {
  std::string failure;
  try {
    return (*static_cast<const std::function<void()>*>(*state))();
  } catch (const ddp::Error& error) {
    failure = std::string(ddp::status_name(error.status())) + ": " + error.text();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  print_error("%s\n", failure.c_str());
  std::string().swap(failure);  // CMocka jumps over destructors
  _fail(__FILE__, __LINE__);
}

/// The cases of one file, or all.
int run_cases(const File* file, int argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i)
    if (std::strcmp(argv[i], "--filter") == 0) cmocka_set_test_filter(argv[i + 1]);
  const auto is_of_file = [file](const auto& each) { return file == nullptr || each.file == file->path; };
  for (const Before& each : befores())
    if (is_of_file(each)) each.call(argc, argv);
  std::vector<CMUnitTest> chosen;
  for (Case& each : cases())
    if (is_of_file(each))
      chosen.push_back({each.name.c_str(), run_case, around.setup_func, around.teardown_func, &each.body});
  if (chosen.empty()) {
    std::fprintf(stderr, "%s has no cases\n", file == nullptr ? "this program" : std::string(file->path).c_str());
    return 1;
  }
  return _cmocka_run_group_tests("tests", chosen.data(), chosen.size(), nullptr, nullptr);
}

int run(const File& file, int argc, char** argv) {
  if (file.main_with_words != nullptr) return file.main_with_words(argc, argv);
  return file.main != nullptr ? file.main() : run_cases(&file, argc, argv);
}

}  // namespace

bool ddp::test::list_case(const char* file, const std::string& name, const std::function<void()>& body) {
  cases().push_back({file, name, body});
  return true;
}

bool ddp::test::list_before_cases(const char* file, void (*before)(int, char**)) {
  befores().push_back({file, before});
  return true;
}

bool ddp::test::list_around_cases(CMFixtureFunction setup, CMFixtureFunction teardown) {
  around.setup_func = setup;
  around.teardown_func = teardown;
  return true;
}

bool ddp::test::list_file(const char* name, const char* path, int (*main)(int, char**)) {
  files().push_back({name, path, nullptr, main});
  return true;
}

bool ddp::test::list_file(const char* name, const char* path, int (*main)()) {
  files().push_back({name, path, main, nullptr});
  return true;
}

int main(int argc, char** argv) {
  if (files().empty()) return run_cases(nullptr, argc, argv);
  const std::string program(argc > 0 ? argv[0] : "");
  const std::string_view name = std::string_view(program).substr(program.rfind('/') + 1);
  if (const File* file = find(name.substr(name.find('.') + 1))) return run(*file, argc, argv);
  if (argc > 1)
    for (const File& file : files())
      if (file.name.substr(file.name.rfind('.') + 1) == argv[1]) return run(file, argc - 1, argv + 1);
  std::fprintf(stderr, "usage: %s FILE [--filter PATTERN]; the files are\n", program.c_str());
  for (const File& file : files())
    std::fprintf(stderr, "  %s\n", std::string(file.name.substr(file.name.rfind('.') + 1)).c_str());
  return 2;
}
