// The kernels of the module, called through its table as the library calls them, beside the CPU's loops: the same bits for every dtype, length, alignment and
// number of spans. A NaN is a NaN, whatever its payload.
#include <cmath>
#include <limits>
#include <random>

#include "base/float16.hpp"
#include "device/cpu/arrays.hpp"
#include "gpu/support/place.hpp"
#include "support/check.hpp"
#include "unit/update/oracle.hpp"
#include "update/kernels.hpp"

using namespace ddp;
using namespace ddp::test;
using gpu::kGpu;
using gpu::need_devices;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Short ones, whole vectors, a rest, more than a tile; one starts at an odd element.
const std::vector<int64_t> kLengths = {1, 3, 64, 1000, 4097, 20'011, 100'003};

/// Numbers of all sizes, some of them special.
std::string numbers(ddp_dtype dtype, int64_t count, uint64_t seed, double range = 4) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> plain(-range, range);
  std::string bytes(static_cast<size_t>(count * dtype_size(dtype)), '\0');
  for (int64_t i = 0; i < count; ++i) {
    double number = plain(random);
    if (random() % 64 == 0) number *= 1e-30;
    if (random() % 64 == 0) number = 0;
    set_element(dtype, bytes.data(), static_cast<size_t>(i), number);
  }
  return bytes;
}
std::string with_specials(ddp_dtype dtype, std::string bytes) {
  const double specials[] = {kInfinity, -kInfinity, std::nan(""), -0.0, 65504.0, 65520.0, 1e-8, 3.4e38, 5e-324};
  const auto count = static_cast<int64_t>(bytes.size()) / dtype_size(dtype);
  for (int64_t i = 0; i < count; i += 5) set_element(dtype, bytes.data(), static_cast<size_t>(i), specials[(i / 5) % 9]);
  return bytes;
}

void expect_same(ddp_dtype dtype, const std::string& got, const std::string& wanted, const std::string& what) {
  const auto size = static_cast<size_t>(dtype_size(dtype));
  expect_equal(got.size(), wanted.size(), what + ", bytes");
  for (size_t i = 0; i < got.size() / size; ++i) {
    const double a = get_element(dtype, got.data(), i), b = get_element(dtype, wanted.data(), i);
    if (std::memcmp(got.data() + i * size, wanted.data() + i * size, size) == 0 || (std::isnan(a) && std::isnan(b))) continue;
    std::ostringstream text;
    text.precision(17);
    text << what << ", " << dtype_name(dtype) << ", element " << i << " is " << a << " instead of " << b;
    throw std::runtime_error(text.str());
  }
}

/// Several arrays in one allocation, each `offset` elements behind a boundary of 256 bytes.
class Arrays {
 public:
  Arrays(ddp_dtype element, std::vector<std::string> data, int64_t offset)
      : dtype(element), host(std::move(data)), shift(offset * dtype_size(element)), memory(kGpu, total()) {
    std::string all(static_cast<size_t>(memory.bytes()), '\0');
    for (size_t k = 0; k < host.size(); ++k) all.replace(static_cast<size_t>(start(k)), host[k].size(), host[k]);
    memory.write(all);
  }
  [[nodiscard]] void* at(size_t k) const { return static_cast<std::byte*>(memory.data()) + start(k); }
  [[nodiscard]] int64_t count(size_t k) const { return static_cast<int64_t>(host[k].size()) / dtype_size(dtype); }
  /// What the device holds now; bytes between the arrays must be zero still.
  [[nodiscard]] std::vector<std::string> read() const {
    const std::string all = memory.read();
    std::vector<std::string> parts;
    std::string rest = all;
    for (size_t k = 0; k < host.size(); ++k) {
      parts.push_back(all.substr(static_cast<size_t>(start(k)), host[k].size()));
      rest.replace(static_cast<size_t>(start(k)), host[k].size(), std::string(host[k].size(), '\0'));
    }
    expect(rest == std::string(rest.size(), '\0'), "nothing was written beside the arrays");
    return parts;
  }
  ddp_dtype dtype;
  std::vector<std::string> host;

