// SPDX-License-Identifier: Apache-2.0
// Averages of parameters on a GPU: the bits of host memory, swaps that are exact, and waits only where memory is made or
// freed.
#include "optim/ema.hpp"

#include "gpu_host/placed_model.hpp"

const std::vector<double> kDecays{0.9, 0.0, 0.999};

void change_values(const PlacedModel& placed, int step) {
  placed.fill_grads(step, 2.0);
  for (int32_t i = 0; i < placed.size(); ++i) placed.write(placed.value(i), placed.read(placed.grad(i)));
}

fake_gpu_host_case(averages_have_the_bits_of_the_cpu) {
  for (const Home home : {Home::kGpu, Home::kBoth}) {
    PlacedModel host(Home::kHost), gpu(home);
    optim::Ema wanted(host.model, kDecays), got(gpu.model, kDecays);
    for (int step = 0; step < 5; ++step) {
      change_values(host, step);
      change_values(gpu, step);
      wanted.update();
      got.update(gpu.stream());
      expect_same_state(gpu, got, host, wanted, "step " + std::to_string(step));
    }
    for (const int32_t which : {1, 0, 2}) {
      for (int turn = 0; turn < 2; ++turn) {
        wanted.swap(which);
        got.swap(which, gpu.stream());
        expect_same(gpu, host, "swap " + std::to_string(which));
      }
      expect_same_state(gpu, got, host, wanted, "after swap " + std::to_string(which));
    }
  }
}

fake_gpu_host_case(a_swap_there_and_back_changes_nothing) {
  PlacedModel placed(Home::kGpu);
  optim::Ema ema(placed.model, kDecays);
  ema.update(placed.stream());
  change_values(placed, 3);
  ema.update(placed.stream());
  const std::vector<PlacedBytes> before = placed.contents();
  ema.swap(0, placed.stream());
  expect(placed.contents() != before, "the parameters hold the average");
  ema.swap(0, placed.stream());
  expect(placed.contents() == before, "the parameters are what they were");
}

fake_gpu_host_case(updates_allocate_nothing_and_wait_for_nobody_after_the_first) {
  PlacedModel placed(Home::kGpu);
  optim::Ema ema(placed.model, kDecays);
  ema.update(placed.stream());
  fake_gpu::clear_log();
  fake_gpu::pause(placed.stream());
  ema.update(placed.stream());
  ema.update(placed.stream());
  expect(fake_gpu::pending(placed.stream()) > 0, "the work is enqueued and not done");
  fake_gpu::resume(placed.stream());
  expect_equal(fake_gpu::allocations(), int64_t{0}, "allocations");
  expect_equal(fake_gpu::host_waits(), int64_t{0}, "waits");
  expect_equal(fake_gpu::calls("ema"), int64_t{2 * 3 * 4}, "one launch for each update, decay and type");
}

fake_gpu_host_case(swaps_of_wide_types_wait_for_nobody) {
  Ways ways = placed_ways(Home::kGpu);
  ways.numbers = {0, 1};  // of F32 and F64
  PlacedModel placed(ways);
  optim::Ema ema(placed.model, {0.5});
  ema.update(placed.stream());
  fake_gpu::clear_log();
  ema.swap(0, placed.stream());
  ema.swap(0, placed.stream());
  expect_equal(fake_gpu::host_waits() + fake_gpu::allocations(), int64_t{0}, "waits and allocations");
}

fake_gpu_host_case(an_average_that_a_checkpoint_lacks_begins_at_its_parameter) {
  PlacedModel placed(Home::kBoth);
  optim::Ema ema(placed.model, {0.5});
  for (const model::StateTensor& state : ema.state_tensors()) ema.begin_at_parameter(state.name);
  const auto tensors = ema.state_tensors();
  for (int32_t i = 0; i < placed.size(); ++i) {
    const PlacedBytes value = placed.read(placed.value(i)), average = placed.read(tensors[static_cast<size_t>(i)].tensor);
    for (size_t k = 0; k < static_cast<size_t>(placed.value(i).count); ++k)
      expect_equal(get_element(cpu::moment_dtype(placed.value(i).dtype), average.data(), k),
                   get_element(placed.value(i).dtype, value.data(), k), "element");
  }
}

fake_gpu_host_case(a_capture_is_refused_and_not_spoiled) {
  PlacedModel placed(Home::kGpu);
  optim::Ema ema(placed.model, {0.5});
  ema.update(placed.stream());
  expect(fake_gpu::begin_capture(placed.stream()), "the capture begins");
  expect_error(DDP_ERROR_INVALID_STATE, [&] { ema.update(placed.stream()); }, {"ddp_ema_update"});
  expect_error(DDP_ERROR_INVALID_STATE, [&] { ema.swap(0, placed.stream()); }, {"ddp_ema_swap"});
  expect(fake_gpu::end_capture(placed.stream()) != nullptr, "the capture is not spoiled");
  expect_equal(ema.update_count(), int64_t{1}, "updates");
}
