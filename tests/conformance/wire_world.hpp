// SPDX-License-Identifier: Apache-2.0
// A model with the hooks fp16 and bf16. The oracle is the public rule, one element at a time, with conversions of its own
// (unit/device/oracle.hpp).
#pragma once

#include "model/model.hpp"
#include "parts/model_pass.hpp"
#include "support/group_world.hpp"
#include "unit/device/oracle.hpp"

namespace ddp::test {

inline constexpr ddp_dtype kWires[] = {DDP_F16, DDP_BF16};

enum class WirePlace { kOwned, kPrivate, kMixed };
inline constexpr WirePlace kPlaces[] = {WirePlace::kOwned, WirePlace::kPrivate, WirePlace::kMixed};

/// Parameters of three dtypes; some larger than one message.
struct WireParameter {
  ddp_dtype dtype;
  int64_t count;
};
inline const std::vector<WireParameter> kWireParameters = {
    {DDP_F32, 7}, {DDP_F32, 140'001}, {DDP_F64, 5'003}, {DDP_BF16, 999}, {DDP_F32, 129}};

inline double wire_decoded(ddp_dtype dtype, uint16_t bits) {
  return dtype == DDP_F16 ? decode_half(bits) : decode_bfloat(bits);
}
inline uint16_t wire_encoded(ddp_dtype dtype, double value) {
  return dtype == DDP_F16 ? encode_half(value) : encode_bfloat(value);
}

/// Usual values, some that F16 cannot hold, and some that are no numbers.
inline float wire_gradient(int rank, int pass, size_t parameter, int64_t i) {
  const auto seed = static_cast<uint64_t>(rank) * 1'000'003 + static_cast<uint64_t>(pass) * 1009 + parameter * 31 +
                    static_cast<uint64_t>(i) * 7919;
  const uint64_t bits = seed * 0x9e3779b97f4a7c15ULL ^ (seed * 0xbf58476d1ce4e5b9ULL) >> 29;
  const auto usual = static_cast<float>(static_cast<int64_t>(bits % 200'003) - 100'001) / 977.0F;
  switch (bits % 4099) {
    case 0: return usual * 1e5F;
    case 1: return usual * 1e-7F;
    case 2: return INFINITY;
    case 3: return NAN;
    default: return usual;
  }
}

struct WireWorld {
  std::vector<std::vector<std::byte>> values, grads;
  std::unique_ptr<model::Model> model;

  WireWorld(group::Group& group, WirePlace place, const parts::Hook& hook, const ddp_model_options& options) {
    model = std::make_unique<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    model->set_hook(hook);
    for (size_t p = 0; p < kWireParameters.size(); ++p) {
      const WireParameter& of = kWireParameters[p];
      values.emplace_back(static_cast<size_t>(of.count * dtype_size(of.dtype)));
      grads.emplace_back(values.back().size());
      const Tensor grad = flat_tensor(grads[p].data(), of.dtype, of.count);
      const bool owned = place == WirePlace::kOwned || (place == WirePlace::kMixed && p % 2 == 0);
      model->add_parameter("p" + std::to_string(p), flat_tensor(values[p].data(), of.dtype, of.count),
                           owned ? nullptr : &grad);
    }
    model->commit();
  }
  [[nodiscard]] std::byte* grad(size_t p) const { return model->table().parameter(static_cast<int32_t>(p)).grad.data; }
  void fill(int rank, int pass, size_t p) const {
    for (int64_t i = 0; i < kWireParameters[p].count; ++i) {
      const float value = wire_gradient(rank, pass, p, i);
      switch (kWireParameters[p].dtype) {
        case DDP_F32: store(grad(p), i, value); break;
        case DDP_F64: store(grad(p), i, static_cast<double>(value) * 1.000000001); break;
        default: store(grad(p), i, encode_bfloat(static_cast<double>(value)));
      }
    }
  }
  void run(int rank, int pass) const {
    model->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = kWireParameters.size(); p-- > 0;) {
      fill(rank, pass, p);
      model->pass().mark_ready(static_cast<int32_t>(p));
    }
    model->end_backward();
  }
};

/// The result of one element, by the rule of device/cpu/reduce.hpp.
template <class T>
T wire_result(ddp_dtype wire, ddp_reduce reduce, const std::vector<T>& of_ranks) {
  const auto term = [&](T value) {
    volatile T part = value;
    if (reduce == DDP_AVERAGE) part = part / static_cast<T>(of_ranks.size());
    return static_cast<float>(wire_decoded(wire, wire_encoded(wire, static_cast<double>(part))));
  };
  const auto add = [&](float a, float b) {
    volatile const float added = a + b;
    return static_cast<float>(wire_decoded(wire, wire_encoded(wire, static_cast<double>(added))));
  };
  return static_cast<T>(oracle_tree(
      0, of_ranks.size(), [&](size_t rank) { return term(of_ranks[rank]); }, add));
}

inline void expect_wire_results(const WireWorld& world, int size, int pass, ddp_dtype wire, ddp_reduce reduce) {
  for (size_t p = 0; p < kWireParameters.size(); ++p)
    for (int64_t i = 0; i < kWireParameters[p].count; ++i) {
      if (i > 3'000 && i < 130'000 && i % 61 != 0) continue;  // the oracle is slow; chunks and messages end elsewhere
      std::vector<float> singles;
      std::vector<double> doubles;
      for (int rank = 0; rank < size; ++rank) {
        singles.push_back(wire_gradient(rank, pass, p, i));
        doubles.push_back(static_cast<double>(singles.back()) * 1.000000001);
      }
      double wanted = 0, got = 0;
      if (kWireParameters[p].dtype == DDP_F32) {
        wanted = static_cast<double>(size == 1 ? singles[0] : wire_result<float>(wire, reduce, singles));
        got = static_cast<double>(load<float>(world.grad(p), i));
      } else if (kWireParameters[p].dtype == DDP_F64) {
        wanted = size == 1 ? doubles[0] : wire_result<double>(wire, reduce, doubles);
        got = load<double>(world.grad(p), i);
      } else {  // 16 bits already: the plain rule
        std::vector<float> rounded;
        for (const float single : singles)
          rounded.push_back(static_cast<float>(decode_bfloat(encode_bfloat(static_cast<double>(single)))));
        float sum = oracle_sum(rounded);
        if (reduce == DDP_AVERAGE) sum = sum / static_cast<float>(size);
        wanted = decode_bfloat(encode_bfloat(static_cast<double>(sum)));
        got = decode_bfloat(load<uint16_t>(world.grad(p), i));
      }
      if (std::isnan(wanted) ? !std::isnan(got) : got != wanted)
        throw std::runtime_error("parameter " + std::to_string(p) + " element " + std::to_string(i) + " is " +
                                 std::to_string(got) + ", expected " + std::to_string(wanted));
    }
}

inline ddp_model_options wire_options() {
  return {.first_bucket_bytes = 1'000, .bucket_bytes = 1'000'000, .reduce = DDP_AVERAGE};
}

}  // namespace ddp::test
