// SPDX-License-Identifier: Apache-2.0
// A pass allocates nothing after the first one: every operator new of the process is counted while ranks train.
#include <atomic>
#include <cstdlib>
#include <new>

#include "extra/powersgd.hpp"
#include "model/model.hpp"
#include "model/uneven.hpp"
#include "support/check.hpp"
#include "support/file_faults.hpp"
#include "support/group_world.hpp"
#include "trace/watch.hpp"

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  if (counting.load()) ++allocations;
  void* data =
      alignment == 0 ? std::malloc(bytes) : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, 0); }
// The library's own calls the one above; but a sanitizer's would be its own.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
// Not inline, or GCC takes free() for the wrong partner of what it knows as new.
[[gnu::noinline]] void operator delete(void* data) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }

using namespace ddp::test;

namespace {

constexpr int kParameters = 40;

int64_t allocations_in_passes(int size, bool owned, ddp_progress progress, ddp_unused unused, const parts::Hook& hook = {},
                              bool uneven = false, const TemporaryFolder* traces = nullptr) {
  allocations = 0;
  run_groups(size, [&](group::Group& group, int rank) {
    if (traces != nullptr) {
      group.calls().set_watch(std::make_shared<trace::Watch>());
      group.calls().watch()->start(trace::Recorder::make(trace::ring_path(traces->path(), rank), {64}));
    }
    ddp_model_options options{.first_bucket_bytes = 2'000,
                              .bucket_bytes = 8'000,
                              .unused = unused,
                              .progress = progress,
                              .divisor = uneven ? DDP_DIVISOR_WEIGHTS : DDP_DIVISOR_WORLD,
                              .uneven_inputs = uneven ? 1 : 0};
    model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    model.set_hook(hook);
    std::vector<std::vector<float>> values(kParameters, std::vector<float>(301)), grads = values;
    for (size_t p = 0; p < kParameters; ++p) {
      Tensor value = flat_tensor(values[p].data(), DDP_F32, 301), grad = flat_tensor(grads[p].data(), DDP_F32, 301);
      for (Tensor* matrix : {&value, &grad}) {
        matrix->ndim = 2;
        matrix->shape[0] = 7;
        matrix->shape[1] = 43;
      }
      model.add_parameter(std::to_string(p), value, owned ? nullptr : &grad);
    }
    model.commit();
    for (int pass = 0; pass < 12; ++pass) {
      if (pass == 2) {
        group.barrier();
        counting = true;
      }
      if (uneven) set_weight(model, rank + 1.5);
      if (uneven && pass % 3 == 2 && rank == 1) {
        skip_backward(model);
        continue;
      }
      model.begin_backward(pass % 3 == 1 ? DDP_PASS_ACCUMULATE : DDP_PASS_REDUCE);
      for (int32_t p = kParameters; p-- > 0;)
        if (unused == DDP_UNUSED_ERROR || p != 7) model.pass().mark_ready(p);
      model.end_backward();
    }
    group.barrier();
    if (rank == 0) counting = false;
    group.barrier();
  });
  return allocations.load();
}

ddp_case(passes_after_the_first_allocate_nothing) {
  for (const int size : {1, 2, 4})
    for (const bool owned : {true, false})
      for (const ddp_progress progress : {DDP_PROGRESS_CALLER, DDP_PROGRESS_THREAD})
        for (const ddp_unused unused : {DDP_UNUSED_ERROR, DDP_UNUSED_ALLOW})
          expect_equal(allocations_in_passes(size, owned, progress, unused), int64_t{0},
                       "allocations with " + std::to_string(size) + " ranks");
}

ddp_case(passes_that_are_traced_allocate_nothing) {
  const TemporaryFolder folder;
  for (const ddp_progress progress : {DDP_PROGRESS_CALLER, DDP_PROGRESS_THREAD}) {
    expect_equal(allocations_in_passes(2, false, progress, DDP_UNUSED_ALLOW, {}, false, &folder), int64_t{0}, "allocations");
    for (const trace::Ring& ring : trace::read_rings(folder.path())) expect(ring.lost > 100, "events were recorded");
  }
}

ddp_case(passes_with_weights_and_skipping_ranks_allocate_nothing) {
  for (const int size : {2, 4})
    for (const bool owned : {true, false})
      for (const ddp_progress progress : {DDP_PROGRESS_CALLER, DDP_PROGRESS_THREAD})
        expect_equal(allocations_in_passes(size, owned, progress, DDP_UNUSED_ERROR, {}, true), int64_t{0},
                     "allocations with " + std::to_string(size) + " ranks");
}

ddp_case(passes_with_16_bits_on_the_wire_allocate_nothing) {
  for (const bool owned : {true, false})
    for (const ddp_progress progress : {DDP_PROGRESS_CALLER, DDP_PROGRESS_THREAD})
      expect_equal(allocations_in_passes(3, owned, progress, DDP_UNUSED_ALLOW, parts::Hook::sent_as(DDP_BF16)), int64_t{0},
                   "allocations");
}

ddp_case(passes_with_powersgd_allocate_nothing) {
  ddp_powersgd_options options = extra::default_powersgd_options();
  options.start_pass = 0;
  options.min_compression_rate = 1;
  for (const ddp_progress progress : {DDP_PROGRESS_CALLER, DDP_PROGRESS_THREAD})
    expect_equal(allocations_in_passes(3, false, progress, DDP_UNUSED_ALLOW, extra::powersgd_hook(options)), int64_t{0},
                 "allocations");
}

ddp_case(passes_that_are_open_together_allocate_nothing) {
  for (const ddp_progress progress : {DDP_PROGRESS_CALLER, DDP_PROGRESS_THREAD}) {
    allocations = 0;
    run_groups(3, [&](group::Group& group, int rank) {
      ddp_model_options options{.first_bucket_bytes = 2'000, .bucket_bytes = 8'000, .progress = progress};
      std::vector<float> values(2 * kParameters * 301);
      std::vector<std::unique_ptr<model::Model>> models;
      for (size_t m = 0; m < 2; ++m) {
        models.push_back(
            std::make_unique<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options));
        for (size_t p = 0; p < kParameters; ++p)
          models[m]->add_parameter(std::to_string(p), flat_tensor(&values[(m * kParameters + p) * 301], DDP_F32, 301),
                                   nullptr);
        models[m]->commit();
      }
      for (int pass = 0; pass < 8; ++pass) {
        if (pass == 2) {
          group.barrier();
          counting = true;
        }
        for (const auto& model : models) model->begin_backward(DDP_PASS_REDUCE);
        for (int32_t p = kParameters; p-- > 0;)
          for (const auto& model : models) model->pass().mark_ready(p);
        for (const auto& model : models) model->end_backward();
      }
      group.barrier();
      if (rank == 0) counting = false;
      group.barrier();
    });
    expect_equal(allocations.load(), int64_t{0}, "allocations");
  }
}

ddp_case(the_counter_counts) {
  counting = true;
  auto* const one = new int(1);
  counting = false;
  delete one;
  expect(allocations.load() > 0, "an allocation was counted");
}

}  // namespace
