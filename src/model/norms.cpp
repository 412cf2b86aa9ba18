// SPDX-License-Identifier: Apache-2.0
#include "model/norms.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "device/cpu/arrays.hpp"

namespace ddp::model {
namespace {

/// NaN is above all.
double larger(double a, double b) noexcept {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<double>::quiet_NaN() : std::max(a, b);
}

}  // namespace

gpu::Norms& Norms::of(const gpu::Device& device) {
  const auto found = std::find_if(gpus_.begin(), gpus_.end(), [&](const auto& each) { return &each->device() == &device; });
  return found != gpus_.end() ? **found : *gpus_.emplace_back(std::make_unique<gpu::Norms>(device));
}

void Norms::clear() noexcept {
  host_parts_.clear();
  for (const auto& gpu : gpus_) gpu->clear();
}

void Norms::add(const Tensor& part) {
  if (part.device == nullptr)
    host_parts_.push_back(flat_part(part, 0, part.count));
  else
    of(gpu::of(part)).add(part);
}

ExactSum Norms::sum(int32_t p, void* stream) {
  for (const auto& gpu : gpus_) gpu->start_sum(p, stream);
  ExactSum sum;
  for (const Tensor& part : host_parts_) cpu::add_norm_terms(part.dtype, part.data, part.count, p, sum);
  host_parts_.clear();
  for (const auto& gpu : gpus_) sum.join(gpu->finish(stream));
  return sum;
}

double Norms::largest(void* stream) {
  double most = 0;
  for (const Tensor& part : host_parts_) most = larger(most, cpu::largest_magnitude(part.dtype, part.data, part.count));
  host_parts_.clear();
  for (const auto& gpu : gpus_) most = larger(most, gpu->largest(stream));
  return most;
}

}  // namespace ddp::model