 private:
  [[nodiscard]] int64_t start(size_t k) const {
    int64_t at = shift;
    for (size_t j = 0; j < k; ++j) at += (static_cast<int64_t>(host[j].size()) / 256 + 2) * 256;
    return at;
  }
  [[nodiscard]] int64_t total() const { return start(host.size()) + 512; }
  int64_t shift;
  gpu::Memory memory;
};

std::vector<std::string> all_lengths(ddp_dtype dtype, uint64_t seed, bool specials = false) {
  std::vector<std::string> data;
  for (const int64_t length : kLengths) {
    data.push_back(numbers(dtype, length, seed + data.size()));
    if (specials) data.back() = with_specials(dtype, data.back());
  }
  return data;
}

std::string encoded_double(double number) { return {reinterpret_cast<const char*>(&number), sizeof number}; }

double limited(double x, double limit) { return x > limit ? limit : x < -limit ? -limit : x; }

/// What `move` does to one element.
void move_one(ddp_dtype from, const void* source, ddp_dtype to, void* target, size_t i, double factor, double limit) {
  const double x = source == nullptr ? 0 : get_element(from, source, i);
  if (from == DDP_F64 || to == DDP_F64) return set_element(to, target, i, limited(x * factor, limit));
  const float product = static_cast<float>(x) * static_cast<float>(factor), most = static_cast<float>(limit);
  set_element(to, target, i, static_cast<double>(product > most ? most : product < -most ? -most : product));
}

void move_converts_scales_and_limits(void**) {
  const gpu::Stream stream(kGpu);
  for (const ddp_dtype from : kFloats)
    for (const ddp_dtype to : kFloats)
      for (const auto& [factor, limit] : {std::pair{1.0, kInfinity}, {1.0 / 3, kInfinity}, {0.7, 1.25}})
        for (const int64_t offset : {0, 1}) {
          Arrays source(from, all_lengths(from, 1, true), offset);
          std::vector<std::string> wanted, empty;
          for (const std::string& host : source.host) {
            const size_t count = host.size() / static_cast<size_t>(dtype_size(from));
            empty.emplace_back(count * static_cast<size_t>(dtype_size(to)), '\0');
            wanted.push_back(empty.back());
            for (size_t i = 0; i < count; ++i) move_one(from, host.data(), to, wanted.back().data(), i, factor, limit);
          }
          Arrays target(to, empty, 1 - offset);
          std::vector<ddp_gpu_span> spans;
          for (size_t k = 0; k < wanted.size(); ++k) spans.push_back({source.at(k), target.at(k), source.count(k)});
          GPU_CALL(move(spans.data(), static_cast<int64_t>(spans.size()), from, to, factor, limit, nullptr, stream.get()));
          stream.wait();
          const auto got = target.read();
          for (size_t k = 0; k < got.size(); ++k) expect_same(to, got[k], wanted[k], std::string("moved from ") + dtype_name(from));
        }
}

void move_works_in_place_and_writes_zeros(void**) {
  const gpu::Stream stream(kGpu);
  for (const ddp_dtype dtype : kFloats) {
    Arrays arrays(dtype, all_lengths(dtype, 3), 1);
    auto wanted = arrays.host;
    std::vector<ddp_gpu_span> spans;
    for (size_t k = 0; k < wanted.size(); ++k) {
      const bool zero = k % 2 == 0;
      spans.push_back({zero ? nullptr : arrays.at(k), arrays.at(k), arrays.count(k)});
      if (zero) wanted[k].assign(wanted[k].size(), '\0');
      else cpu::scale(dtype, wanted[k].data(), arrays.count(k), 0.3);
    }
    GPU_CALL(move(spans.data(), static_cast<int64_t>(spans.size()), dtype, dtype, 0.3, kInfinity, nullptr, stream.get()));
    stream.wait();
    const auto got = arrays.read();
    for (size_t k = 0; k < got.size(); ++k) expect_same(dtype, got[k], wanted[k], "in place");
  }
}

