// SPDX-License-Identifier: Apache-2.0
// The rule of tests/README.md, "The rule of bits", where the global batch has parts: on random models, numbers of parts and
// of ranks a gradient is the naive sum over the parts, to the last bit. Parts may be skipped, have weights, come in several
// passes, use some parameters only and are sent in 16 bits. A failure names the seed of its combination.

#include "conformance/lent_model.hpp"
#include "core/virtual_ranks.hpp"
#include "model/uneven.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"
#include "unit/device/oracle.hpp"

constexpr int kSteps = 2;

struct Shape {
  ddp_dtype dtype;
  int64_t count;
  int memory;  // 0: the library's, 1: the program's, 2: of the group
};

struct Combination {
  uint64_t seed;
  int parts;
  std::vector<Shape> shapes;
  ddp_model_options options{};
  bool weighted = false;
};

/// The same numbers from the same words, also for different purposes.
uint64_t mix(uint64_t seed, uint64_t a, uint64_t b = 0, uint64_t c = 0, uint64_t d = 0) {
  uint64_t state = seed;
  for (const uint64_t word : {a, b, c, d}) {  // splitmix64
    state += word + 0x9e3779b97f4a7c15U;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9U;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebU;
    state ^= state >> 31;
  }
  return state;
}

Combination make_combination(uint64_t seed, int ranks) {
  std::mt19937_64 random(seed);
  Combination made{seed, std::max(2, ranks + static_cast<int>(random() % 9)), {}};  // one part is left as it is
  constexpr ddp_dtype kDtypes[] = {DDP_F32, DDP_F32, DDP_F64, DDP_F16, DDP_BF16, DDP_C64};
  constexpr int64_t kLimits[] = {1, 64, 1000, 4096, 30'000};
  for (uint64_t left = 1 + random() % 6; left > 0; --left)
    made.shapes.push_back({kDtypes[random() % std::size(kDtypes)],
                           static_cast<int64_t>(random() % (random() % 5 == 0 ? 3'000 : 200)),
                           static_cast<int>(random() % 3)});
  made.options.first_bucket_bytes = kLimits[random() % std::size(kLimits)];
  made.options.bucket_bytes = kLimits[random() % std::size(kLimits)];
  made.options.unused = random() % 2 == 0 ? DDP_UNUSED_ALLOW : DDP_UNUSED_ERROR;
  made.options.progress = static_cast<ddp_progress>(random() % 3);
  made.options.reduce = random() % 3 == 0 ? DDP_SUM : DDP_AVERAGE;
  made.weighted = made.options.reduce == DDP_AVERAGE && random() % 3 == 0;
  made.options.divisor = made.weighted ? DDP_DIVISOR_WEIGHTS : DDP_DIVISOR_WORLD;
  if (!made.weighted && random() % 3 == 0) made.options.wire = random() % 2 == 0 ? DDP_F16 : DDP_BF16;
  return made;
}

int passes_of(const Combination& of, int part, int step) {
  return mix(of.seed, 1, static_cast<uint64_t>(part), static_cast<uint64_t>(step)) % 3 == 0 ? 2 : 1;
}

/// One part of each step is always there.
bool is_absent(const Combination& of, int part, int step) {
  if (part == static_cast<int>(mix(of.seed, 2, static_cast<uint64_t>(step)) % static_cast<uint64_t>(of.parts))) return false;
  const uint64_t most = mix(of.seed, 3) % 3;  // no parts, a quarter, or three quarters
  return mix(of.seed, 4, static_cast<uint64_t>(part), static_cast<uint64_t>(step)) % 4 < (most == 2 ? 3 : most);
}

double weight_of(const Combination& of, int part, int step) {
  return 0.25 * static_cast<double>(1 + mix(of.seed, 5, static_cast<uint64_t>(part), static_cast<uint64_t>(step)) % 9);
}

bool marks(const Combination& of, int part, int step, int pass, size_t p) {
  if (of.options.unused == DDP_UNUSED_ERROR || mix(of.seed, 6, p) % 3 != 0) return true;
  if (mix(of.seed, 7, p) % 3 == 0) return false;  // no part ever uses it
  return mix(of.seed, 8 + p, static_cast<uint64_t>(part), static_cast<uint64_t>(step), static_cast<uint64_t>(pass)) % 2 == 0;
}

/// The gradient of a part after this number of its passes; before them it is zero.
Bytes contribution(const Combination& of, int part, int step, int passes, size_t p) {
  const Shape& shape = of.shapes[p];
  const int reals = is_complex(shape.dtype) ? 2 : 1;
  Bytes held(static_cast<size_t>(shape.count * dtype_size(shape.dtype)));
  for (int pass = 0; pass < passes; ++pass) {
    if (!marks(of, part, step, pass, p)) continue;
    const Bytes more = random_values(
        part_dtype(shape.dtype), shape.count * reals,
        mix(of.seed, 50 + p, static_cast<uint64_t>(part), static_cast<uint64_t>(step), static_cast<uint64_t>(pass)));
    Bytes sum(held.size());
    naive_reduce({shape.dtype, DDP_SUM, 1}, {held.data(), more.data()}, sum.data(), shape.count);
    held = sum;
  }
  return held;
}

/// leaf(part) of type T; what does not count is -0.0.
template <class T, class Leaf, class Round>
T tree(const Combination& of, int step, const Leaf& leaf, const Round& round) {
  return oracle_tree(
      0, static_cast<size_t>(of.parts),
      [&](size_t part) { return is_absent(of, static_cast<int>(part), step) ? static_cast<T>(-0.0) : leaf(part); },
      [&](T a, T b) { return round(static_cast<T>(a + b)); });
}

template <class T, class Load, class Store>
void weighted(const Combination& of, int step, const std::vector<Bytes>& sent, Bytes& out, int64_t count, Load load_one,
              Store store_one) {
  double all = 0;  // multiples of a quarter: exact in any order
  for (int part = 0; part < of.parts; ++part)
    if (!is_absent(of, part, step)) all += weight_of(of, part, step);
  for (int64_t i = 0; i < count; ++i) {
    const T sum = tree<T>(
        of, step,
        [&](size_t part) {
          return static_cast<T>(load_one(sent[part].data(), i) *
                                static_cast<T>(weight_of(of, static_cast<int>(part), step)));
        },
        [](T node) { return node; });
    const T mean = sum / static_cast<T>(all);
    store_one(out.data(), i, std::isnan(mean) ? std::numeric_limits<T>::quiet_NaN() : mean);
  }
}

/// F32 and F64 in 16 bits: terms that are divided already, and each node is rounded.
template <class T>
void wired(const Combination& of, int step, const std::vector<Bytes>& sent, Bytes& out, int64_t count) {
  const bool half = of.options.wire == DDP_F16;
  const auto round = [half](double number) {
    return static_cast<float>(half ? decode_half(encode_half(number)) : decode_bfloat(encode_bfloat(number)));
  };
  for (int64_t i = 0; i < count; ++i) {
    const float sum = tree<float>(
        of, step,
        [&](size_t part) {
          const T x = load<T>(sent[part].data(), i);
          return round(static_cast<double>(of.options.reduce == DDP_SUM ? x : static_cast<T>(x / static_cast<T>(of.parts))));
        },
        [&](float node) { return round(static_cast<double>(node)); });
    store<T>(out.data(), i, std::isnan(sum) ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(sum));
  }
}

Bytes expected(const Combination& of, int step, size_t p) {
  const Shape& shape = of.shapes[p];
  std::vector<Bytes> sent;
  std::vector<const void*> in;
  for (int part = 0; part < of.parts; ++part) sent.push_back(contribution(of, part, step, passes_of(of, part, step), p));
  for (int part = 0; part < of.parts; ++part)
    in.push_back(is_absent(of, part, step) ? nullptr : sent[static_cast<size_t>(part)].data());
  Bytes out(sent[0].size());
  if (of.options.wire != cpu::ReduceRule::kAsItIs && (shape.dtype == DDP_F32 || shape.dtype == DDP_C64)) {
    wired<float>(of, step, sent, out, shape.count * (shape.dtype == DDP_C64 ? 2 : 1));
  } else if (of.options.wire != cpu::ReduceRule::kAsItIs && shape.dtype == DDP_F64) {
    wired<double>(of, step, sent, out, shape.count);
  } else if (!of.weighted) {
    naive_reduce({shape.dtype, of.options.reduce, of.parts}, in, out.data(), shape.count);
  } else if (shape.dtype == DDP_F64) {
    weighted<double>(of, step, sent, out, shape.count, load<double>, store<double>);
  } else if (shape.dtype == DDP_F16 || shape.dtype == DDP_BF16) {
    const bool half = shape.dtype == DDP_F16;
    weighted<float>(
        of, step, sent, out, shape.count,
        [half](const void* base, int64_t i) {
          return static_cast<float>(half ? decode_half(load<uint16_t>(base, i)) : decode_bfloat(load<uint16_t>(base, i)));
        },
        [half](void* base, int64_t i, float mean) {
          const auto number = static_cast<double>(mean);
          store<uint16_t>(base, i, half ? encode_half(number) : encode_bfloat(number));
        });
  } else {
    weighted<float>(of, step, sent, out, shape.count * (shape.dtype == DDP_C64 ? 2 : 1), load<float>, store<float>);
  }
  return out;
}

struct World : LentModel {
  const Combination& of;

  World(const Combination& combination, group::Group& of_group) : LentModel(of_group, combination.options), of(combination) {
    for (const Shape& shape : of.shapes) add(shape.dtype, shape.count, shape.memory == 0, shape.memory == 2);
    model->commit();
  }

  void make_part(int part, int step, ddp_pass last) {
    if (of.weighted) set_weight(*model, weight_of(of, part, step));
    if (is_absent(of, part, step)) return skip_backward(*model, nullptr);
    const int passes = passes_of(of, part, step);
    for (int pass = 0; pass < passes; ++pass) {
      model->begin_backward(pass + 1 < passes ? DDP_PASS_ACCUMULATE : last);
      for (size_t p = of.shapes.size(); p-- > 0;) {
        if (!marks(of, part, step, pass, p)) continue;
        write(p, contribution(of, part, step, pass + 1, p));
        model->pass().mark_ready(static_cast<int32_t>(p));
      }
      model->end_backward();
    }
  }
};

bool is_used(const Combination& of, int step, size_t p) {
  for (int part = 0; part < of.parts; ++part)
    for (int pass = 0; pass < passes_of(of, part, step) && !is_absent(of, part, step); ++pass)
      if (marks(of, part, step, pass, p)) return true;
  return false;
}

void check_combination(const Combination& of, group::Group& group) {
  World world(of, group);
  const VirtualRanks mine = VirtualRanks::of(group.options(), group.rank(), group.size());
  for (int step = 0; step < kSteps; ++step) {
    for (size_t p = 0; p < of.shapes.size(); ++p) world.write(p, Bytes(world.own[p].size()));
    for (int part = mine.first; part < mine.first + mine.count; ++part)
      world.make_part(part, step, part + 1 < mine.first + mine.count ? DDP_PASS_PART : DDP_PASS_REDUCE);
    for (size_t p = 0; p < of.shapes.size(); ++p) {
      const std::string what = "seed " + std::to_string(of.seed) + ", " + std::to_string(of.parts) + " parts on " +
                               std::to_string(group.size()) + " ranks, step " + std::to_string(step) + ", parameter " +
                               std::to_string(p) + " of " + std::to_string(of.shapes[p].count) + " " +
                               dtype_name(of.shapes[p].dtype);
      const bool used = is_used(of, step, p);
      expect(world.model->pass().results().was_used(static_cast<int32_t>(p)) == used, what + ": used");
      if (used) expect(world.read(p) == expected(of, step, p), what + ": bits");
    }
  }
  group.barrier();
}

void random_parts_keep_the_rule(Path path, int size) {
  const int combinations = path == Path::kLocal ? 12 : 5;
  run_at(path, size, [&](const std::string& place, ddp_group_options options, int) {
    for (int i = 0; i < combinations; ++i) {
      const Combination of =
          make_combination(static_cast<uint64_t>(10'000 * (static_cast<int>(path) + 1) + 1'000 * size + i), size);
      options.virtual_ranks = of.parts;
      const auto group = group::Group::create((place + "#" + std::to_string(i)).c_str(), options);
      check_combination(of, *group);
    }
  });
}

ddp_case_on(kThreePaths, random_parts_keep_the_rule_of_one_rank) { random_parts_keep_the_rule(path, 1); }
ddp_case_on(kThreePaths, random_parts_keep_the_rule_of_two_ranks) { random_parts_keep_the_rule(path, 2); }
ddp_case_on(kThreePaths, random_parts_keep_the_rule_of_three_ranks) { random_parts_keep_the_rule(path, 3); }
ddp_case_on(kEveryHostPath, random_parts_keep_the_rule_of_five_ranks) { random_parts_keep_the_rule(path, 5); }
