// SPDX-License-Identifier: Apache-2.0
// The decision about a step, by the kernel on the host, compared with optim/policy: the same bits.
#include "modules/cuda/kernels/decide.hpp"

#include "core/exact_sum.hpp"
#include "modules/cuda/kernels/launchers.hpp"
#include "optim/policy.hpp"
#include "support/check.hpp"
#include "unit/cuda/wild_array.hpp"

std::vector<ExactSum> some_sums() {
  std::vector<ExactSum> sums(1);
  std::mt19937_64 random(3);
  for (int terms = 1; terms <= 40; ++terms)
    for (const int exponent : {-1074, -1060, -1000, -300, -60, 0, 40, 300, 900, 1000}) {
      ExactSum& sum = sums.emplace_back();
      for (int k = 0; k < terms; ++k)
        sum.add(std::ldexp(static_cast<double>(random() >> 11) * 0x1p-53, exponent + static_cast<int>(random() % 70)));
    }
  for (int k = 0; k < 3; ++k) sums.emplace_back().add(1.7976931348623157e308);
  for (int k = 0; k < 5; ++k) sums.back().add(1.7976931348623157e308);  // too large for a number
  sums.emplace_back().add(kInfinity);
  sums.emplace_back().add(std::numeric_limits<double>::quiet_NaN());
  sums.back().add(1);
  return sums;
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

ddp_case(the_value_of_a_sum_is_the_cpus) {
  for (ExactSum& sum : some_sums())
    expect(same(cuda::sum_of_words(sum.words().data()), sum.value()), "value " + std::to_string(sum.value()));
}

ddp_case(the_decision_is_the_cpus) {
  for (const double scale : {1.0, 1024.0, 3.0})
    for (const double max_norm : {0.0, 0.5, 1e200}) {
      ddp_loss_scale_options options = optim::default_loss_scale_options();
      options.initial = scale;
      options.interval = 0;
      const optim::LossScale loss_scale(options);
      optim::Policy policy;
      policy.max_norm = max_norm;
      policy.nonfinite = DDP_NONFINITE_SKIP;
      for (ExactSum& sum : some_sums()) {
        const optim::Decision wanted = optim::decide(policy, loss_scale, std::sqrt(sum.value()), sum.all_finite());
        for (const int32_t skips : {0, 1}) {
          ddp_gpu_gate gate{-1, -1, 9, 0};
          expect_equal(cuda::decide(sum.words().data(), loss_scale.scale(), max_norm, skips, &gate, nullptr), 0, "code");
          expect(same(gate.norm, wanted.norm), "norm " + std::to_string(gate.norm));
          expect(same(gate.scale, wanted.shape.scale), "scale " + std::to_string(gate.scale));
          expect_equal(gate.skip, skips != 0 && wanted.kind == optim::Decision::Kind::kSkip ? 1U : 0U, "skip");
        }
      }
    }
}
