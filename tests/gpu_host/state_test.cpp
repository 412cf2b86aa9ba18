// Checkpoints of models on GPUs: the same file as from host memory, read into either, with moments that lie on the GPU, also in parts; and
// what happens when the GPU fails in the middle.
#include "device/gpu/transfer.hpp"
#include "state/state.hpp"
#include "support/file_faults.hpp"
#include "support/mixed_model.hpp"
#include "update/optimizer.hpp"

namespace ddp::test {
namespace {

/// One moment for each parameter, where the parameter lies; those of "large" in parts, a slice on each rank, if asked for.
class MomentOptimizer final : public Optimizer {
 public:
  MomentOptimizer(MixedModel& world, int rank, int size, bool sharded) : Optimizer(world.model), world_(world), rank_(rank), size_(size), sharded_(sharded) {
    for (const Lent& each : world.all())
      if (!each.is_buffer) add(each);
  }
  const char* kind() const noexcept override { return "moments"; }
  void step(void*) override {}
  std::vector<StateTensor> state_tensors() override {
    std::vector<StateTensor> tensors;
    for (Moment& each : moments_) {
      Tensor tensor = flat_tensor(nullptr, DDP_F32, each.count);
      tensor.data = each.on_gpu ? static_cast<std::byte*>(each.device->data()) : each.host.data();
      if (each.on_gpu) {
        const Tensor own = each.device->tensor(model().group(), DDP_F32);
        tensor.device_index = own.device_index;
        tensor.gpu = own.gpu;
      }
      tensors.push_back({each.name, tensor, each.parts});
    }
    return tensors;
  }
  std::map<std::string, std::string> state_fields() const override { return {{"steps", std::to_string(steps)}}; }
  void load_fields(const std::map<std::string, std::string>& fields) override { steps = std::stoll(fields.at("steps")); }
  void set_rate(double) override {}
  double rate() const noexcept override { return 0; }
  int64_t step_count() const noexcept override { return steps; }
  void set_group(int32_t, double, double) override {}

  void fill(int round) {
    steps = round;
    for (size_t m = 0; m < moments_.size(); ++m) moments_[m].write(content(m, round));
  }
  void expect_filled(int round, const std::string& what) {
    expect_equal(steps, static_cast<int64_t>(round), what + ": steps");
    for (size_t m = 0; m < moments_.size(); ++m) expect(moments_[m].read() == content(m, round), what + ": " + moments_[m].name);
  }

  int64_t steps = 0;

