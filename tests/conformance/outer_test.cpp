// SPDX-License-Identifier: Apache-2.0
// An outer optimizer, on every transport.
#include "extra/outer/outer.hpp"

#include "conformance/local_world.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"

/// Elements of the parameters; with two fragments the first two are the first one.
const std::vector<int64_t> kOuterShapes = {3, 20'000, 1, 512, 7};

ddp_outer_options outer_options(int64_t every) {
  ddp_outer_options options = outer::default_options();
  options.every = every;
  return options;
}

/// A model whose gradients are not used: the "optimizer" of these tests changes the parameters itself.
template <class Real>
struct OuterWorld {
  std::vector<std::vector<Real>> values;
  std::shared_ptr<model::Model> model;

  OuterWorld(group::Group& group, ddp_dtype dtype) {
    model = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), wire_options());
    for (const int64_t count : kOuterShapes) values.emplace_back(static_cast<size_t>(count), Real{1});
    for (size_t p = 0; p < values.size(); ++p)
      model->add_parameter("p" + std::to_string(p), flat_tensor(values[p].data(), dtype, kOuterShapes[p]), nullptr);
    model->commit();
  }
  void step(int rank, int step) { local_step(values, rank, step); }
  static void local_step(std::vector<std::vector<Real>>& values, int rank, int step) {
    for (size_t p = 0; p < values.size(); ++p)
      for (size_t i = 0; i < values[p].size(); ++i) {
        Real& value = values[p][i];
        value = value - static_cast<Real>(0.0625) *
                            (value * static_cast<Real>(0.25) +
                             static_cast<Real>((rank * 31 + step * 7 + static_cast<int>(p) + static_cast<int>(i)) % 13) - 6);
      }
  }
};

/// All ranks at once, by the book.
template <class Real>
struct OuterOracle {
  using Values = std::vector<std::vector<Real>>;
  ddp_outer_options options;
  std::vector<Values> ranks;
  Values global, momentum;
  struct Sent {
    int32_t fragment;
    int step;
    std::vector<Values> movements;
  };
  std::deque<Sent> under_way;
  int steps = 0;

  OuterOracle(int size, const ddp_outer_options& given) : options(given) {
    for (const int64_t count : kOuterShapes) {
      global.emplace_back(static_cast<size_t>(count), Real{1});
      momentum.emplace_back(static_cast<size_t>(count), Real{0});
    }
    ranks.assign(static_cast<size_t>(size), global);
  }
  [[nodiscard]] bool has(int32_t fragment, size_t p) const { return options.fragments == 1 || (p < 2) == (fragment == 0); }

  void send(int32_t fragment) {
    Sent sent{fragment, steps, {}};
    for (const Values& own : ranks) {
      Values movement = global;
      for (size_t p = 0; p < own.size(); ++p)
        for (size_t i = 0; i < own[p].size(); ++i) movement[p][i] = global[p][i] - own[p][i];
      sent.movements.push_back(movement);
    }
    under_way.push_back(sent);
  }
  void receive(double keep) {
    const Sent sent = under_way.front();
    under_way.pop_front();
    const auto mu = static_cast<Real>(options.momentum), rate = static_cast<Real>(options.rate);
    const auto share = static_cast<Real>(keep);
    for (size_t p = 0; p < global.size(); ++p) {
      if (!has(sent.fragment, p)) continue;
      for (size_t i = 0; i < global[p].size(); ++i) {
        std::vector<Real> of_ranks;
        for (const Values& each : sent.movements) of_ranks.push_back(each[p][i]);
        const Real d =
            tree_sum(
                0, static_cast<int64_t>(of_ranks.size()), [&](int64_t r) { return of_ranks[static_cast<size_t>(r)]; },
                [](Real a, Real b) { return a + b; }) /
            static_cast<Real>(of_ranks.size());
        momentum[p][i] = mu * momentum[p][i] + d;
        const Real direction = options.nesterov != 0 ? d + mu * momentum[p][i] : momentum[p][i];
        global[p][i] = global[p][i] - rate * direction;
        for (Values& own : ranks) own[p][i] = keep == 0 ? global[p][i] : share * own[p][i] + (1 - share) * global[p][i];
      }
    }
  }
  void step() {
    for (size_t r = 0; r < ranks.size(); ++r) OuterWorld<Real>::local_step(ranks[r], static_cast<int>(r), steps);
    ++steps;
    while (!under_way.empty() && under_way.front().step + options.overlap <= steps) receive(options.keep);
    for (int32_t f = 0; f < options.fragments; ++f)
      if (steps % options.every == f * options.every / options.fragments) send(f);
    while (options.overlap == 0 && !under_way.empty()) receive(options.keep);
  }
  void sync() {
    while (!under_way.empty()) receive(0);
    for (int32_t f = 0; f < options.fragments; ++f) send(f);
    while (!under_way.empty()) receive(0);
  }
};

template <class Real>
void expect_same_values(const std::vector<std::vector<Real>>& values, const std::vector<std::vector<Real>>& wanted,
                        const std::string& when) {
  for (size_t p = 0; p < values.size(); ++p)
    expect(std::memcmp(values[p].data(), wanted[p].data(), values[p].size() * sizeof(Real)) == 0,
           "parameter " + std::to_string(p) + " " + when);
}

