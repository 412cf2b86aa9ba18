// SPDX-License-Identifier: Apache-2.0
// A model of odd sizes in a place, with gradients made from rank, step and position: the same numbers in any place.
#pragma once

#include "gpu/support/calls.hpp"
#include "gpu/support/place.hpp"
#include "unit/optim/oracle.hpp"

namespace ddp::test::card {

inline int64_t reals_per_element(ddp_dtype dtype) { return dtype == DDP_C64 || dtype == DDP_C128 ? 2 : 1; }
inline ddp_dtype real_dtype(ddp_dtype dtype) { return dtype == DDP_C64 ? DDP_F32 : dtype == DDP_C128 ? DDP_F64 : dtype; }

/// `count` elements whose real numbers are number(0), number(1), ...
inline std::string encoded(ddp_dtype dtype, int64_t count, const std::function<double(int64_t)>& number) {
  const ddp_dtype real = real_dtype(dtype);
  const int64_t reals = count * reals_per_element(dtype);
  std::string bytes(static_cast<size_t>(reals * dtype_size(real)), '\0');
  for (int64_t i = 0; i < reals; ++i) set_element(real, bytes.data(), static_cast<size_t>(i), number(i));
  return bytes;
}

/// Small whole numbers: sums over a few ranks are exact in every dtype.
inline double whole_gradient(int rank, int step, size_t p, int64_t i) {
  return static_cast<double>((i * 7 + static_cast<int64_t>(p) * 13 + step * 5 + rank * 3) % 17) - 8;
}
/// Numbers with many digits, between -10 and 10.
inline double fine_gradient(int rank, int step, size_t p, int64_t i) {
  const uint64_t mixed = (static_cast<uint64_t>(i) * 31 + p * 1009 + static_cast<uint64_t>(step) * 65537 +
                          static_cast<uint64_t>(rank) * 104729 + 1) *
                         0x9E3779B97F4A7C15u;
  return static_cast<double>(mixed >> 40) / 838860.8 - 10.0;
}

struct Plan {
  Place place = kGpu;
  ddp_dtype dtype = DDP_F32;
  bool own_gradients = false;
  bool fine = true;
  int rank = 0;
  /// One is larger than a bucket, some smaller than a vector.
  std::vector<int64_t> counts = {7, 5000, 1, 1024, 3000, 64, 20'000, 900};
  std::function<void(ddp_model_options&)> options = [](ddp_model_options&) {};
  std::function<void(ddp_model*)> before_commit = [](ddp_model*) {};
};

class Trainer {
 public:
  Trainer(ddp_group* group, const Plan& asked) : plan(asked), stream(asked.place) {
    auto options = defaults<ddp_model_options>();
    options.first_bucket_bytes = 8'000;
    options.bucket_bytes = 60'000;
    plan.options(options);
    ddp_model* made = nullptr;
    OK(ddp_model_create(group, &options, &made));
    model.reset(made);
    for (size_t p = 0; p < plan.counts.size(); ++p) add(p);
    plan.before_commit(made);
    OK(ddp_model_commit(made, stream.get()));
    for (size_t p = 0; p < plan.counts.size(); ++p) {
      ddp_tensor grad;
      OK(ddp_model_get_grad(made, static_cast<int32_t>(p), &grad));
      grads.push_back(grad.data);
    }
  }

  [[nodiscard]] int32_t count() const { return static_cast<int32_t>(plan.counts.size()); }
  [[nodiscard]] int64_t bytes_of(size_t p) const {
    return plan.counts[p] * reals_per_element(plan.dtype) * dtype_size(real_dtype(plan.dtype));
  }

