// SPDX-License-Identifier: Apache-2.0
// What becomes of a checkpoint when the GPU fails in the middle: all ranks know, the old file is whole, nothing is left
// behind.

#include "support/check.hpp"
#include "support/file_faults.hpp"
#include "support/gpu_checkpoint.hpp"

/// Runs `body` on `size` ranks with the n-th call of each function failing on rank 0, until none fails any more. All ranks
/// must know.
void every_call_fails_once(int size, int32_t kind, const std::function<void(Checkpointed&)>& body) {
  for (const char* function :
       {"synchronize", "stream_create", "host_alloc", "event_create", "copy", "event_record", "event_synchronize"})
    for (int64_t nth = 1;; nth += size == 1 && kind == DDP_GPU_OTHER ? 1 : 1 + nth / 2) {
      const FakeGpus gpus;
      bool due = false;
      std::atomic<int> failed{0};
      run_gpu_groups(size, [&](group::Group& group, int rank) {
        Checkpointed state(group, rank, Place::kGpu, true);
        if (size > 1) group.gpu().connect();
        state.fill(1);
        (void)group.gpu().scratch();
        group.barrier();
        if (rank == 0) {
          fake_gpu::clear_log();
          fake_gpu::Fault fault;
          fault.function = function;
          fault.nth = nth;
          fault.kind = kind;
          fault.device = 0;
          fake_gpu::inject(fault);
        }
        group.barrier();
        std::string text;
        try {
          body(state);
        } catch (const Error& error) {
          ++failed;
          text = error.text();
        }
        if (rank == 0) due = fake_gpu::calls(function, 0) >= nth;
        if (!text.empty()) expect_contains(text, "GPU 0");
      });
      fake_gpu::clear_faults();
      FakeGpus::expect_correct(std::string(function) + " " + std::to_string(nth));
      FakeGpus::expect_nothing_left();
      if (!due) {
        expect_equal(failed.load(), 0, "nothing failed");
        break;
      }
      expect(failed.load() == 0 || failed.load() == size,
             std::string("all ranks know: ") + function + " " + std::to_string(nth));
    }
}

ddp_case(after_any_failed_call_a_save_says_so_and_leaves_the_old_file) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  for (const int size : {1, 2})
    for (const int32_t kind : {DDP_GPU_OTHER, DDP_GPU_LOST}) {
      run_groups(1, [&](group::Group& group, int rank) {
        const FakeGpus gpus;
        Checkpointed old(group, rank, Place::kHost);
        old.fill(0);
        old.save(path);
      });
      const std::string before = read_whole(path);
      every_call_fails_once(size, kind, [&](Checkpointed& state) {
        try {
          state.save(path);
        } catch (const Error&) {
          if (state.world.model->group().rank() == 0) expect(read_whole(path) == before, "the old file");
          throw;
        }
        if (state.world.model->group().rank() == 0) write_whole(path, before);  // for the next
      });
    }
}

ddp_case(after_any_failed_call_a_load_says_so) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  run_groups(1, [&](group::Group& group, int rank) {
    const FakeGpus gpus;
    Checkpointed old(group, rank, Place::kHost);
    old.fill(4);
    old.save(path);
  });
  for (const int size : {1, 2})
    for (const int32_t kind : {DDP_GPU_OTHER, DDP_GPU_LOST})
      every_call_fails_once(size, kind, [&](Checkpointed& state) {
        state.load(path);
        state.expect_filled(4, "loaded");
      });
}

ddp_case(what_did_not_arrive_on_the_gpu_is_an_error_of_the_load) {
  const TemporaryFolder folder;
  run_on_gpus(2, [&](group::Group& group, int rank) {
    Checkpointed state(group, rank, Place::kGpu);
    group.gpu().connect();
    state.fill(1);
    state.save(folder.file("a"));
    state.load(folder.file("a"));
    group.barrier();
    fake_gpu::Fault fault;
    fault.function = "stream_synchronize";
    fault.device = 1;
    if (rank == 1) fake_gpu::inject(fault);
    group.barrier();
    expect_error(DDP_ERROR_INTERNAL, [&] { state.load(folder.file("a")); }, {"on rank 1", "partly overwritten"});
    group.barrier();  // the group is whole
    state.load(folder.file("a"));
    state.expect_filled(1, "the next load");
    group.barrier();
  });
}