void thousands_of_spans_are_all_done(void**) {
  const gpu::Stream stream(kGpu);
  std::vector<std::string> data;
  for (int64_t k = 0; k < 5000; ++k) data.push_back(numbers(DDP_F32, 1 + k % 7, static_cast<uint64_t>(k)));
  Arrays source(DDP_F32, data, 0);
  for (std::string& array : data) array.assign(array.size(), '\0');
  Arrays target(DDP_F32, data, 0);
  std::vector<ddp_gpu_span> spans;
  for (size_t k = 0; k < data.size(); ++k) spans.push_back({source.at(k), target.at(k), source.count(k)});
  GPU_CALL(move(spans.data(), static_cast<int64_t>(spans.size()), DDP_F32, DDP_F32, 1, kInfinity, nullptr, stream.get()));
  stream.wait();
  expect(target.read() == source.host, "all spans were moved");
}

void exchange_swaps_bytes(void**) {
  const gpu::Stream stream(kGpu);
  Arrays a(DDP_F16, all_lengths(DDP_F16, 5), 1), b(DDP_F16, all_lengths(DDP_F16, 6), 0);
  std::vector<ddp_gpu_span> spans;
  for (size_t k = 0; k < a.host.size(); ++k) spans.push_back({a.at(k), b.at(k), a.count(k) * 2});
  GPU_CALL(exchange(spans.data(), static_cast<int64_t>(spans.size()), stream.get()));
  stream.wait();
  expect(a.read() == b.host && b.read() == a.host, "they were swapped");
}

void averages_have_the_bits_of_the_cpu(void**) {
  const gpu::Stream stream(kGpu);
  for (const ddp_dtype dtype : kFloats) {
    const ddp_dtype wide = moment_dtype(dtype);
    Arrays value(dtype, all_lengths(dtype, 7), 1), average(wide, all_lengths(wide, 8), 0);
    auto wanted = average.host;
    const double decay = 0.99;
    std::vector<ddp_gpu_span> spans;
    for (size_t k = 0; k < wanted.size(); ++k) {
      spans.push_back({value.at(k), average.at(k), value.count(k)});
      void* const to = wanted[k].data();
      ema_update(&decay, 1, dtype, value.host[k].data(), &to, value.count(k));
    }
    GPU_CALL(ema(spans.data(), static_cast<int64_t>(spans.size()), dtype, decay, nullptr, stream.get()));
    stream.wait();
    const auto got = average.read();
    for (size_t k = 0; k < got.size(); ++k) expect_same(wide, got[k], wanted[k], "average");
  }
}

/// A rule's arrays on the device, and what the CPU makes of them.
struct Rule {
  ddp_dtype dtype;
  Arrays value, grad, first, second;
  std::vector<std::string> values, firsts, seconds;
  std::vector<ddp_gpu_update> updates;

  Rule(ddp_dtype element, int64_t offset)
      : dtype(element), value(element, all_lengths(element, 11), offset), grad(element, all_lengths(element, 12, true), 1 - offset),
        first(moment_dtype(element), all_lengths(moment_dtype(element), 13), offset), second(moment_dtype(element), positive(), 0),
        values(value.host), firsts(first.host), seconds(second.host) {
    for (size_t k = 0; k < values.size(); ++k)
      updates.push_back({value.at(k), grad.at(k), {first.at(k), second.at(k)}, nullptr, value.count(k), static_cast<int64_t>(k % 2)});
  }
  [[nodiscard]] std::vector<std::string> positive() const {
    auto data = all_lengths(moment_dtype(dtype), 14);
    for (std::string& array : data)
      for (size_t i = 0; i < array.size() / static_cast<size_t>(dtype_size(moment_dtype(dtype))); ++i)
        set_element(moment_dtype(dtype), array.data(), i, std::abs(get_element(moment_dtype(dtype), array.data(), i)));
    return data;
  }
  void expect_same_arrays(const std::string& what) const {
    const auto v = value.read(), f = first.read(), s = second.read();
    for (size_t k = 0; k < v.size(); ++k) {
      expect_same(dtype, v[k], values[k], what + ", value");
      expect_same(moment_dtype(dtype), f[k], firsts[k], what + ", first moment");
      expect_same(moment_dtype(dtype), s[k], seconds[k], what + ", second moment");
    }
  }
};