 private:
  struct Moment : Lent {
    std::vector<OwnedSpan> parts;
    OwnedSpan own;
  };
  void add(const Lent& of) {
    Moment moment;
    moment.name = of.name + ".exp_avg";
    moment.dtype = DDP_F32;
    moment.count = of.count;
    moment.on_gpu = of.on_gpu;
    moment.own = {0, 0, of.count};
    if (sharded_ && of.name == "large") {
      const int64_t each = of.count / size_ + 1;
      for (int64_t first = 0; first < of.count; first += each) moment.parts.push_back({0, first, std::min(each, of.count - first)});
      moment.parts.resize(static_cast<size_t>(size_));
      moment.own = moment.parts[static_cast<size_t>(rank_)];
    }
    const int64_t bytes = moment.own.count * 4;
    moment.host.resize(static_cast<size_t>(bytes));
    if (moment.on_gpu) moment.device = std::make_unique<GpuArray>(rank_, bytes);
    moments_.push_back(std::move(moment));
  }
  [[nodiscard]] std::vector<std::byte> content(size_t m, int round) const {
    std::vector<float> values(static_cast<size_t>(moments_[m].own.count));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((static_cast<size_t>(moments_[m].own.first) + i) % 9973) + static_cast<float>(round * 100 + static_cast<int>(m));
    std::vector<std::byte> bytes(values.size() * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  MixedModel& world_;
  int rank_, size_;
  bool sharded_;
  std::vector<Moment> moments_;
};

struct Checkpointed {
  MixedModel world;
  MomentOptimizer optimizer;

  Checkpointed(Group& group, int rank, Place place, bool sharded = false, int64_t large = 40'000)
      : world(group, rank, place, mixed_model_options(), large), optimizer(world, rank, group.size(), sharded) {}
  void fill(int round) {
    world.fill(0, round);
    optimizer.fill(round);
  }
  void expect_filled(int round, const std::string& what) {
    world.expect_filled(0, round, what);
    optimizer.expect_filled(round, what);
  }
  [[nodiscard]] state::Parts parts() { return {*world.model, &optimizer, nullptr}; }
  void save(const std::string& path) { state::save_file("save", parts(), {1, 2}, path, std::nullopt); }
  void load(const std::string& path, state::LoadMode mode = {}) { (void)state::load_file("load", parts(), path, std::nullopt, mode); }
};

constexpr Place kPlaces[] = {Place::kHost, Place::kGpu, Place::kMixed};

void a_file_has_the_same_bytes_wherever_the_tensors_lie(void**) {
  const TemporaryFolder folder;
  std::string wanted;
  for (const int size : {1, 2, 3})
    for (const Place place : kPlaces)
      for (const bool sharded : {false, true}) {
        const FakeGpus gpus(9);
        run_gpu_groups(size, [&](Group& group, int rank) {
          Checkpointed state(group, rank, place, sharded);
          state.fill(5);
          state.save(folder.file("a"));
        });
        const std::string bytes = read_whole(folder.file("a"));
        if (wanted.empty()) wanted = bytes;
        expect(bytes == wanted, "size " + std::to_string(size) + ", place " + std::to_string(static_cast<int>(place)));
        FakeGpus::expect_correct();
        FakeGpus::expect_nothing_left();
      }
}

void a_file_is_loaded_wherever_the_tensors_lie(void**) {
  const TemporaryFolder folder;
  run_groups(1, [&](Group& group, int rank) {
    const FakeGpus gpus;
    Checkpointed state(group, rank, Place::kHost);
    state.fill(6);
    state.save(folder.file("a"));
  });
  for (const int size : {1, 2, 3})
    for (const Place place : kPlaces)
      for (const bool sharded : {false, true}) {
        const FakeGpus gpus(13);
        run_gpu_groups(size, [&](Group& group, int rank) {
          Checkpointed state(group, rank, place, sharded);
          if (size > 1) state.world.model->commit(state.world.compute.get());
          state.world.compute.synchronize();
          state.fill(7 + rank);
          state.load(folder.file("a"));
          state.expect_filled(6, "loaded on " + std::to_string(size));
          group.barrier();
        });
        FakeGpus::expect_correct();
        FakeGpus::expect_nothing_left();
      }
}

void tensors_of_many_chunks_come_and_go_whole(void**) {
  const TemporaryFolder folder;
  const int64_t large = 5 * state::kChunkBytes / 4 + 777;
  for (const int size : {1, 2}) {
    const FakeGpus gpus;
    run_gpu_groups(size, [&](Group& group, int rank) {
      Checkpointed state(group, rank, Place::kGpu, true, large);
      state.fill(1);
      state.save(folder.file("a"));
      state.fill(2 + rank);
      state.load(folder.file("a"));
      state.expect_filled(1, "large tensors");
      group.barrier();
    });
    FakeGpus::expect_correct();
    FakeGpus::expect_nothing_left();
  }
}

void saving_and_loading_wait_for_what_was_enqueued(void**) {
  const TemporaryFolder folder;
  const FakeGpus gpus(21);
  run_gpu_groups(1, [&](Group& group, int rank) {
    Checkpointed state(group, rank, Place::kGpu);
    GpuArray fresh(rank, state.world.bytes("large"));
    const GpuStream other(rank);
    state.fill(3);
    fresh.poke(state.world.lent("large").read());
    state.fill(4);
    fake_gpu::pause(other.get());
    write_on(other.get(), fresh, state.world.tensor("large").data);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the save would be over
      fake_gpu::resume(other.get());
    });
    state.save(folder.file("a"));
    later.join();
    const std::vector<std::byte> saved = state.world.lent("large").read();
    expect(saved == fresh.peek<std::byte>(), "the enqueued write came before the save");
    state.fill(8);
    state.load(folder.file("a"));
    expect(state.world.lent("large").read() == saved, "and is in the file");
  });
  FakeGpus::expect_correct();
  FakeGpus::expect_nothing_left();
}

void a_part_is_loaded_and_one_rank_loads_alone(void**) {
  const TemporaryFolder folder;
  const FakeGpus gpus;
  run_gpu_groups(2, [&](Group& group, int rank) {
    Checkpointed saved(group, rank, Place::kHost);
    saved.fill(3);
    saved.save(folder.file("a"));
    Checkpointed state(group, rank, Place::kGpu);
    state.fill(9);
    GpuArray extra(rank, 400);
    extra.poke(std::vector<float>(100, 5.0F));
    state.world.model->add_buffer("extra", extra.tensor(group, DDP_F32));
    group.barrier();
    state.load(folder.file("a"), {.partial = true, .local = false});
    state.expect_filled(3, "what both have");
    expect(extra.peek<float>() == std::vector<float>(100, 5.0F), "what the file lacks is left alone");
    expect_equal(state.world.model->load_report().missing.size(), size_t{1}, "missing tensors");

    Checkpointed alone(group, rank, Place::kGpu);
    alone.fill(11);
    if (rank == 0) alone.load(folder.file("a"), {.partial = false, .local = true});
    group.barrier();
    alone.expect_filled(rank == 0 ? 3 : 11, "alone");
    group.barrier();
  });
  FakeGpus::expect_correct();
  FakeGpus::expect_nothing_left();
}

/// Runs `body` on `size` ranks with the n-th call of each function failing on rank 0, until none fails any more. All ranks must know.
void every_call_fails_once(int size, int32_t kind, const std::function<void(Checkpointed&)>& body) {
  for (const char* function : {"synchronize", "stream_create", "host_alloc", "event_create", "copy", "event_record", "event_synchronize"})
    for (int64_t nth = 1;; nth += size == 1 && kind == DDP_GPU_OTHER ? 1 : 1 + nth / 2) {
      const FakeGpus gpus;
      bool due = false;
      std::atomic<int> failed{0};
      run_gpu_groups(size, [&](Group& group, int rank) {
        Checkpointed state(group, rank, Place::kGpu, true);
        if (size > 1) (void)group.gpu_side();
        state.fill(1);
        (void)group.gpu_scratch();
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
      expect(failed.load() == 0 || failed.load() == size, std::string("all ranks know: ") + function + " " + std::to_string(nth));
    }
}

void after_any_failed_call_a_save_says_so_and_leaves_the_old_file(void**) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  for (const int size : {1, 2})
    for (const int32_t kind : {DDP_GPU_OTHER, DDP_GPU_LOST}) {
      run_groups(1, [&](Group& group, int rank) {
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

void after_any_failed_call_a_load_says_so(void**) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  run_groups(1, [&](Group& group, int rank) {
    const FakeGpus gpus;
    Checkpointed old(group, rank, Place::kHost);
    old.fill(4);
    old.save(path);
  });
  for (const int32_t kind : {DDP_GPU_OTHER, DDP_GPU_LOST})
    every_call_fails_once(1, kind, [&](Checkpointed& state) {
      state.load(path);
      state.expect_filled(4, "loaded");
    });
}

}  // namespace
}  // namespace ddp::test

using namespace ddp::test;

int main() {
  const CMUnitTest tests[] = {
      ddp_test(a_file_has_the_same_bytes_wherever_the_tensors_lie),
      ddp_test(a_file_is_loaded_wherever_the_tensors_lie),
      ddp_test(tensors_of_many_chunks_come_and_go_whole),
      ddp_test(saving_and_loading_wait_for_what_was_enqueued),
      ddp_test(a_part_is_loaded_and_one_rank_loads_alone),
      ddp_test(after_any_failed_call_a_save_says_so_and_leaves_the_old_file),
      ddp_test(after_any_failed_call_a_load_says_so),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