  [[nodiscard]] std::string gradient_of(size_t p, int step) const {
    const auto make = plan.fine ? fine_gradient : whole_gradient;
    return encoded(plan.dtype, plan.counts[p], [&](int64_t i) { return make(plan.rank, step, p, i) * scale; });
  }
  /// The gradient of a parameter comes into being in the order of `on`.
  void produce(size_t p, int step, void* on) {
    std::string bytes = gradient_of(p, step);
    plan.place.make_current();
    if (plan.place.on_gpu())
      GPU_CALL(copy(grads[p], lent_to_copies.emplace_back(std::move(bytes)).data(), bytes_of(p), on));
    else
      std::memcpy(grads[p], bytes.data(), bytes.size());
  }
  /// For copy_grad, which never makes the host wait: puts the gradients of a step aside, at once.
  void put_aside(int step) {
    stream.wait();
    for (size_t p = 0; p < plan.counts.size(); ++p) {
      if (sources.size() == p) sources.emplace_back(plan.place, bytes_of(p));
      sources[p].write(gradient_of(p, step));
    }
  }
  void copy_grad(size_t p, void* on) {
    plan.place.make_current();
    if (plan.place.on_gpu())
      GPU_CALL(copy(grads[p], sources[p].data(), bytes_of(p), on));
    else
      std::memcpy(grads[p], sources[p].data(), static_cast<size_t>(bytes_of(p)));
  }
  /// Gradients in reverse, each marked when it has been enqueued.
  void fill_and_mark(int step) {
    for (auto p = plan.counts.size(); p-- > 0;) {
      produce(p, step, stream.get());
      OK(ddp_model_mark_ready(model.get(), static_cast<int32_t>(p), stream.get()));
    }
  }
  void pass(int step, ddp_pass mode = DDP_PASS_REDUCE) {
    OK(ddp_model_begin_backward(model.get(), mode));
    fill_and_mark(step);
    OK(ddp_model_end_backward(model.get(), stream.get()));
  }

  [[nodiscard]] std::string value_bytes() const {
    stream.wait();
    std::string all;
    for (const Memory& value : values) all += value.read();
    return all;
  }
  [[nodiscard]] std::string grad_bytes() const {
    stream.wait();
    std::string all;
    for (size_t p = 0; p < grads.size(); ++p) all += read_memory(plan.place, grads[p], bytes_of(p));
    return all;
  }
  /// What grad_bytes() is for these numbers.
  [[nodiscard]] std::string expected_grads(const std::function<double(size_t, int64_t)>& number) const {
    std::string all;
    for (size_t p = 0; p < plan.counts.size(); ++p)
      all += encoded(plan.dtype, plan.counts[p], [&](int64_t i) { return number(p, i); });
    return all;
  }
  [[nodiscard]] int64_t hash() const {
    stream.wait();
    int64_t out = 0;
    OK(ddp_model_get_hash(model.get(), &out));
    return out;
  }

  Plan plan;
  double scale = 1;  // gradients are multiplied by it
  Stream stream;
  std::deque<std::string> lent_to_copies;  // a copy may read its host memory late; the memory below waits for the device
  std::vector<Memory> values, own_grads, sources;
  std::vector<void*> grads;
  ModelHandle model;  // goes first: it uses the memory above

 private:
  void add(size_t p) {
    values.emplace_back(plan.place, bytes_of(p));
    values.back().write(encoded(plan.dtype, plan.counts[p],
                                [&](int64_t i) { return std::sin(static_cast<double>(i) + static_cast<double>(p)); }));
    const ddp_tensor value = flat(values.back().data(), plan.dtype, plan.counts[p], plan.place);
    ddp_tensor grad = value;
    if (plan.own_gradients) {
      own_grads.emplace_back(plan.place, bytes_of(p));
      grad.data = own_grads.back().data();
    }
    OK(ddp_model_add_parameter(model.get(), ("p" + std::to_string(p)).c_str(), &value, plan.own_gradients ? &grad : nullptr,
                               nullptr));
  }
};

/// Equal bytes; a failure names the first difference.
inline void expect_same_bytes(const std::string& got, const std::string& wanted, const std::string& what) {
  if (got == wanted) return;
  size_t at = 0;
  while (at < std::min(got.size(), wanted.size()) && got[at] == wanted[at]) ++at;
  throw std::runtime_error(what + ": " + std::to_string(got.size()) + " and " + std::to_string(wanted.size()) +
                           " bytes, different from byte " + std::to_string(at) + " on");
}

}  // namespace ddp::test::card
