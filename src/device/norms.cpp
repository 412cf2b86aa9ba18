// SPDX-License-Identifier: Apache-2.0
#include "device/norms.hpp"

#include <algorithm>
#include <cmath>

namespace ddp::device {

void Norms::clear() noexcept {
  for (const Place& place : places_) place.norm->clear();
}

void Norms::add(const Tensor& part) {
  const Device& device = of(part);
  auto place = std::find_if(places_.begin(), places_.end(), [&](const Place& each) { return each.device == &device; });
  if (place == places_.end())
    place = places_.insert(device.is_immediate() ? places_.begin() : places_.end(), Place{&device, device.make_norm()});
  place->norm->add(part);
}

ExactSum Norms::sum(int32_t p, void* stream) {
  for (const Place& place : places_) place.norm->start(p, stream);
  ExactSum sum;
  for (const Place& place : places_) sum.join(place.norm->finish(stream));
  return sum;
}

double Norms::largest(void* stream) {
  double most = 0;
  for (const Place& place : places_) {
    const double here = place.norm->largest(stream);
    most = std::isnan(here) || std::isnan(most) ? std::nan("") : std::max(most, here);
  }
  return most;
}

}  // namespace ddp::device