const GradShape kShapes[] = {{1, kInfinity}, {0.125, kInfinity}, {0.3, 0.7}};

void adam_has_the_bits_of_the_cpu(void**) {
  const gpu::Stream stream(kGpu);
  const ddp_gpu_adam_rule rules[2] = {{0.999, 0, 0.9, 0.1, 0.999, 0.001, 0.0123, 3.7, 1e-8}, {1, 0.05, 0.8, 0.2, 0.99, 0.01, 0.001, 1.5, 1e-6}};
  for (const ddp_dtype dtype : kFloats)
    for (const GradShape& shape : kShapes)
      for (const int64_t offset : {0, 1}) {
        Rule rule(dtype, offset);
        for (size_t k = 0; k < rule.values.size(); ++k) {
          const ddp_gpu_adam_rule& r = rules[k % 2];
          const AdamStep step{r.keep, r.weight_decay, r.beta1, r.share1, r.beta2, r.share2, r.size, r.root_scale, r.epsilon, shape};
          adam_update(step, dtype, rule.values[k].data(), rule.grad.host[k].data(), rule.firsts[k].data(), rule.seconds[k].data(), rule.value.count(k));
        }
        const ddp_gpu_shape how{shape.scale, shape.limit, nullptr};
        GPU_CALL(adam(rule.updates.data(), static_cast<int64_t>(rule.updates.size()), rules, 2, dtype, &how, nullptr, stream.get()));
        stream.wait();
        rule.expect_same_arrays("Adam");
      }
}

void sgd_has_the_bits_of_the_cpu(void**) {
  const gpu::Stream stream(kGpu);
  const Momentum modes[] = {Momentum::kNone, Momentum::kFirst, Momentum::kRunning};
  for (const ddp_dtype dtype : kFloats)
    for (const GradShape& shape : kShapes)
      for (const int32_t mode : {0, 1, 2})
        for (const int32_t nesterov : {0, 1}) {
          if (mode == 0 && nesterov == 1) continue;
          Rule rule(dtype, 0);
          const ddp_gpu_sgd_rule rules[2] = {{0.05, 0, 0.9, 1, mode, nesterov}, {0.01, 0.1, 0.5, 0.7, mode, nesterov}};
          for (size_t k = 0; k < rule.values.size(); ++k) {
            const ddp_gpu_sgd_rule& r = rules[k % 2];
            const SgdStep step{r.rate, r.weight_decay, r.momentum, r.gradient_share, modes[mode], nesterov == 1, shape};
            sgd_update(step, dtype, rule.values[k].data(), rule.grad.host[k].data(), mode == 0 ? nullptr : rule.firsts[k].data(), rule.value.count(k));
            if (mode == 0) rule.updates[k].state[0] = nullptr;
            rule.updates[k].state[1] = nullptr;
          }
          const ddp_gpu_shape how{shape.scale, shape.limit, nullptr};
          GPU_CALL(sgd(rule.updates.data(), static_cast<int64_t>(rule.updates.size()), rules, 2, dtype, &how, nullptr, stream.get()));
          stream.wait();
          rule.expect_same_arrays("SGD");
        }
}

