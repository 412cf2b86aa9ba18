// SPDX-License-Identifier: Apache-2.0
// Complex numbers as elements: collectives, a model that trains and is saved, and the operations that are refused. (Mixed
// dtypes in one model are part of bit_rule_test.cpp.)
#include <complex>

#include "checkpoint/layout.hpp"
#include "checkpoint/state.hpp"
#include "model/gradients.hpp"
#include "optim/adam.hpp"
#include "optim/custom.hpp"
#include "optim/ema.hpp"
#include "optim/rules.hpp"
#include "support/check.hpp"
#include "support/file_faults.hpp"
#include "support/group_paths.hpp"
#include "support/sum_oracle.hpp"

template <class T>
constexpr ddp_dtype kComplex = sizeof(T) == 4 ? DDP_C64 : DDP_C128;

template <class T>
std::complex<T> number(int rank, int64_t i) {
  return {static_cast<T>(rank + 1) / 3 + static_cast<T>(i), static_cast<T>(rank * 7) - static_cast<T>(i) / 5};
}

/// Sum in the tree.
template <class T>
std::complex<T> sum(int size, int64_t i) {
  return oracle_tree(
      0, static_cast<size_t>(size), [&](size_t rank) { return number<T>(static_cast<int>(rank), i); },
      [](std::complex<T> a, std::complex<T> b) { return a + b; });
}

template <class T>
void reduce_and_collect(group::Group& group, int rank) {
  const int size = group.size();
  std::vector<std::complex<T>> values, all(static_cast<size_t>(5 * size)), part(5);
  for (int64_t i = 0; i < 5 * size; ++i) values.push_back(number<T>(rank, i));
  const Tensor whole = flat_tensor(values.data(), kComplex<T>, 5 * size);
  group.reduce_scatter(whole, flat_tensor(part.data(), kComplex<T>, 5), DDP_SUM);
  for (int64_t i = 0; i < 5; ++i) expect(part[static_cast<size_t>(i)] == sum<T>(size, 5 * rank + i), "reduce-scatter");
  group.all_gather(flat_tensor(part.data(), kComplex<T>, 5), flat_tensor(all.data(), kComplex<T>, 5 * size));
  for (int64_t i = 0; i < 5 * size; ++i) expect(all[static_cast<size_t>(i)] == sum<T>(size, i), "all-gather");
  group.all_reduce(whole, DDP_AVERAGE);
  for (int64_t i = 0; i < 5 * size; ++i) {
    const std::complex<T> total = sum<T>(size, i);
    const std::complex<T> wanted{total.real() / static_cast<T>(size), total.imag() / static_cast<T>(size)};
    expect(values[static_cast<size_t>(i)] == wanted, "average");
  }
  values[0] = number<T>(rank, 3);
  group.broadcast(whole, size - 1);
  expect(values[0] == number<T>(size - 1, 3), "broadcast");
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { group.all_reduce(whole, DDP_MAX); }, {"no minimum, maximum or product"});
}

ddp_ranks_case_on(kThreePaths, run_on, collectives_take_complex_numbers, 1, 2, 3, 4) {
  reduce_and_collect<float>(group, rank);
  reduce_and_collect<double>(group, rank);
}

/// A model of pairs and one of complex numbers must go the same way to the last bit.
struct Twin {
  std::vector<std::complex<float>> value = std::vector<std::complex<float>>(6);
  std::shared_ptr<model::Model> model;
  std::unique_ptr<optim::Adam> adam;
  std::unique_ptr<optim::Ema> ema;

  Twin(group::Group& group, bool is_complex) {
    for (size_t i = 0; i < value.size(); ++i) value[i] = {static_cast<float>(i), -static_cast<float>(i)};
    ddp_model_options options{.first_bucket_bytes = 64, .bucket_bytes = 64};
    model = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    Tensor tensor = flat_tensor(value.data(), DDP_C64, 6);
    tensor.ndim = 2, tensor.shape[0] = 2, tensor.shape[1] = 3;
    model->add_parameter("z", is_complex ? tensor : real_view(tensor), nullptr);
    model->commit();
    adam = std::make_unique<optim::Adam>(model, optim::default_adam_options(), optim::default_optimizer_options());
    ema = std::make_unique<optim::Ema>(model, std::vector<double>{0.5});
  }
  void step(int rank, int pass) {
    auto* grad = reinterpret_cast<float*>(model->table().parameter(0).grad.data);
    for (int i = 0; i < 12; ++i) grad[i] = static_cast<float>((rank + 2) * (i - 5) + pass) / 7;
    model->begin_backward(DDP_PASS_REDUCE);
    model->pass().mark_ready(0);
    model->end_backward();
    adam->step();
    ema->update();
  }
  checkpoint::Parts parts() const { return {*model, adam.get(), ema.get()}; }
};

ddp_case_on(kThreePaths, a_complex_parameter_trains_and_is_saved_as_pairs) {
  const Folder folder;
  const std::string file = folder.path() + "/state";
  for (const int size : {1, 3})
    run_on(path, size, [&](group::Group& group, int rank) {
      Twin z(group, true), pairs(group, false);
      for (int pass = 0; pass < 4; ++pass) z.step(rank, pass), pairs.step(rank, pass);
      expect(z.value == pairs.value, "the same numbers");
      expect(z.model->gradients().norm(2) == pairs.model->gradients().norm(2), "the same norm");
      checkpoint::save_file("save", z.parts(), {}, file, std::nullopt);
      const std::string bytes = read_whole(file);
      uint64_t length = 0;
      std::memcpy(&length, bytes.data(), sizeof length);
      for (const auto& entry : checkpoint::read_head(std::string_view(bytes).substr(0, length + 8)).header.tensors)
        expect(std::string(entry.dtype->name) == "F32" && entry.shape == std::vector<int64_t>{2, 3, 2},
               entry.name + " is a real tensor");
      Twin loaded(group, true);
      (void)checkpoint::load_file("load", loaded.parts(), file, std::nullopt);
      expect(loaded.value == z.value, "comes back");
      loaded.step(rank, 9), z.step(rank, 9);
      expect(loaded.value == z.value, "goes on");
    });
}

ddp_case(a_complex_tensor_of_another_program_loads) {
  const TemporaryFolder folder;
  checkpoint::Header header;
  header.tensors.push_back({"z", checkpoint::find_dtype("C64"), {2, 3}, 0, 48});
  std::vector<std::complex<float>> wanted;
  for (int i = 0; i < 6; ++i) wanted.emplace_back(static_cast<float>(i), 0.5F);
  write_whole(folder.file("a"),
              checkpoint::serialize_header(header) + std::string(reinterpret_cast<const char*>(wanted.data()), 48));
  run_groups(2, [&](group::Group& group, int) {
    Twin z(group, true);
    (void)checkpoint::load_file("load", {*z.model}, folder.file("a"), std::nullopt);
    expect(z.value == wanted, "the numbers");
    group.barrier();
  });
}

ddp_ranks_case_on(kThreePaths, run_on, another_dtype_on_another_rank_is_named, 2) {
  float data[8] = {};
  model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), [] {
    ddp_model_options options{.first_bucket_bytes = 64, .bucket_bytes = 64};
    return options;
  }());
  model.add_parameter("z", rank == 0 ? flat_tensor(data, DDP_C64, 2) : flat_tensor(data, DDP_F64, 2), nullptr);
  expect_error(DDP_ERROR_MISMATCH, [&] { model.commit(); }, {"\"z\" C64 [2] on rank 0, but \"z\" F64 [2] on rank 1"});
}
