// SPDX-License-Identifier: Apache-2.0
// What reaches the kernels of a step: blocks that belong together as one entry, equal rules once.
#include "device/updates.hpp"

#include "gpu_host/placed_model.hpp"

struct Launch {
  std::vector<ddp_gpu_update> updates;
  std::vector<ddp_gpu_adam_rule> rules;
  int32_t dtype;
  ddp_gpu_shape shape;
  ddp_gpu_stop stop;
  void* stream;
};
std::vector<Launch> launches;

int32_t record(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_adam_rule* rules, int64_t rule_count,
               int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) {
  launches.push_back({{updates, updates + count}, {rules, rules + rule_count}, dtype, *shape, stop, stream});
  return 0;
}

/// Arrays that are never looked at.
alignas(64) std::byte values[1 << 14], grads[1 << 14], means[1 << 15], squares[1 << 15], masters[1 << 15];
int stream, stop;

ddp_gpu_update elements(ddp_dtype dtype, int64_t first, int64_t count, bool has_master = false) {
  const int64_t at = first * dtype_size(dtype), moment_at = first * dtype_size((dtype == DDP_F64 ? DDP_F64 : DDP_F32));
  return {values + at, grads + at, {means + moment_at, squares + moment_at}, has_master ? masters + moment_at : nullptr,
          count,       77};
}
ddp_gpu_adam_rule rule_of(double rate) { return {1, 0, 0.9, 0.1, 0.99, 0.01, rate, 1, 1e-8}; }

/// Updates on a GPU whose launches are recorded.
class Noted {
 public:
  void add(ddp_dtype dtype, const device::Update& update, const device::AdamRule& rule) {
    noted_.add(gpu_, dtype, update, rule, {});
  }
  void clear() noexcept { noted_.clear(); }
  const std::vector<Launch>& launch() {
    launches.clear();
    noted_.launch(gpu_, {0.5, 3, nullptr, 0}, {&stream, reinterpret_cast<ddp_gpu_stop>(&stop)});
    return launches;
  }

 private:
  static ddp_gpu_table recording() {
    ddp_gpu_table table = fake_gpu::table();
    table.adam = record;
    return table;
  }
  const ddp_gpu_table table_ = recording();
  const gpu::Device gpu_{table_, 0, "a test"};
  device::RuleUpdates<device::AdamRule> noted_;
};
const std::vector<Launch>& launched(Noted& noted) { return noted.launch(); }

fake_gpu_host_case(neighbouring_blocks_of_one_rule_are_one_entry) {
  for (const ddp_dtype dtype : kFloats) {
    Noted noted;
    for (int64_t at = 0; at < 1000; at += 100) noted.add(dtype, elements(dtype, at, 100), rule_of(1));
    expect_equal(launched(noted).size(), size_t{1}, "launches");
    const Launch& launch = launches[0];
    expect_equal(launch.updates.size(), size_t{1}, "entries");
    expect_equal(launch.updates[0].count, int64_t{1000}, "elements");
    expect_equal(launch.updates[0].rule, int64_t{0}, "rule");
    expect(launch.updates[0].value == values && launch.stream == &stream &&
               launch.stop == reinterpret_cast<ddp_gpu_stop>(&stop),
           "where");
    expect(launch.dtype == dtype && launch.shape.scale == 0.5 && launch.shape.limit == 3, "how");
  }
}

fake_gpu_host_case(a_gap_another_rule_or_another_array_begins_an_entry) {
  Noted noted;
  ddp_gpu_update elsewhere = elements(DDP_BF16, 40, 10, true);
  elsewhere.state[1] = squares;
  noted.add(DDP_BF16, elements(DDP_BF16, 0, 10, true), rule_of(1));
  noted.add(DDP_BF16, elements(DDP_BF16, 11, 9, true), rule_of(1));   // a gap
  noted.add(DDP_BF16, elements(DDP_BF16, 20, 10, true), rule_of(2));  // another rule
  noted.add(DDP_BF16, elements(DDP_BF16, 30, 10), rule_of(2));        // no master
  noted.add(DDP_BF16, elsewhere, rule_of(2));
  noted.add(DDP_BF16, elements(DDP_BF16, 50, 0), rule_of(2));  // nothing
  expect_equal(launched(noted).at(0).updates.size(), size_t{5}, "entries");
  expect_equal(launches[0].rules.size(), size_t{2}, "rules");
}

fake_gpu_host_case(equal_rules_are_noted_once_and_each_block_finds_its_own) {
  Noted noted;
  for (int64_t i = 0; i < 60; ++i) noted.add(DDP_F32, elements(DDP_F32, 20 * i, 10), rule_of(static_cast<double>(i % 3)));
  for (int64_t i = 0; i < 40; ++i) noted.add(DDP_F64, elements(DDP_F64, 20 * i, 10), rule_of(static_cast<double>(i)));
  expect_equal(launched(noted).size(), size_t{2}, "launches");
  expect_equal(launches[0].rules.size(), size_t{3}, "rules of the first type");
  expect_equal(launches[1].rules.size(), size_t{40}, "rules of the second type");
  for (int64_t i = 0; i < 60; ++i)
    expect(launches[0].rules[static_cast<size_t>(launches[0].updates[static_cast<size_t>(i)].rule)].size ==
               static_cast<double>(i % 3),
           "its rule");
  for (int64_t i = 0; i < 40; ++i)
    expect(launches[1].rules[static_cast<size_t>(launches[1].updates[static_cast<size_t>(i)].rule)].size ==
               static_cast<double>(i),
           "its rule");
}

fake_gpu_host_case(what_was_launched_is_forgotten) {
  Noted noted;
  noted.add(DDP_F32, elements(DDP_F32, 0, 10), rule_of(1));
  expect_equal(launched(noted).size(), size_t{1}, "launches");
  expect_equal(launched(noted).size(), size_t{0}, "launches afterwards");
  noted.add(DDP_F32, elements(DDP_F32, 0, 10), rule_of(1));
  noted.clear();
  expect_equal(launched(noted).size(), size_t{0}, "launches of what was cleared");
}
