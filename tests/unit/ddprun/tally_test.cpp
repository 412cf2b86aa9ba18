// SPDX-License-Identifier: Apache-2.0
// What is seen of ranks adds up: over restarts, deaths and many samples.
#include "ddprun/tally.hpp"

#include "ddprun/figures.hpp"
#include "ddprun/json.hpp"
#include "ddprun/looks.hpp"
#include "ddprun/observer.hpp"
#include "support/check.hpp"

using namespace ddp::ddprun;

/// A rank at a place of its group that has made `steps` steps since the last look.
RankLook worked(int32_t rank, int32_t place, int64_t steps) {
  RankLook look;
  look.rank = rank;
  look.place = place;
  look.resident_kib = 1000 + rank;
  look.since.steps = look.since.passes = steps;
  look.since.comm_ns = 10 * steps;
  look.since.exposed_ns = steps;
  return look;
}

ddp_case(looks_arrive_as_they_were) {
  Look look{{worked(3, 1, 7), worked(4, -1, 0)}, {0, 5, 1'234'567'890'123}};
  look.ranks[0].buckets = {100, 4, 50, 10};
  look.ranks[0].waited_ns = 99;
  look.ranks[0].cores = 8;
  look.ranks[0].transports = 3;
  look.ranks[0].group = "gan";
  look.ranks[0].program = {{"loss", -0.1, 7}, {"bad", std::nan(""), 1}};
  const auto read = read_look(look_json(look));
  expect(read.has_value() && read->ranks.size() == 2 && read->awaited_ns == look.awaited_ns, "sizes");
  for (size_t i = 0; i < 2; ++i) {
    const RankLook &a = look.ranks[i], &b = read->ranks[i];
    expect(a.rank == b.rank && a.place == b.place && a.resident_kib == b.resident_kib && a.since == b.since &&
               a.buckets == b.buckets && a.waited_ns == b.waited_ns && a.cores == b.cores && a.transports == b.transports &&
               a.group == b.group && a.program.size() == b.program.size(),
           "a rank");
  }
  for (const char* field : {"rank", "place", "resident_kib", "cores", "transports"}) {
    Json part = look_json(look);
    part["ranks"][1].erase(field);
    expect(!read_look(part).has_value(), std::string("without ") + field);
  }
  Json wrong = look_json(look);
  wrong["ranks"][0]["passes"] = -1;
  expect(!read_look(wrong).has_value(), "a negative count");
  wrong = look_json(look);
  wrong["more"] = 1;
  expect(!read_look(wrong).has_value() && !read_look(Json()).has_value(), "too much, and nothing");
}

ddp_case(transports_are_those_of_all_starts) {
  Tally tally(0, 2);
  tally.add({{worked(0, -1, 0), worked(1, -1, 0)}, {}});
  expect_equal(tally.ranks()[0].transports, -1, "no group yet");
  RankLook look = worked(0, 0, 1);
  for (const int32_t seen : {1, 0, 2, -1}) {
    look.transports = seen;
    look.cores = seen == 2 ? 8 : 0;
    tally.add({{look}, {}});
  }
  expect_equal(tally.ranks()[0].transports, 3, "both");
  expect_equal(tally.ranks()[0].cores, 8, "cores");
  expect_equal(tally.ranks()[1].transports, -1, "of the other rank");
}

/// Of the ranks that run the mean counts; a rank that was started again keeps its last value until it logs another.
ddp_case(numbers_of_the_program_are_taken_over) {
  const auto with = [](int32_t rank, std::vector<ProgramValue> program) {
    RankLook look = worked(rank, rank, 1);
    look.program = std::move(program);
    return look;
  };
  Look look{{with(0, {{"loss", -0.1, 7}, {"bad", std::nan(""), 1}})}, {}};
  const std::optional<Look> sent = read_look(look_json(look));
  expect(sent.has_value() && sent->ranks[0].program[0].value == -0.1 && sent->ranks[0].program[0].times == 7 &&
             std::isnan(sent->ranks[0].program[1].value),
         "sent by another ddprun");
  Tally tally(0, 2);
  tally.start(0), tally.start(1);
  tally.add({{with(0, {{"loss", 4, 2}}), with(1, {{"loss", 2, 2}, {"own", 9, 1}})}, {}});
  tally.sample(1);
  expect(tally.names() == std::vector<std::string>({"loss", "own"}), "names");
  expect(tally.now().program == std::vector<double>({3, 9}), "means");
  tally.add({{with(0, {{"loss", 6, 1}}), with(1, {})}, {}});
  tally.end(1, 2, "exit code 0", false, 0);
  tally.sample(2);
  expect(tally.now().program[0] == 6 && std::isnan(tally.now().program[1]), "of the rank that runs");
  expect(tally.ranks()[0].program[0].times == 3 && tally.ranks()[1].program[0].value == 2, "of each rank");
  std::vector<ProgramValue> many;
  for (int i = 0; i < 20; ++i) many.push_back({"n" + std::to_string(i), 1, 1});
  tally.add({{with(0, many)}, {}});
  tally.sample(3);
  expect(tally.names().size() == kMostNames && tally.now().program.size() == kMostNames, "names in samples");
  expect_equal(tally.ranks()[0].program.size(), size_t{21}, "all names of a rank");
}

