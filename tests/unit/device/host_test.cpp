// SPDX-License-Identifier: Apache-2.0
// Host memory behind the seam of devices: each operation on lists of spans against numbers worked out by hand, updates and
// averages against the loops that they stand for.
#include "device/cpu/host.hpp"

#include "core/float16.hpp"
#include "core/hash.hpp"
#include "device/cpu/master_copies.hpp"
#include "device/cpu/update_kernels.hpp"
#include "device/span_lists.hpp"
#include "device/updates.hpp"
#include "model/norms.hpp"
#include "support/check.hpp"

using device::Operation;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Floats = std::vector<float>;

Tensor tensor_of(Floats& floats) { return flat_tensor(floats.data(), DDP_F32, std::ssize(floats)); }

ddp_case(what_is_bound_to_no_gpu_lies_in_host_memory) {
  Floats floats{1};
  Parameters table;
  table.add_parameter("w", tensor_of(floats), nullptr);
  expect(&device::of(tensor_of(floats)) == &device::host() && &device::of(table) == &device::host(), "where it lies");
  expect(device::host().is_immediate(), "no streams");
}

ddp_case(spans_of_several_types_are_copied_rounded_and_zeroed) {
  Floats from{1.0F, 1.00390625F, -2.5F}, same(3), zero{4, 5};
  std::vector<uint16_t> narrow(3);
  device::SpanLists spans;
  spans.add(device::host(), DDP_F32, DDP_F32, from.data(), same.data(), 3);
  spans.add(device::host(), DDP_F32, DDP_BF16, from.data(), narrow.data(), 3);
  spans.add(device::host(), DDP_F32, DDP_F32, nullptr, zero.data(), 1);
  spans.add(device::host(), DDP_F32, DDP_F32, from.data(), zero.data() + 1, 0);
  spans.apply({Operation::Kind::kCopy, 1, "testing"}, {});
  expect(same == from && zero == Floats({0, 5}), "copied, and zeros");
  for (size_t i = 0; i < 3; ++i)
    expect_equal(narrow[i], double_to_bfloat(static_cast<double>(from[i])), "rounded to nearest even");
}

ddp_case(arrays_are_changed_where_they_lie) {
  Floats a{1, -8, 3}, b{0.5F};
  device::SpanLists spans;
  spans.add(tensor_of(a));
  spans.add(tensor_of(b));
  spans.apply({Operation::Kind::kScale, 0.5, "testing"}, {});
  expect(a == Floats({0.5F, -4, 1.5F}) && b == Floats({0.25F}), "scaled");
  spans.apply({Operation::Kind::kLimit, 1, "testing"}, {});
  expect(a == Floats({0.5F, -1, 1}) && b == Floats({0.25F}), "limited");
}