template <class Real>
void follow_the_formulas(Path path, ddp_dtype dtype, const std::vector<ddp_outer_options>& ways) {
  for (const int size : {1, 3, 4})
    run_if_enough_on(path, size, [&](group::Group& group, int rank) {
      for (size_t way = 0; way < ways.size(); ++way) {
        OuterWorld<Real> world(group, dtype);
        outer::Outer outer(world.model, ways[way]);
        OuterOracle<Real> oracle(size, ways[way]);
        for (int step = 0; step < 9; ++step) {
          world.step(rank, step);
          outer.step();
          oracle.step();
          expect_same_values(world.values, oracle.ranks[static_cast<size_t>(rank)],
                             "after step " + std::to_string(step) + ", way " + std::to_string(way));
          if (step == 4) group.barrier();  // the program's own collectives work while an exchange is in progress
        }
        outer.sync();
        oracle.sync();
        expect_same_values(world.values, oracle.ranks[static_cast<size_t>(rank)], "after sync, way " + std::to_string(way));
        world.model->replicas().check();
      }
    });
}

ddp_case_on(kEveryHostPath, exchanges_follow_the_formulas) {
  std::vector<ddp_outer_options> ways(4, outer_options(3));
  ways[1].nesterov = 0;
  ways[1].momentum = 0.5;
  ways[2].fragments = 2;
  ways[2].keep = 0.5;
  ways[3].fragments = 2;
  ways[3].overlap = 2;
  ways[3].keep = 0.25;
  follow_the_formulas<float>(path, DDP_F32, ways);
  follow_the_formulas<double>(path, DDP_F64, {ways[3]});
}

/// With few bits: all ranks hold the same bits, close to those of 32 bits, and what one exchange loses the next ones bring.
ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, few_bits_lose_little, 3) {
  int64_t sent_with[33] = {};
  double error_with[33] = {};
  OuterOracle<float> oracle(3, outer_options(2));
  for (int step = 0; step < 8; ++step) oracle.step();
  for (const int32_t bits : {32, 16, 8, 4}) {
    OuterWorld<float> world(group, DDP_F32);
    ddp_outer_options options = outer_options(2);
    options.bits = bits;
    outer::Outer outer(world.model, options);
    for (int step = 0; step < 8; ++step) {
      world.step(rank, step);
      outer.step();
    }
    world.model->replicas().check();
    for (size_t p = 0; p < world.values.size(); ++p)
      for (size_t i = 0; i < world.values[p].size(); ++i)
        error_with[bits] =
            std::max(error_with[bits], static_cast<double>(std::fabs(world.values[p][i] - oracle.ranks[0][p][i])));
    ddp_outer_stats stats{};
    outer.fill(stats);
    sent_with[bits] = stats.sent_bytes;
    expect_equal(stats.exchanges, int64_t{4}, "exchanges");
  }
  if (sent_with[32] > 0)  // over sockets; data in shared memory is not sent
    expect(sent_with[8] < sent_with[32] * 6 / 10 && sent_with[4] < sent_with[8] * 6 / 10,
           "bytes sent: " + std::to_string(sent_with[32]) + ", " + std::to_string(sent_with[8]) + ", " +
               std::to_string(sent_with[4]));
  expect_equal(error_with[32], 0.0, "error with 32 bits");
  expect(error_with[16] > 0 && error_with[16] < 0.05, "error with 16 bits: " + std::to_string(error_with[16]));
  expect(error_with[8] > 0 && error_with[8] < 0.05, "error with 8 bits: " + std::to_string(error_with[8]));
  expect(error_with[4] > error_with[8] && error_with[4] < 1, "error with 4 bits: " + std::to_string(error_with[4]));
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, what_rounding_lost_comes_later, 2) {
  double error_of[2] = {};
  for (const int32_t feedback : {0, 1}) {
    OuterWorld<float> world(group, DDP_F32);
    ddp_outer_options options = outer_options(1);
    options.bits = 4;
    options.error_feedback = feedback;
    options.momentum = 0;
    options.rate = 1;
    outer::Outer outer(world.model, options);
    std::vector<float>& values = world.values[1];
    std::vector<float> wanted = values;
    for (int step = 0; step < 40; ++step) {  // each rank moves each element by the same small amount, one of them far
      for (size_t i = 0; i < values.size(); ++i) {
        const float by = i % 256 == 0 ? 64.0F : 1.0F + static_cast<float>(rank);
        values[i] = values[i] + by;
        wanted[i] = wanted[i] + (i % 256 == 0 ? 64.0F : 1.5F);
      }
      outer.step();
    }
    for (size_t i = 0; i < values.size(); ++i)
      error_of[feedback] = std::max(error_of[feedback], static_cast<double>(std::fabs(values[i] - wanted[i])));
  }
  expect_equal(error_of[0], 60.0, "without feedback small movements are lost beside large ones, each time");
  expect(error_of[1] < 5, "with it they come, a scale (64 / 7) late at most: " + std::to_string(error_of[1]));
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_if_enough_on, replicas_start_from_rank_0, 2) {
  OuterWorld<float> world(group, DDP_F32);
  outer::Outer outer(world.model, outer_options(2));
  expect_error(DDP_ERROR_INVALID_STATE,
               [&] {
                 world.model->begin_backward(DDP_PASS_LOCAL);
                 outer.step();
               },
               {"a backward pass is open"});
  for (int32_t p = static_cast<int32_t>(kOuterShapes.size()); p-- > 0;) world.model->pass().mark_ready(p);
  world.model->end_backward();
  world.step(rank, 0);
  outer.step();
  expect_error(DDP_ERROR_MISMATCH, [&] { world.model->replicas().check(); });  // not exchanged yet
  world.step(rank, 1);
  outer.step();
  world.model->replicas().check();
}
