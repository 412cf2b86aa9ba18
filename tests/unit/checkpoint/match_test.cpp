// SPDX-License-Identifier: Apache-2.0

#include "checkpoint/verify.hpp"
#include "support/check.hpp"

using namespace ddp::checkpoint;

Item item(Part part, const std::string& name, std::vector<int64_t> shape, ddp_dtype dtype = DDP_F32) {
  Item made{part, name, {}};
  made.tensor.dtype = dtype;
  made.tensor.ndim = static_cast<int32_t>(shape.size());
  made.tensor.count = 1;
  for (size_t i = 0; i < shape.size(); ++i) made.tensor.count *= made.tensor.shape[i] = shape[i];
  return made;
}

Layout file_of(const std::vector<Item>& items) {
  Layout layout;
  layout.prefix = "ddp:";
  layout.header.tensors = file_entries(items, layout.prefix);
  return layout;
}

/// What a strict load does.
std::vector<size_t> match(const std::vector<Item>& items, const Layout& layout, bool with_optimizer, bool with_ema,
                          bool partial = false) {
  std::vector<Part> parts;
  if (with_optimizer) parts.push_back(Part::kOptimizer);
  if (with_ema) parts.push_back(Part::kEma);
  const Match found = compare(items, layout, parts);
  refuse_differences(found, items, partial);
  return found.places;
}

const std::vector<Item> kModel = {item(Part::kModel, "w", {2, 3}), item(Part::kModel, "b", {3})};

ddp_case(a_file_of_the_same_model_matches) {
  const auto found = match({kModel[1], kModel[0]}, file_of(kModel), false, false);
  expect(found == std::vector<size_t>{1, 0}, "places");
}

ddp_case(differences_are_named_with_counts) {
  const std::vector<Item> here = {item(Part::kModel, "w", {2, 4}), item(Part::kModel, "new", {1})};
  const std::string text = expect_error(DDP_ERROR_MISMATCH, [&] { (void)match(here, file_of(kModel), false, false); });
  expect_equal(text,
               "it is of another model: 1 missing (\"new\" F32 [1]), 1 unexpected (\"b\" F32 [3]), 1 different (\"w\" is "
               "F32 [2, 3] in the "
               "file and F32 [2, 4] here)",
               "text");
}

ddp_case(a_dtype_or_a_rank_is_a_difference) {
  for (const Item& other :
       {item(Part::kModel, "b", {3}, DDP_F16), item(Part::kModel, "b", {3, 1}), item(Part::kModel, "b", {})})
    expect_error(DDP_ERROR_MISMATCH,
                 [&] {
                   (void)match({kModel[0], other}, file_of(kModel), false, false);
                 },
                 {"1 different"});
}

ddp_case(only_the_first_few_are_listed) {
  std::vector<Item> many;
  for (int i = 0; i < 100; ++i) many.push_back(item(Part::kModel, "p" + std::to_string(i), {1}));
  expect_error(DDP_ERROR_MISMATCH, [&] { (void)match(many, file_of({}), false, false); },
               {"100 missing (\"p0\" F32 [1], \"p1\" F32 [1], \"p2\" F32 [1], ...)"});
}

ddp_case(the_optimizer_in_a_file_is_ignored_unless_asked_for) {
  std::vector<Item> all = kModel;
  all.push_back(item(Part::kOptimizer, "w.exp_avg", {2, 3}));
  all.push_back(item(Part::kEma, "0.9.w", {2, 3}));
  const Layout layout = file_of(all);
  (void)match(kModel, layout, false, false);
  (void)match(all, layout, true, true);
  expect_error(DDP_ERROR_MISMATCH, [&] { (void)match(kModel, layout, true, false); },
               {"1 unexpected (\"ddp:optimizer/w.exp_avg\""});
  expect_error(DDP_ERROR_MISMATCH, [&] { (void)match(all, file_of(kModel), true, true); }, {"2 missing"});
}

ddp_case(a_wrappers_prefix_is_recognised) {
  const Layout layout = file_of({item(Part::kModel, "module.w", {2, 3}), item(Part::kModel, "module.b", {3})});
  expect_error(DDP_ERROR_MISMATCH, [&] { (void)match(kModel, layout, false, false); }, {"begin with \"module.\""});
}

ddp_case(a_partial_load_takes_what_both_have) {
  std::vector<Item> here = {kModel[1], item(Part::kModel, "new", {4}), item(Part::kOptimizer, "b.exp_avg", {3})};
  std::vector<Item> there = kModel;
  there.push_back(item(Part::kOptimizer, "w.exp_avg", {2, 3}));
  const Match found = compare(here, file_of(there), {Part::kOptimizer});
  refuse_differences(found, here, true);
  expect(found.places == std::vector<size_t>{1, Match::kAbsent, Match::kAbsent}, "places");
  expect(found.missing.size() == 2 && found.missing[0].name == "new" && found.missing[1].name == "ddp:optimizer/b.exp_avg",
         "missing");
  expect(found.unexpected.size() == 2 && found.unexpected[0].name == "w" &&
             found.unexpected[1].name == "ddp:optimizer/w.exp_avg",
         "unexpected");
}

ddp_case(a_partial_load_refuses_another_shape_and_a_file_with_nothing_in_common) {
  const std::vector<Item> other = {kModel[0], item(Part::kModel, "b", {4})};
  const std::string text =
      expect_error(DDP_ERROR_MISMATCH, [&] { (void)match(other, file_of(kModel), false, false, true); });
  expect_equal(text, "it is of another model: 1 different (\"b\" is F32 [3] in the file and F32 [4] here)", "text");
  const Layout wrapped = file_of({item(Part::kModel, "module.w", {2, 3}), item(Part::kModel, "module.b", {3})});
  expect_error(DDP_ERROR_MISMATCH, [&] { (void)match(kModel, wrapped, false, false, true); }, {"begin with \"module.\""});
}