ddp_case(steps_are_those_of_one_rank) {
  Tally tally(0, 2);
  tally.start(0), tally.start(1);
  int64_t made = 0;
  for (int i = 0; i < 100; ++i) {  // the looks catch the ranks a step apart, now the one, now the other
    tally.add({{worked(0, 0, 10 + i % 2), worked(1, 1, 11 - i % 2)}, {}});
    made += 10 + i % 2;
    tally.sample(i);
  }
  expect_equal(tally.now().steps, made, "steps of rank 0");
  expect_equal(tally.now().all.steps, int64_t{2100}, "of both");
  tally.end(0, 100, "exit code 1", true, 0);
  for (int i = 100; i < 110; ++i) {
    tally.add({{worked(0, -1, 0), worked(1, 0, 5)}, {}});
    tally.sample(i);
  }
  expect_equal(tally.now().steps, made + 50, "those of rank 1 when rank 0 is dead");
  expect_equal(tally.now().running, 1, "one runs");
  expect_equal(tally.now().resident_kib[0], int64_t{0}, "no memory of a dead rank");
  expect(tally.ranks()[0].failed && tally.ranks()[0].peak_kib == 1000, "what is left of it");
}

ddp_case(the_last_looks_count_once) {
  Tally tally(0, 2);
  tally.start(0), tally.start(1);
  for (int i = 1; i <= 10; ++i) {  // the looks at rank 1 come late
    tally.add({{worked(0, 0, 5)}, {}});
    tally.sample(i);
    tally.add({{worked(1, 1, 5)}, {}});
  }
  tally.sample(10.5);
  tally.end(0, 11, "exit code 0", false, 0);
  tally.add({{worked(1, 1, 1)}, {}});
  tally.end(1, 11, "exit code 0", false, 0);
  tally.sample(11);
  expect_equal(tally.now().steps, int64_t{50}, "those of rank 0");
}

ddp_case(waits_go_to_who_has_the_place) {
  Tally tally(4, 3);
  for (int32_t rank = 4; rank < 7; ++rank) tally.start(rank);
  tally.add({{worked(4, 0, 1), worked(5, 1, 1), worked(6, 2, 1)}, {0, 7, 100}});
  tally.end(5, 1, "killed", true, 0);
  tally.add({{worked(4, 0, 1), worked(6, 1, 1)}, {0, 50}});
  expect_equal(tally.ranks()[1].awaited_ns, int64_t{7}, "rank 5, which had place 1");
  expect_equal(tally.ranks()[2].awaited_ns, int64_t{150}, "rank 6, which has it now");
}

ddp_case(many_samples_thin_out) {
  Tally tally(0, 1);
  tally.start(0);
  const int count = 50'000;
  for (int i = 1; i <= count; ++i) {
    tally.add({{worked(0, 0, 3)}, {}});
    tally.sample(i);
  }
  const auto& samples = tally.samples();
  expect(samples.size() > 2000 && samples.size() < 10'000, "a bearable number");
  for (size_t i = 1; i < samples.size(); ++i)
    expect(static_cast<double>(samples[i].steps) == 3 * samples[i].seconds && samples[i].seconds > samples[i - 1].seconds,
           "each is still right");
  Run run;
  run.samples = samples;
  run.seconds = count;
  const auto intervals = intervals_of(run, 240);
  expect(intervals.size() <= 240 && intervals.size() > 100, "for a chart");
  for (const Interval& interval : intervals)
    expect(interval.per_second > 2.99 && interval.per_second < 3.01 && interval.share_hidden > 0.89, "the rate");
}

ddp_case(a_straggler_stands_out) {
  expect_equal(find_straggler({0.1, 0.2, 9, 0.1}, 60), 2, "one");
  expect_equal(find_straggler({9, 8, 9, 8}, 60), -1, "all alike");
  expect_equal(find_straggler({0, 0, 0.3, 0}, 60), -1, "too little to speak of");
  expect_equal(find_straggler({5}, 60), -1, "alone");
}

ddp_case(the_line_is_of_the_last_seconds) {
  Progress progress;
  Sample sample;
  progress.add(sample);
  expect_equal(progress.line(-1, 0, {}), std::string(), "nothing yet");
  for (int second = 1; second <= 20; ++second) {
    sample.seconds = second;
    sample.steps += second <= 10 ? 100 : 20;
    sample.passes = sample.steps;
    sample.all.comm_ns += 1000;
    sample.all.exposed_ns += second <= 10 ? 1000 : 250;
    progress.add(sample);
  }
  expect_equal(progress.line(2, 0.07, {}),
               std::string("20 steps/s, 75 % hidden, waiting for rank 2 (7.0 %), 1,200 steps in 20 s"), "the line");
}