ddp_case(bytes_change_places) {
  std::vector<std::byte> a(10'001, std::byte{1}), b(10'001, std::byte{2});
  a.back() = std::byte{3};
  device::SpanLists spans;
  spans.add(device::host(), DDP_U8, DDP_U8, a.data(), b.data(), std::ssize(a));
  spans.apply({Operation::Kind::kSwap, 1, "testing"}, {});
  expect(a == std::vector<std::byte>(10'001, std::byte{2}), "one");
  expect(b.front() == std::byte{1} && b[9'999] == std::byte{1} && b.back() == std::byte{3}, "the other");
}

ddp_case(norms_join_parts_and_forget_them) {
  Floats a{3, -4}, b{12}, bad{std::nanf("")};
  model::Norms norms;
  const auto add = [&] {
    norms.add(tensor_of(a));
    norms.add(tensor_of(b));
  };
  add();
  expect_equal(norms.sum(2, nullptr).value(), 169.0, "squares");
  add();
  expect_equal(norms.sum(1, nullptr).value(), 19.0, "magnitudes");
  expect_equal(norms.sum(2, nullptr).value(), 0.0, "of nothing");
  add();
  expect_equal(norms.largest(nullptr), 12.0, "largest");
  expect_equal(norms.largest(nullptr), 0.0, "largest of nothing");
  norms.add(tensor_of(bad));
  norms.clear();
  add();
  expect_equal(norms.largest(nullptr), 12.0, "after what was cleared");
  norms.add(tensor_of(bad));
  add();
  expect(std::isnan(norms.largest(nullptr)), "a NaN is above all");
}

ddp_case(hashes_are_those_of_the_content) {
  Floats a{3, -4}, b{12};
  const device::Span spans[] = {{a.data(), nullptr, 8}, {b.data(), nullptr, 4}};
  uint64_t hashes[2] = {};
  device::host().hash(spans, 2, nullptr, hashes, nullptr);
  expect(hashes[0] == content_hash(a.data(), 8) && hashes[1] == content_hash(b.data(), 4), "hashes");
}

ddp_case(averages_follow_each_with_its_own_decay) {
  Floats a{8, 4}, b{2}, slow_a{0, 0}, slow_b{0}, fast_a{0, 4}, fast_b{6};
  const device::Span spans[] = {{a.data(), slow_a.data(), 2},
                                {b.data(), slow_b.data(), 1},
                                {a.data(), fast_a.data(), 2},
                                {b.data(), fast_b.data(), 1}};
  const double decays[] = {0.75, 0.5};
  device::host().follow(spans, 2, decays, 2, DDP_F32, {});
  expect(slow_a == Floats({2, 1}) && slow_b == Floats({0.5F}), "the first decay");
  expect(fast_a == Floats({4, 4}) && fast_b == Floats({4}), "the second decay");
}

ddp_case(updates_happen_at_once) {
  Floats value{1, 2}, grad{8, -8}, buffer{1, 1};
  device::RuleUpdates<device::SgdRule> updates;
  const device::SgdRule rule{0.5, 0, 0.5, 1, static_cast<int32_t>(cpu::Momentum::kRunning), 0};
  updates.add(device::host(), DDP_F32, {value.data(), grad.data(), {buffer.data(), nullptr}, nullptr, 2, 0}, rule,
              {0.5, 3, nullptr, 0});
  expect(updates.empty(), "nothing is noted");
  expect(buffer == Floats({3.5F, -2.5F}), "half the gradient, limited to 3, and half the buffer");
  expect(value == Floats({-0.75F, 3.25F}), "the values");
}

ddp_case(a_rule_works_on_the_master_copy) {
  constexpr int64_t kCount = 2 * cpu::kMasterBlock + 5;
  std::vector<uint16_t> value(kCount, double_to_bfloat(1.0)), grad(kCount, double_to_bfloat(0.5));
  Floats master(kCount, 1), mean(kCount), square(kCount);
  Floats wanted = master, wide(kCount, 0.5F), wanted_mean(kCount), wanted_square(kCount);
  const device::AdamRule rule{1, 0, 0.9, 0.1, 0.99, 0.01, 1e-3, 1, 1e-8};
  device::RuleUpdates<device::AdamRule> updates;
  const cpu::AdamStep step{1, 0, 0.9, 0.1, 0.99, 0.01, 1e-3, 1, 1e-8, {}};
  for (int i = 0; i < 3; ++i) {
    updates.add(device::host(), DDP_BF16,
                {value.data(), grad.data(), {mean.data(), square.data()}, master.data(), kCount, 0}, rule,
                {1, kInfinity, nullptr, 0});
    cpu::adam_update(step, DDP_F32, wanted.data(), wide.data(), wanted_mean.data(), wanted_square.data(), kCount);
  }
  expect(master == wanted && mean == wanted_mean && square == wanted_square, "the copy is that of an F32 parameter");
  for (size_t i = 0; i < value.size(); ++i)
    expect_equal(value[i], double_to_bfloat(static_cast<double>(master[i])), "the parameter is the copy rounded");
}
