// SPDX-License-Identifier: Apache-2.0
// The rule of tests/README.md, "The rule of bits", on random models: whatever the sizes, limits, memory, marking orders and
// threads are, a gradient is the naive sum in the tree, to the last bit. A failure names the seed of its combination.

#include "conformance/lent_model.hpp"
#include "model/gradients.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"
#include "unit/device/oracle.hpp"

constexpr int kCombinations = 20;  // for each of three paths and four world sizes: 240 in all

enum class Memory { kOwned, kUser, kGroup, kMoving };

struct Shape {
  ddp_dtype dtype;
  int64_t count;
  Memory memory;
};

/// Everything that all ranks must know of one combination.
struct Combination {
  uint64_t seed;
  std::vector<Shape> shapes;
  ddp_model_options options{};
  int accumulations;  // passes before each one that reduces
  int threads;        // that mark
};

/// The same numbers from the same words, also for different purposes.
uint64_t mix(uint64_t seed, uint64_t a, uint64_t b = 0, uint64_t c = 0) {
  std::mt19937_64 random(seed * 1'000'003 + a * 7919 + b * 104'729 + c * 15'485'863);
  random.discard(3);
  return random();
}

Combination make_combination(uint64_t seed) {
  std::mt19937_64 random(seed);
  Combination made{seed, {}, {}, 0, 1};
  constexpr ddp_dtype kDtypes[] = {DDP_F32, DDP_F32, DDP_F32, DDP_F64, DDP_F16, DDP_BF16, DDP_C64, DDP_C128};
  constexpr int64_t kLimits[] = {1, 64, 1000, 4096, 30'000, 1 << 20};
  const bool one_memory = random() % 2 == 0;
  const auto memory = static_cast<Memory>(random() % 4);
  for (uint64_t left = 1 + random() % 12; left > 0; --left) {
    const int64_t count = random() % 8 == 0 ? static_cast<int64_t>(random() % 3)
                                            : static_cast<int64_t>(random() % (random() % 4 == 0 ? 40'000 : 900));
    made.shapes.push_back(
        {kDtypes[random() % std::size(kDtypes)], count, one_memory ? memory : static_cast<Memory>(random() % 4)});
  }
  made.options.first_bucket_bytes = kLimits[random() % std::size(kLimits)];
  made.options.bucket_bytes = kLimits[random() % std::size(kLimits)];
  made.options.reduce = random() % 3 == 0 ? DDP_SUM : DDP_AVERAGE;
  made.options.unused = random() % 2 == 0 ? DDP_UNUSED_ALLOW : DDP_UNUSED_ERROR;
  made.options.progress = static_cast<ddp_progress>(random() % 3);
  made.accumulations = random() % 3 == 0 ? 1 + static_cast<int>(random() % 2) : 0;
  made.threads = random() % 4 == 0 ? 3 : 1;
  return made;
}

/// Does this rank mark the parameter ready in this pass?
bool marks(const Combination& of, int rank, int pass, size_t p) {
  if (of.options.unused == DDP_UNUSED_ERROR || mix(of.seed, 1, p) % 3 != 0) return true;
  if (mix(of.seed, 2, p) % 4 == 0) return false;  // no rank ever uses it
  return mix(of.seed, 3 + static_cast<uint64_t>(rank), p, static_cast<uint64_t>(pass)) % 2 == 0;
}

/// What a rank's gradient holds when pass `pass` reduces, if it held `before` at the beginning of the passes that
/// accumulate.
Bytes contribution(const Combination& of, int rank, int pass, size_t p, const Bytes& before) {
  const Shape& shape = of.shapes[p];
  const int parts = is_complex(shape.dtype) ? 2 : 1;
  Bytes held = before;
  for (int step = 0; step <= of.accumulations; ++step) {
    const int at = pass * 10 + step;
    if (!marks(of, rank, at, p)) continue;
    const Bytes more = random_values(part_dtype(shape.dtype), shape.count * parts,
                                     mix(of.seed, 50 + static_cast<uint64_t>(rank), p, static_cast<uint64_t>(at)));
    Bytes sum(held.size());  // the caller adds up, except that it starts anew in the first pass
    if (step == 0)
      sum = more;
    else
      naive_reduce({shape.dtype, DDP_SUM, 1}, {held.data(), more.data()}, sum.data(), shape.count);
    held = sum;
  }
  return held;
}

bool used_by(const Combination& of, int rank, int pass, size_t p) {
  bool used = false;
  for (int step = 0; step <= of.accumulations; ++step) used = used || marks(of, rank, pass * 10 + step, p);
  return used;
}

struct World : LentModel {
  const Combination& of;
  std::vector<Bytes> other;  // where a moving gradient is in odd passes

  World(const Combination& combination, group::Group& of_group) : LentModel(of_group, combination.options), of(combination) {
    for (const Shape& shape : of.shapes) {
      add(shape.dtype, shape.count, shape.memory == Memory::kOwned, shape.memory == Memory::kGroup);
      other.emplace_back(own.back().size());
    }
    model->commit();
  }

  /// One pass that marks what it must, in an order and from threads of this rank's own.
  void run(int rank, int pass, int step, const std::vector<Bytes>& held) {
    const int at = pass * 10 + step;
    std::vector<size_t> order(of.shapes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::mt19937_64 random(mix(of.seed, 90 + static_cast<uint64_t>(rank), static_cast<uint64_t>(at)));
    if (random() % 3 != 0)
      std::shuffle(order.begin(), order.end(), random);
    else
      std::reverse(order.begin(), order.end());
    model->begin_backward(step < of.accumulations ? DDP_PASS_ACCUMULATE : DDP_PASS_REDUCE);
    const auto mark = [&](size_t first, size_t stride) {
      for (size_t i = first; i < order.size(); i += stride) {
        const size_t p = order[i];
        if (marks(of, rank, at, p)) {
          if (of.shapes[p].memory == Memory::kMoving && of.threads == 1) move(p, at);
          write(p, held[p]);
          model->pass().mark_ready(static_cast<int32_t>(p));
        } else if (mix(of.seed, 95, p, static_cast<uint64_t>(at)) % 2 == 0) {
          model->pass().mark_unused(static_cast<int32_t>(p));  // or not at all
        }
      }
    };
    std::vector<std::thread> threads;
    for (int t = 1; t < of.threads; ++t) threads.emplace_back(mark, static_cast<size_t>(t), static_cast<size_t>(of.threads));
    mark(0, static_cast<size_t>(of.threads));
    for (std::thread& thread : threads) thread.join();
    model->end_backward();
  }
  void move(size_t p, int at) {
    if (own[p].empty()) return;
    const Bytes content = read(p);
    const Parameter& parameter = model->table().parameter(static_cast<int32_t>(p));
    Tensor moved = declared_view(parameter.grad, parameter.declared);
    moved.data = at % 2 == 0 ? own[p].data() : other[p].data();
    model->gradients().set(static_cast<int32_t>(p), &moved);
    write(p, content);
  }
};

void check_combination(group::Group& group, int rank, uint64_t seed) {
  const Combination of = make_combination(seed);
  World world(of, group);
  const int size = group.size();
  std::vector<std::vector<Bytes>> held(static_cast<size_t>(size));  // by rank and parameter; what each rank's gradient holds
  for (auto& of_rank : held) of_rank = world.own;                   // zeros
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<std::vector<Bytes>> sent(static_cast<size_t>(size));
    for (int r = 0; r < size; ++r)
      for (size_t p = 0; p < of.shapes.size(); ++p)
        sent[static_cast<size_t>(r)].push_back(contribution(of, r, pass, p, held[static_cast<size_t>(r)][p]));
    for (int step = 0; step <= of.accumulations; ++step) {
      Combination until = of;  // what the caller has after this many passes
      until.accumulations = step;
      std::vector<Bytes> now;
      for (size_t p = 0; p < of.shapes.size(); ++p)
        now.push_back(contribution(until, rank, pass, p, held[static_cast<size_t>(rank)][p]));
      world.run(rank, pass, step, now);
    }
    for (size_t p = 0; p < of.shapes.size(); ++p) {
      const Shape& shape = of.shapes[p];
      const std::string what = "seed " + std::to_string(seed) + ", pass " + std::to_string(pass) + ", parameter " +
                               std::to_string(p) + " of " + std::to_string(shape.count) + " " + dtype_name(shape.dtype);
      bool used = false;
      std::vector<const void*> in;
      for (int r = 0; r < size; ++r) {
        used = used || used_by(of, r, pass, p);
        in.push_back(sent[static_cast<size_t>(r)][p].data());
      }
      Bytes reduced(world.own[p].size());
      naive_reduce({shape.dtype, of.options.reduce, size}, in, reduced.data(), shape.count);
      for (int r = 0; r < size; ++r) held[static_cast<size_t>(r)][p] = used ? reduced : sent[static_cast<size_t>(r)][p];
      expect(world.model->pass().results().was_used(static_cast<int32_t>(p)) == used, what + ": used");
      expect(world.read(p) == held[static_cast<size_t>(rank)][p], what + ": bits");
    }
  }
  group.barrier();
}

void random_models_keep_the_rule(Path path, int size) {
  run_on(path, size, [=](group::Group& group, int rank) {
    for (int i = 0; i < kCombinations; ++i)
      check_combination(group, rank, static_cast<uint64_t>(10'000 * (static_cast<int>(path) + 1) + 1'000 * size + i));
  });
}

ddp_case_on(kThreePaths, random_models_keep_the_rule_of_one_rank) { random_models_keep_the_rule(path, 1); }
ddp_case_on(kThreePaths, random_models_keep_the_rule_of_two_ranks) { random_models_keep_the_rule(path, 2); }
ddp_case_on(kThreePaths, random_models_keep_the_rule_of_three_ranks) { random_models_keep_the_rule(path, 3); }
ddp_case_on(kThreePaths, random_models_keep_the_rule_of_four_ranks) { random_models_keep_the_rule(path, 4); }