void a_stop_or_a_closed_gate_changes_nothing(void**) {
  const gpu::Stream stream(kGpu);
  void *host = nullptr, *on_device = nullptr;
  GPU_CALL(host_alloc(&host, &on_device, 8));
  const gpu::Memory gate(kGpu, sizeof(ddp_gpu_gate));
  const ddp_gpu_gate closed{1, 1, 1, 0};
  gate.write(std::string(reinterpret_cast<const char*>(&closed), sizeof closed));
  const auto stop = static_cast<ddp_gpu_stop>(on_device);
  const ddp_gpu_adam_rule rule{0.999, 0, 0.9, 0.1, 0.999, 0.001, 0.0123, 3.7, 1e-8};
  for (const bool by_gate : {false, true}) {
    Rule arrays(DDP_F32, 0);
    for (ddp_gpu_update& update : arrays.updates) update.rule = 0;
    *static_cast<volatile uint32_t*>(host) = by_gate ? 0 : 1;
    const ddp_gpu_shape shape{1, kInfinity, by_gate ? static_cast<const ddp_gpu_gate*>(gate.data()) : nullptr};
    const auto count = static_cast<int64_t>(arrays.updates.size());
    GPU_CALL(adam(arrays.updates.data(), count, &rule, 1, DDP_F32, &shape, stop, stream.get()));
    const ddp_gpu_span span{arrays.grad.at(0), arrays.value.at(0), arrays.value.count(0)};
    if (!by_gate) GPU_CALL(move(&span, 1, DDP_F32, DDP_F32, 1, kInfinity, stop, stream.get()));
    if (!by_gate) GPU_CALL(ema(&span, 1, DDP_F32, 0.5, stop, stream.get()));
    stream.wait();
    arrays.expect_same_arrays(by_gate ? "a closed gate" : "a stop");
  }
  GPU_CALL(host_free(host));
}

void norms_have_the_bits_of_the_cpu(void**) {
  const gpu::Stream stream(kGpu);
  for (const ddp_dtype dtype : kFloats)
    for (const int32_t p : {1, 2})
      for (const bool specials : {false, true}) {
        Arrays arrays(dtype, all_lengths(dtype, 21, specials), 0);
        const gpu::Memory words(kGpu, static_cast<int64_t>(ExactSum::kWords * 8));
        ExactSum wanted, got;
        std::vector<ddp_gpu_span> spans;
        for (size_t k = 0; k < arrays.host.size(); ++k) {
          spans.push_back({arrays.at(k), nullptr, arrays.count(k)});
          cpu::add_norm_terms(dtype, arrays.host[k].data(), arrays.count(k), p, wanted);
        }
        GPU_CALL(add_norm_terms(spans.data(), static_cast<int64_t>(spans.size()), dtype, p, static_cast<int64_t*>(words.data()), stream.get()));
        stream.wait();
        const std::string bytes = words.read();
        std::memcpy(got.words().data(), bytes.data(), bytes.size());
        expect_same(DDP_F64, encoded_double(got.value()), encoded_double(wanted.value()), "norm of order " + std::to_string(p));
        expect_equal(got.all_finite(), wanted.all_finite(), "are all finite");
      }
}

void the_largest_magnitude_is_found(void**) {
  const gpu::Stream stream(kGpu);
  for (const ddp_dtype dtype : kFloats)
    for (const bool specials : {false, true}) {
      Arrays arrays(dtype, all_lengths(dtype, 31, specials), 1);
      const gpu::Memory bits(kGpu, 8);
      double wanted = 0;
      std::vector<ddp_gpu_span> spans;
      for (size_t k = 0; k < arrays.host.size(); ++k) {
        spans.push_back({arrays.at(k), nullptr, arrays.count(k)});
        const double most = cpu::largest_magnitude(dtype, arrays.host[k].data(), arrays.count(k));
        wanted = std::isnan(wanted) || most < wanted ? wanted : most;
      }
      GPU_CALL(largest(spans.data(), static_cast<int64_t>(spans.size()), dtype, static_cast<uint64_t*>(bits.data()), stream.get()));
      stream.wait();
      expect_same(DDP_F64, bits.read(), encoded_double(wanted), "the largest magnitude");
    }
}

