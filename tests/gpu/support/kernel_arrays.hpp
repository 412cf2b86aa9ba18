// SPDX-License-Identifier: Apache-2.0
// Arrays for kernels: many lengths and alignments, numbers of every kind, and a comparison by bits.
#pragma once

#include "gpu/support/place.hpp"
#include "gpu/support/run_tests.hpp"
#include "unit/optim/oracle.hpp"

namespace ddp::test {

using card::kGpu;

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Short ones, whole vectors, a rest, more than a tile; one starts at an odd element.
inline const std::vector<int64_t> kLengths = {1, 3, 64, 1000, 4097, 20'011, 100'003};

/// Numbers of all sizes, some of them special.
inline std::string numbers(ddp_dtype dtype, int64_t count, uint64_t seed, double range = 4) {
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
inline std::string with_specials(ddp_dtype dtype, std::string bytes) {
  const double specials[] = {kInfinity, -kInfinity, std::nan(""), -0.0, 65504.0, 65520.0, 1e-8, 3.4e38, 5e-324};
  const auto count = static_cast<int64_t>(bytes.size()) / dtype_size(dtype);
  for (int64_t i = 0; i < count; i += 5) set_element(dtype, bytes.data(), static_cast<size_t>(i), specials[(i / 5) % 9]);
  return bytes;
}

inline void expect_same(ddp_dtype dtype, const std::string& got, const std::string& wanted, const std::string& what) {
  const auto size = static_cast<size_t>(dtype_size(dtype));
  expect_equal(got.size(), wanted.size(), what + ", bytes");
  for (size_t i = 0; i < got.size() / size; ++i) {
    const double a = get_element(dtype, got.data(), i), b = get_element(dtype, wanted.data(), i);
    if (std::memcmp(got.data() + i * size, wanted.data() + i * size, size) == 0 || (std::isnan(a) && std::isnan(b)))
      continue;
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
  card::Memory memory;
};

inline std::vector<std::string> all_lengths(ddp_dtype dtype, uint64_t seed, bool specials = false) {
  std::vector<std::string> data;
  for (const int64_t length : kLengths) {
    data.push_back(numbers(dtype, length, seed + data.size()));
    if (specials) data.back() = with_specials(dtype, data.back());
  }
  return data;
}

inline std::string encoded_double(double number) { return {reinterpret_cast<const char*>(&number), sizeof number}; }

}  // namespace ddp::test
