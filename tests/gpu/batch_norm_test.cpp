// SPDX-License-Identifier: Apache-2.0
// Batch normalisation of CUDA tensors: the results of the CPU, within the rounding of sums whose order differs.
#include "gpu/support/trainer.hpp"

using namespace ddp::test::card;

namespace {

struct Sizes {
  int64_t samples, channels, pixels;
  [[nodiscard]] int64_t values() const { return samples * channels * pixels; }
};

struct Result {
  std::vector<double> y, dx, weight_grad, bias_grad, running_mean, running_var;
};

std::vector<double> numbers_of(const Memory& memory, ddp_dtype dtype, int64_t count) {
  const std::string bytes = memory.read();
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(get_element(dtype, bytes.data(), static_cast<size_t>(i)));
  return numbers;
}

class Layer {
 public:
  Layer(Place at, ddp_dtype element, Sizes size) : place(at), dtype(element), sizes(size) {
    const auto number = [](int64_t i) { return std::sin(0.37 * static_cast<double>(i)) * 3 + 1; };
    for (Memory* const memory : {&x, &dy})
      memory->write(encoded(dtype, sizes.values(), [&](int64_t i) { return number(memory == &x ? i : 3 * i + 5); }));
    weight.write(encoded(DDP_F32, sizes.channels, [](int64_t i) { return 1.5 - 0.25 * static_cast<double>(i); }));
    bias.write(encoded(DDP_F32, sizes.channels, [](int64_t i) { return 0.5 * static_cast<double>(i); }));
    variance.write(encoded(DDP_F32, sizes.channels, [](int64_t) { return 1.0; }));
  }

  Result run(ddp_group* group, bool training) {
    auto options = defaults<ddp_batch_norm_options>();
    options.training = training ? 1 : 0;
    int64_t count = 0;
    const ddp_tensor tx = whole(x), ty = whole(y), tdy = whole(dy), tdx = whole(dx);
    const ddp_tensor tw = line(weight, DDP_F32), tb = line(bias, DDP_F32), tm = line(mean, DDP_F32),
                     tv = line(variance, DDP_F32);
    const ddp_tensor sm = line(saved_mean, DDP_F64), si = line(saved_invstd, DDP_F64), gw = line(weight_grad, DDP_F32),
                     gb = line(bias_grad, DDP_F32);
    OK(ddp_batch_norm_forward(group, &options, &tx, &tw, &tb, &tm, &tv, &ty, &sm, &si, &count, stream.get()));
    if (training) expect_equal(count, sizes.samples * sizes.pixels, "values of a channel");
    OK(ddp_batch_norm_backward(group, &options, &tdy, &tx, &tw, &sm, &si, count, &tdx, &gw, &gb, stream.get()));
    stream.wait();
    const int64_t c = sizes.channels;
    return {numbers_of(y, dtype, sizes.values()), numbers_of(dx, dtype, sizes.values()), numbers_of(weight_grad, DDP_F32, c),
            numbers_of(bias_grad, DDP_F32, c),    numbers_of(mean, DDP_F32, c),          numbers_of(variance, DDP_F32, c)};
  }

 private:
  [[nodiscard]] ddp_tensor whole(const Memory& memory) const {
    return {memory.data(), dtype, place.on_gpu() ? DDP_CUDA : DDP_CPU, 0, 3, {sizes.samples, sizes.channels, sizes.pixels}};
  }
  [[nodiscard]] ddp_tensor line(const Memory& memory, ddp_dtype element) const {
    return flat(memory.data(), element, sizes.channels, place);
  }
  [[nodiscard]] Memory array() const { return {place, sizes.values() * dtype_size(dtype)}; }
  [[nodiscard]] Memory channel(int64_t bytes) const { return {place, sizes.channels * bytes}; }

  Place place;
  ddp_dtype dtype;
  Sizes sizes;
  Stream stream{place};
  Memory x = array(), y = array(), dy = array(), dx = array();
  Memory weight = channel(4), bias = channel(4), mean = channel(4), variance = channel(4), saved_mean = channel(8),
         saved_invstd = channel(8);
  Memory weight_grad = channel(4), bias_grad = channel(4);
};

/// A few roundings to the element's type. Means and sums are in F64, but added in another order on a GPU: of this many
/// values a few more units of F64.
void expect_near(const std::vector<double>& got, const std::vector<double>& wanted, double unit, const std::string& what) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double allowed = std::max(4 * unit, 64 * unit_of(DDP_F64)) * (std::abs(wanted[i]) + 1);
    if (std::abs(got[i] - wanted[i]) <= allowed) continue;
    char text[160];
    std::snprintf(text, sizeof text, "%s[%zu] is %.17g instead of %.17g, %.1e apart, allowed %.1e", what.c_str(), i, got[i],
                  wanted[i], std::abs(got[i] - wanted[i]), allowed);
    throw std::runtime_error(text);
  }
}

ddp_case(it_is_that_of_the_cpu) {
  const GroupHandle group = alone();
  for (const ddp_dtype dtype : kFloats)
    for (const Sizes sizes : {Sizes{2, 1, 1}, Sizes{8, 5, 49}, Sizes{3, 64, 1}, Sizes{16, 3, 1025}})
      for (const bool training : {true, false}) {
        const Result gpu = Layer(kGpu, dtype, sizes).run(group.get(), training),
                     cpu = Layer(kCpu, dtype, sizes).run(group.get(), training);
        const std::string of = std::string(" of ") + std::to_string(dtype) + (training ? ", training" : "");
        const double unit = unit_of(dtype), sums = 8 * unit_of(DDP_F32);
        expect_near(gpu.y, cpu.y, unit, "y" + of);
        expect_near(gpu.dx, cpu.dx, unit, "dx" + of);
        expect_near(gpu.weight_grad, cpu.weight_grad, sums, "the weight's gradient");
        expect_near(gpu.bias_grad, cpu.bias_grad, sums, "the bias's gradient");
        expect_near(gpu.running_mean, cpu.running_mean, sums, "the running mean");
        expect_near(gpu.running_var, cpu.running_var, sums, "the running variance");
      }
}

gpu_cases(need_devices(1));

}  // namespace