void a_decision_is_that_of_the_policy(void**) {
  const gpu::Stream stream(kGpu);
  const gpu::Memory words(kGpu, static_cast<int64_t>(ExactSum::kWords * 8)), gate(kGpu, sizeof(ddp_gpu_gate));
  for (const double square : {0.0, 0.3, 16.0, 1e300, kInfinity, std::nan("")})
    for (const double max_norm : {0.0, 1.5})
      for (const double loss_scale : {1.0, 1024.0}) {
        ExactSum sum;
        sum.add(square);
        words.write(std::string(reinterpret_cast<const char*>(sum.words().data()), ExactSum::kWords * 8));
        GPU_CALL(decide(static_cast<const int64_t*>(words.data()), loss_scale, max_norm, 1, static_cast<ddp_gpu_gate*>(gate.data()), stream.get()));
        stream.wait();
        ddp_gpu_gate got{};
        std::memcpy(&got, gate.read().data(), sizeof got);
        const double norm = std::sqrt(square) / loss_scale;
        double scale = 1 / loss_scale;
        if (max_norm > 0 && !(max_norm / (norm + 1e-6) >= 1)) scale *= max_norm / (norm + 1e-6);
        expect_same(DDP_F64, encoded_double(got.norm), encoded_double(norm), "the norm");
        expect_same(DDP_F64, encoded_double(got.scale), encoded_double(scale), "the scale");
        expect_equal(got.skip != 0, !std::isfinite(square), "is the step left out");
      }
}

void a_hash_depends_on_the_bytes_alone(void**) {
  const gpu::Stream stream(kGpu);
  const auto hash_of = [&](const std::vector<std::string>& data, int64_t offset) {
    Arrays arrays(DDP_U8, data, offset);
    const gpu::Memory out(kGpu, static_cast<int64_t>(data.size()) * 8);
    std::vector<ddp_gpu_span> spans;
    for (size_t k = 0; k < data.size(); ++k) spans.push_back({arrays.at(k), nullptr, arrays.count(k)});
    GPU_CALL(hash(spans.data(), static_cast<int64_t>(spans.size()), static_cast<uint64_t*>(out.data()), stream.get()));
    stream.wait();
    return out.read();
  };
  std::vector<std::string> data;
  for (const size_t length : {size_t{1}, size_t{7}, size_t{64}, size_t{1000}, size_t{65'537}, size_t{1'000'001}}) data.push_back(numbers(DDP_F64, static_cast<int64_t>(length / 8 + 1), length).substr(0, length));
  const std::string first = hash_of(data, 0);
  expect(first == hash_of(data, 3), "the place changes nothing");
  for (size_t k = 0; k < data.size(); ++k) {
    auto changed = data;
    changed[k].back() = static_cast<char>(changed[k].back() ^ 0x10);
    const std::string other = hash_of(changed, 0);
    for (size_t j = 0; j < data.size(); ++j) expect_equal(other.substr(8 * j, 8) == first.substr(8 * j, 8), j != k, "the hash of array " + std::to_string(j));
  }
}

}  // namespace

int main() {
  need_devices(1);
  const CMUnitTest tests[] = {
      ddp_test(move_converts_scales_and_limits),
      ddp_test(move_works_in_place_and_writes_zeros),
      ddp_test(thousands_of_spans_are_all_done),
      ddp_test(exchange_swaps_bytes),
      ddp_test(averages_have_the_bits_of_the_cpu),
      ddp_test(adam_has_the_bits_of_the_cpu),
      ddp_test(sgd_has_the_bits_of_the_cpu),
      ddp_test(a_stop_or_a_closed_gate_changes_nothing),
      ddp_test(norms_have_the_bits_of_the_cpu),
      ddp_test(the_largest_magnitude_is_found),
      ddp_test(a_decision_is_that_of_the_policy),
      ddp_test(a_hash_depends_on_the_bytes_alone),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
