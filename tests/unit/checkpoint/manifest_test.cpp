// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.hpp"

#include "support/check.hpp"

using namespace ddp::checkpoint;

struct Table : Parameters {
  Table(const std::vector<std::string>& names, std::vector<float>& memory) {
    memory.assign(names.size(), 0.0F);
    for (size_t i = 0; i < names.size(); ++i) add_parameter(names[i], flat_tensor(&memory[i], DDP_F32, 1), nullptr);
  }
};

ddp_case(users_names_stay_and_others_get_a_prefix_that_no_user_has) {
  std::vector<float> memory;
  const std::vector<std::string> names = {"w", "ddp:optimizer/w.exp_avg", "ddp1:x", "optimizer/w.exp_avg", "ddp"};
  const Table table(names, memory);
  float average = 0;
  const auto items = list_items(table, {{Part::kOptimizer, "w.exp_avg", flat_tensor(&average, DDP_F32, 1)},
                                        {Part::kEma, "w.exp_avg", flat_tensor(&average, DDP_F32, 1)}});
  const std::string prefix = choose_prefix(items);
  expect_equal(prefix, "ddp2:", "prefix");
  std::set<std::string> in_file;
  for (const TensorEntry& entry : file_entries(items, prefix)) in_file.insert(entry.name);
  for (const std::string& name : names) expect(in_file.count(name) == 1, name);
  expect(in_file.count("ddp2:optimizer/w.exp_avg") == 1 && in_file.count("ddp2:ema/w.exp_avg") == 1, "the library's names");
  expect_equal(in_file.size(), 7U, "names");
}

ddp_case(every_tensor_is_aligned_in_the_file) {
  double a = 0;
  float b = 0;
  unsigned char c[3] = {};
  Parameters table;
  table.add_buffer("c", flat_tensor(c, DDP_U8, 3));
  table.add_buffer("b", flat_tensor(&b, DDP_F32, 1));
  table.add_buffer("a", flat_tensor(&a, DDP_F64, 1));
  const auto entries = file_entries(list_items(table, {}), "ddp:");
  expect_equal(entries[0].name + entries[1].name + entries[2].name, "abc", "order");
  int64_t at = 0;
  for (const TensorEntry& entry : entries) {
    expect_equal(entry.begin, at, "beginning of " + entry.name);
    expect_equal(entry.begin % (entry.dtype->bits / 8), 0, "alignment of " + entry.name);
    at = entry.end;
  }
}

ddp_case(names_that_a_file_can_not_hold_are_refused) {
  std::vector<float> memory;
  for (const char* name : {"__metadata__", "\xff"}) {
    const Table table({name}, memory);
    (void)expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { (void)list_items(table, {}); });
  }
  const Table table({"w"}, memory);
  const Tensor tensor = flat_tensor(memory.data(), DDP_F32, 1);
  (void)expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] {
    (void)list_items(table, {{Part::kEma, "x", tensor}, {Part::kEma, "x", tensor}});
  });
}

ddp_case(the_cap_of_the_header_grows_with_the_model) {
  std::vector<float> memory;
  const int64_t small = header_cap(Table({"w"}, memory));
  const int64_t large = header_cap(Table({"w", std::string(1000, 'x')}, memory));
  expect(small > (int64_t{16} << 20), "room for texts");
  expect(large > small + 20 * 6 * 1000, "room for names");
  expect(large < kMaxHeaderBytes, "within the format");
}
