// SPDX-License-Identifier: Apache-2.0
// main() for fuzz targets where libFuzzer is not: gives every file of the corpus to the target, then the same file cut short
// and with single bytes damaged. Deterministic, so a failure repeats; the input that was being tried is named when the
// target dies.
// Cost: at most kVariants calls for a file.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
extern "C" void __sanitizer_set_death_callback(void (*callback)());
#endif

namespace {

constexpr size_t kVariants = 2000;
std::array<char, 512> trying{};

void report() {
  const auto* end = std::find(trying.begin(), trying.end(), '\0');
  (void)!write(STDERR_FILENO, trying.data(), static_cast<size_t>(end - trying.begin()));
}

void report_and_die(int signal) {
  report();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// A sanitizer ends the process in its own way and wants the signals for itself.
void name_the_input_on_death() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  __sanitizer_set_death_callback(report);
  std::signal(SIGABRT, report_and_die);
#else
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, report_and_die);
#endif
}

void run(const std::vector<uint8_t>& input, const std::string& name, const char* how, size_t where) {
  std::snprintf(trying.data(), trying.size(), "died with %s, %s %zu\n", name.c_str(), how, where);
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

void run_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<uint8_t> input{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string name = path.filename().string();
  run(input, name, "whole, size", input.size());

  const size_t step = std::max<size_t>(1, input.size() / (kVariants / 4));
  for (size_t size = 0; size < input.size(); size += step)
    run({input.begin(), input.begin() + static_cast<std::ptrdiff_t>(size)}, name, "cut to", size);
  for (size_t at = 0; at < input.size(); at += step) {
    for (const int damage : {0x01, 0x80, 0xff}) {
      std::vector<uint8_t> changed = input;
      changed[at] = static_cast<uint8_t>(changed[at] ^ damage);
      run(changed, name, damage == 0x01 ? "bit 0 at" : damage == 0x80 ? "bit 7 at" : "all bits at", at);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  name_the_input_on_death();
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i]))
      files.emplace_back(argv[i]);
    else
      for (const auto& entry : std::filesystem::directory_iterator(argv[i])) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) run_file(file);
  std::printf("%zu inputs and their damaged copies\n", files.size());
  return files.empty() ? 1 : 0;
}
