// SPDX-License-Identifier: Apache-2.0
// What it costs to read the word that stops kernels: by the kernel that libddp uses (copy_word), and by a copy of four
// bytes, alone and during a large copy from host to device in another stream, as a program prefetches its next batch. The
// copy engine does one thing after the other, so a copy of four bytes waits for the large one; the kernel must not.
#include "gpu/experiments/experiments.hpp"

namespace ddp::experiments {
namespace {

using namespace ddp::test::card;

constexpr int kChain = 50;

enum class How { kKernel, kCopy };

struct Setting {
  explicit Setting(int64_t bytes) : source(bytes), target(kGpu, bytes), word(64), read(kGpu, 64), slow(kGpu) {}
  void read_word(How how) const {
    if (how == How::kKernel)
      GPU_CALL(copy_word(static_cast<const uint32_t*>(word.device()), static_cast<uint32_t*>(read.data()), stream.get()));
    else
      GPU_CALL(copy(read.data(), word.host(), 4, stream.get()));
  }
  Pinned source;
  Memory target;
  Pinned word;
  Memory read;
  SlowWork slow;
  Stream stream{kGpu}, prefetch{kGpu};
  Event begin, end, copy_begin, copy_end;
};

/// Microseconds of the device for one of many in a row; the host is ahead.
double in_a_row_us(const Setting& s, How how, int repetitions) {
  std::vector<double> all;
  for (int k = 0; k < repetitions; ++k) {
    s.slow.enqueue(s.stream.get(), 8);
    s.begin.record(s.stream.get());
    for (int j = 0; j < kChain; ++j) s.read_word(how);
    s.end.record(s.stream.get());
    s.end.wait();
    all.push_back(1e3 * s.end.ms_from(s.begin) / kChain);
  }
  return median(all);
}

struct Beside {
  double word_us, copy_ms, still_copying;  // still_copying: share of tries in which the word came before the copy's end
};

/// One word, from an idle stream, while `bytes` are copied to the device (0: no copy).
Beside one_us(const Setting& s, How how, int64_t bytes, int repetitions) {
  std::vector<double> words, copies;
  int before = 0;
  for (int k = 0; k < repetitions; ++k) {
    if (bytes > 0) {
      s.copy_begin.record(s.prefetch.get());
      GPU_CALL(copy(s.target.data(), s.source.host(), bytes, s.prefetch.get()));
      s.copy_end.record(s.prefetch.get());
    }
    s.begin.record(s.stream.get());
    s.read_word(how);
    s.end.record(s.stream.get());
    s.end.wait();
    before += bytes > 0 && !s.copy_end.is_done();
    words.push_back(1e3 * s.end.ms_from(s.begin));
    s.prefetch.wait();
    if (bytes > 0) copies.push_back(s.copy_end.ms_from(s.copy_begin));
  }
  return {median(words), median(copies), static_cast<double>(before) / repetitions};
}

}  // namespace

void measure_stop_word(Report& report, const Options& options) {
  need_devices(1);
  const int64_t bytes = is_fake() ? 200'000 : 200'000'000;
  const Setting s(bytes);
  *static_cast<uint32_t*>(s.word.host()) = 7;
  s.read_word(How::kKernel);
  s.stream.wait();
  uint32_t got = 0;
  std::memcpy(&got, s.read.read().data(), sizeof got);
  report.verdict("the kernel reads what the host has written", got == 7);
  const int repetitions = options.repetitions(50);
  for (const How how : {How::kKernel, How::kCopy}) {
    const std::string name = how == How::kKernel ? "word kernel" : "4-byte copy";
    (void)in_a_row_us(s, how, 3);
    report.figure(name + ", each of " + std::to_string(kChain) + " in a row", in_a_row_us(s, how, repetitions), "us");
    report.figure(name + ", alone", one_us(s, how, 0, repetitions).word_us, "us", "from an idle stream, with the launch");
    const Beside beside = one_us(s, how, bytes, repetitions);
    char note[160];
    std::snprintf(note, sizeof note, "done before the copy (%.2f ms) in %.0f %% of the tries", beside.copy_ms,
                  100 * beside.still_copying);
    report.figure(name + ", beside 200 MB from host to device", beside.word_us, "us", note);
    if (how == How::kKernel)
      report.timed_verdict("the word kernel does not wait for the copy of another stream",
                           beside.still_copying >= 0.9 && beside.word_us < 250 * beside.copy_ms,
                           "before the copy's end in 9 of 10 tries, in less than a quarter of its time");
  }
}

}  // namespace ddp::experiments
