// SPDX-License-Identifier: Apache-2.0
// Kernels over spans, with the arithmetic of the CPU.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "core/exact_sum.hpp"
#include "core/hash.hpp"
#include "device/cpu/arrays.hpp"
#include "device/cpu/update_kernels.hpp"
#include "optim/policy.hpp"
#include "support/fake_gpu/calls.hpp"
#include "support/fake_gpu/launch.hpp"

namespace ddp::test::fake_gpu::entry {
namespace {

constexpr int64_t kBlock = 512;  // elements

struct Span {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t count = 0;
};

struct Rates {
  int64_t from = 0, to = 0;  // bytes of an element; 0: the side is not used
  bool reads_to = false, writes_from = false;
};

/// Copies of the spans with real addresses; false if the arguments are none.
bool read_spans(Touches& touches, const ddp_gpu_span* spans, int64_t count, const Rates& rates, std::vector<Span>& out) {
  if (count < 0 || (count > 0 && spans == nullptr)) return false;
  for (int64_t k = 0; k < count; ++k) {
    const ddp_gpu_span& span = spans[k];
    if (span.count < 0) return false;
    Span real{nullptr, nullptr, span.count};
    auto* const from = static_cast<std::byte*>(span.from);
    auto* const to = static_cast<std::byte*>(span.to);
    if (rates.from > 0 && from != nullptr && span.count > 0) real.from = touches.read(from, span.count * rates.from);
    if (rates.writes_from && span.count > 0) (void)touches.write(from, span.count * rates.from);
    if (rates.reads_to && span.count > 0) (void)touches.read(to, span.count * rates.to);
    if (rates.to > 0 && span.count > 0) real.to = touches.write(to, span.count * rates.to);
    out.push_back(real);
  }
  return true;
}

int64_t size_of(int32_t dtype) noexcept { return dtype_size(static_cast<ddp_dtype>(dtype)); }

struct Movement {
  ddp_dtype from, to;
  double factor, limit;
  double divisor = 0;  // 0: no quotient
};

void divide(ddp_dtype dtype, double* block, int64_t count, double divisor) {
  for (int64_t i = 0; dtype == DDP_F64 && i < count; ++i)
    if (!std::isnan(block[i])) block[i] /= divisor;
  auto* const single = reinterpret_cast<float*>(block);
  for (int64_t i = 0; dtype == DDP_F32 && i < count; ++i)
    if (!std::isnan(single[i])) single[i] /= static_cast<float>(divisor);
}

void move_span(const Span& span, const Movement& how) {
  const bool wide = how.from == DDP_F64 || how.to == DDP_F64;
  const ddp_dtype between = wide ? DDP_F64 : DDP_F32;
  const int64_t from_size = dtype_size(how.from), to_size = dtype_size(how.to);
  alignas(64) double block[kBlock];
  for (int64_t at = 0; at < span.count; at += kBlock) {
    const int64_t n = std::min(kBlock, span.count - at);
    if (span.from == nullptr) {
      std::memset(span.to + at * to_size, 0, static_cast<size_t>(n * to_size));
      continue;
    }
    cpu::convert(how.from, span.from + at * from_size, between, block, n);
    if (how.factor != 1 || how.divisor != 0) cpu::scale(between, block, n, how.factor);  // makes NaNs one
    if (how.divisor > 0) divide(between, block, n, how.divisor);
    if (!std::isinf(how.limit)) cpu::limit(between, block, n, how.limit);
    cpu::convert(between, block, how.to, span.to + at * to_size, n);
  }
}

int32_t launch_movement(const char* name, const ddp_gpu_span* spans, int64_t count, const Movement& how, ddp_gpu_stop stop,
                        void* stream) {
  return launch(name, stream, [&](Touches& touches) -> Work {
    std::vector<Span> real;
    if (!is_floating(how.from) || !is_floating(how.to)) return nullptr;
    if (!read_spans(touches, spans, count, {dtype_size(how.from), dtype_size(how.to)}, real)) return nullptr;
    return [how, word = touches.stop_word(stop), real = std::move(real)] {
      if (is_stopped(word)) return;
      for (const Span& span : real) move_span(span, how);
    };
  });
}

void write_gate(const int64_t* words, double loss_scale, double max_norm, bool skip_nonfinite, ddp_gpu_gate* gate) {
  ExactSum sum;
  std::copy_n(words, ExactSum::kWords, sum.words().begin());
  ddp_loss_scale_options options = optim::default_loss_scale_options();
  options.initial = loss_scale;
  options.interval = 0;
  optim::Policy policy;
  policy.max_norm = max_norm;
  policy.nonfinite = skip_nonfinite ? DDP_NONFINITE_SKIP : DDP_NONFINITE_KEEP;
  const optim::Decision decision =
      ddp::optim::decide(policy, optim::LossScale(options), std::sqrt(sum.value()), sum.all_finite());
  *gate = ddp_gpu_gate{decision.shape.scale, decision.norm, decision.kind == optim::Decision::Kind::kSkip ? 1u : 0u, 0};
}

}  // namespace

int32_t move(const ddp_gpu_span* spans, int64_t count, int32_t from_dtype, int32_t to_dtype, double factor, double limit,
             ddp_gpu_stop stop, void* stream) {
  const Movement how{static_cast<ddp_dtype>(from_dtype), static_cast<ddp_dtype>(to_dtype), factor, limit};
  return launch_movement("move", spans, count, how, stop, stream);
}

int32_t move_quotient(const ddp_gpu_span* spans, int64_t count, int32_t from_dtype, int32_t to_dtype, double factor,
                      double divisor, ddp_gpu_stop stop, void* stream) {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  if (!(divisor > 0)) return kInvalidValue;
  const Movement how{static_cast<ddp_dtype>(from_dtype), static_cast<ddp_dtype>(to_dtype), factor, kNoLimit, divisor};
  return launch_movement("move_quotient", spans, count, how, stop, stream);
}

int32_t exchange(const ddp_gpu_span* spans, int64_t count, void* stream) {
  return launch("exchange", stream, [&](Touches& touches) -> Work {
    std::vector<Span> real;
    if (!read_spans(touches, spans, count, {1, 1, true, true}, real)) return nullptr;
    return [real = std::move(real)] {
      for (const Span& span : real) std::swap_ranges(span.to, span.to + span.count, const_cast<std::byte*>(span.from));
    };
  });
}

int32_t copy_bytes(const ddp_gpu_span* spans, int64_t count, ddp_gpu_stop stop, void* stream) {
  return launch("copy_bytes", stream, [&](Touches& touches) -> Work {
    std::vector<Span> real;
    if (!read_spans(touches, spans, count, {1, 1}, real)) return nullptr;
    return [word = touches.stop_word(stop), real = std::move(real)] {
      if (is_stopped(word)) return;
      for (const Span& span : real) std::memmove(span.to, span.from, static_cast<size_t>(span.count));
    };
  });
}

int32_t ema(const ddp_gpu_span* spans, int64_t count, int32_t dtype, double decay, ddp_gpu_stop stop, void* stream) {
  return launch("ema", stream, [&](Touches& touches) -> Work {
    std::vector<Span> real;
    if (!is_floating_dtype(dtype)) return nullptr;
    const auto type = static_cast<ddp_dtype>(dtype);
    if (!read_spans(touches, spans, count, {size_of(dtype), dtype_size(cpu::moment_dtype(type)), true}, real))
      return nullptr;
    return [=, word = touches.stop_word(stop), real = std::move(real)] {
      if (is_stopped(word)) return;
      for (const Span& span : real) {
        void* const average = span.to;
        cpu::ema_update(&decay, 1, type, span.from, &average, span.count);
      }
    };
  });
}

int32_t add_norm_terms(const ddp_gpu_span* spans, int64_t count, int32_t dtype, int32_t p, int64_t* words, void* stream) {
  return launch("add_norm_terms", stream, [&](Touches& touches) -> Work {
    std::vector<Span> real;
    if (!is_floating_dtype(dtype) || (p != 1 && p != 2)) return nullptr;
    if (!read_spans(touches, spans, count, {size_of(dtype)}, real)) return nullptr;
    int64_t* const out = touches.change(words, ExactSum::kWords * sizeof(int64_t));
    return [=, real = std::move(real)] {
      ExactSum sum;
      for (const Span& span : real) cpu::add_norm_terms(static_cast<ddp_dtype>(dtype), span.from, span.count, p, sum);
      for (size_t i = 0; i < ExactSum::kWords; ++i) out[i] += sum.words()[i];
    };
  });
}

int32_t largest(const ddp_gpu_span* spans, int64_t count, int32_t dtype, uint64_t* bits, void* stream) {
  return launch("largest", stream, [&](Touches& touches) -> Work {
    std::vector<Span> real;
    if (!is_floating_dtype(dtype) || !read_spans(touches, spans, count, {size_of(dtype)}, real)) return nullptr;
    uint64_t* const out = touches.change(bits, sizeof(uint64_t));
    return [=, real = std::move(real)] {
      for (const Span& span : real) {
        const double value = std::fabs(cpu::largest_magnitude(static_cast<ddp_dtype>(dtype), span.from, span.count));
        uint64_t pattern = 0;
        std::memcpy(&pattern, &value, sizeof pattern);
        *out = std::max(*out, pattern);
      }
    };
  });
}

int32_t decide(const int64_t* words, double loss_scale, double max_norm, int32_t skip_nonfinite, ddp_gpu_gate* gate,
               void* stream) {
  return launch("decide", stream, [&](Touches& touches) -> Work {
    const int64_t* const in = touches.read(words, ExactSum::kWords * sizeof(int64_t));
    ddp_gpu_gate* const out = touches.write(gate, sizeof *gate);
    return [=] { write_gate(in, loss_scale, max_norm, skip_nonfinite != 0, out); };
  });
}

int32_t copy_word(const uint32_t* from, uint32_t* to, void* stream) {
  return launch("copy_word", stream, [&](Touches& touches) -> Work {
    const uint32_t* const in = touches.read(from, sizeof *from);
    uint32_t* const out = touches.write(to, sizeof *to);
    return [=] { *out = __atomic_load_n(in, __ATOMIC_ACQUIRE); };
  });
}

int32_t hash(const ddp_gpu_span* spans, int64_t count, uint64_t* out, void* stream) {
  return launch("hash", stream, [&](Touches& touches) -> Work {
    std::vector<Span> real;
    if (!read_spans(touches, spans, count, {1}, real)) return nullptr;
    uint64_t* const to = count == 0 ? nullptr : touches.write(out, count * static_cast<int64_t>(sizeof(uint64_t)));
    return [=, real = std::move(real)] {
      for (size_t k = 0; k < real.size(); ++k) to[k] = content_hash(real[k].from, static_cast<size_t>(real[k].count));
    };
  });
}

}  // namespace ddp::test::fake_gpu::entry
