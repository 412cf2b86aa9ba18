// SPDX-License-Identifier: Apache-2.0
// Checkpoints of what libddp itself trains on GPUs: Adam, sharded or not, and averages.
#include "checkpoint/state.hpp"
#include "core/hash.hpp"
#include "device/cpu/arrays.hpp"
#include "model/optimizer_slot.hpp"
#include "model/replicas.hpp"
#include "optim/adam.hpp"
#include "optim/ema.hpp"
#include "parts/model_pass.hpp"
#include "support/check.hpp"
#include "support/file_faults.hpp"
#include "support/mixed_model.hpp"
#include "support/rule_options.hpp"

constexpr Place kPlaces[] = {Place::kHost, Place::kGpu, Place::kMixed};

/// A model that trains with what libddp has, and its checkpoint.
struct Trained {
  MixedModel world;
  std::shared_ptr<optim::Adam> adam;
  std::shared_ptr<optim::Ema> ema;

  Trained(group::Group& group, int rank, Place place, bool shard, bool masters = false) : world(group, rank, place) {
    AdamOptions rule;
    rule.rate = 0.5;
    rule.shard = shard ? 1 : 0;
    rule.in_backward = rule.shard;
    rule.master_weights = masters ? 1 : 0;
    adam = std::make_shared<optim::Adam>(world.model, rule, rule);
    ema = std::make_shared<optim::Ema>(world.model, std::vector<double>{0.75});
    world.model->replicas().keep_equal(adam);
    world.model->replicas().keep_equal(ema);
    world.fill(0, 1);
  }
  void commit() {
    world.model->commit(world.compute.get());
    if (adam->in_passes() != nullptr) world.model->optimizer_slot().attach(adam);
    world.compute.synchronize();
  }
  /// Gradients are the same whole numbers on all ranks, so their mean is them, in whatever order it is formed.
  void step(int pass) {
    backward(pass);
    adam->step(world.compute.get());
    ema->update(world.compute.get());
    world.compute.synchronize();
  }
  void backward(int pass) {
    for (int32_t i = 0; i < world.model->table().parameter_count(); ++i) {
      const Tensor& grad = world.model->table().parameter(i).grad;
      std::vector<double> values(static_cast<size_t>(grad.count));
      for (size_t e = 0; e < values.size(); ++e)
        values[e] = static_cast<double>(static_cast<int>((e * 5 + static_cast<size_t>(pass)) % 8) - 4);
      std::vector<std::byte> bytes(static_cast<size_t>(grad.bytes()));
      cpu::convert(DDP_F64, values.data(), grad.dtype, bytes.data(), grad.count);
      if (grad.is_on_gpu())
        expect(fake_gpu::poke(grad.data, bytes.data(), grad.bytes()), "poked");
      else
        std::memcpy(grad.data, bytes.data(), bytes.size());
    }
    world.pass();
    world.compute.synchronize();
  }
  [[nodiscard]] checkpoint::Parts parts() { return {*world.model, adam.get(), ema.get()}; }
  void save(const std::string& path) { checkpoint::save_file("save", parts(), {1, 2}, path, std::nullopt); }
  void load(const std::string& path, checkpoint::LoadMode mode = {}) {
    (void)checkpoint::load_file("load", parts(), path, std::nullopt, mode);
  }
};

ddp_case(real_optimizers_and_averages_come_back_on_any_number_of_ranks) {
  const TemporaryFolder folder;
  std::string wanted;
  for (const Place place : kPlaces)
    for (const int size : {1, 3})
      for (const bool shard : {false, true}) {
        const FakeGpus gpus(place == Place::kMixed ? 31 : 0);
        run_gpu_groups(size, [&](group::Group& group, int rank) {
          Trained first(group, rank, place, shard);
          first.commit();
          for (int pass = 0; pass < 3; ++pass) first.step(pass);
          first.save(folder.file("a"));
          Trained second(group, rank, place, shard);
          second.commit();
          second.load(folder.file("a"));
          second.save(folder.file("b"));
          for (int pass = 3; pass < 5; ++pass) first.step(pass), second.step(pass);
          first.save(folder.file("c"));
          second.save(folder.file("d"));
          group.barrier();
        });
        expect(read_whole(folder.file("a")) == read_whole(folder.file("b")), "what was loaded is saved again");
        expect(read_whole(folder.file("c")) == read_whole(folder.file("d")), "training goes on as if nothing had happened");
        if (wanted.empty()) wanted = read_whole(folder.file("c"));
        expect(read_whole(folder.file("c")) == wanted,
               "place " + std::to_string(static_cast<int>(place)) + ", size " + std::to_string(size));
        FakeGpus::expect_clean();
      }
}

/// What a rank holds of it; no parameter here is split.
OwnedSpan only_part(const model::StateTensor& state, int rank) {
  if (state.parts.empty()) return {0, 0, state.tensor.count};
  const std::vector<OwnedSpan>& own = state.parts[static_cast<size_t>(rank)];
  expect(own.size() <= 1, "a part at most");
  return own.empty() ? OwnedSpan{} : own[0];
}

/// A load between a pass, which may have made the step, and its step.
ddp_case(a_load_after_an_unstepped_pass_is_that_of_a_new_process) {
  const TemporaryFolder folder;
  for (const Place place : kPlaces)
    for (const bool shard : {false, true}) {
      const FakeGpus gpus(place == Place::kMixed ? 32 : 0);
      run_gpu_groups(2, [&](group::Group& group, int rank) {
        Trained old(group, rank, place, shard, true);
        old.commit();
        for (int pass = 0; pass < 2; ++pass) old.step(pass);
        old.save(folder.file("a"));
        checkpoint::save_file("save", {*old.world.model}, {1, 2}, folder.file("values"), std::nullopt);
        old.step(2);
        old.backward(3);
        old.load(folder.file("a"));
        Trained fresh(group, rank, place, shard, true);
        fresh.commit();
        fresh.load(folder.file("a"));
        for (int pass = 4; pass < 6; ++pass) old.step(pass), fresh.step(pass);
        old.save(folder.file("b"));
        fresh.save(folder.file("c"));
        // Values alone: their master weights begin anew.
        Trained other(group, rank, place, shard, true);
        other.commit();
        other.adam->set_rate(1e-5);
        other.step(6);
        other.backward(7);
        (void)checkpoint::load_file("load", {*other.world.model}, folder.file("values"), std::nullopt);
        for (const model::StateTensor& each : other.adam->state_tensors()) {
          const size_t dot = each.name.rfind('.');
          if (each.name.substr(dot) != ".master") continue;
          const auto [piece, first, count] = only_part(each, rank);
          for (const Parameter& parameter : other.world.model->table().parameters()) {
            if (parameter.name != each.name.substr(0, dot) || count == 0) continue;
            const auto bytes_of = [](const Tensor& tensor) {
              std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
              if (tensor.is_on_gpu())
                expect(fake_gpu::peek(bytes.data(), tensor.data, tensor.bytes()), "peeked");
              else
                std::copy_n(tensor.data, bytes.size(), bytes.begin());
              return bytes;
            };
            const std::vector<std::byte> value = bytes_of(flat_part(parameter.value, first, count));
            Tensor part = each.tensor;
            part = flat_part(part, 0, count);
            std::vector<std::byte> wanted(static_cast<size_t>(count) * sizeof(float));
            cpu::convert(parameter.value.dtype, value.data(), DDP_F32, wanted.data(), count);
            expect(bytes_of(part) == wanted, "the master weights of " + parameter.name);
          }
        }
        group.barrier();
      });
      expect(read_whole(folder.file("b")) == read_whole(folder.file("c")),
             "as in a new process, place " + std::to_string(static_cast<int>(place)));
      FakeGpus::expect_clean();
    }
}

ddp_case(commit_gives_what_rank_0_has_loaded_to_all) {
  const TemporaryFolder folder;
  run_on_gpus(2, [&](group::Group& group, int rank) {
    {
      Trained first(group, rank, Place::kGpu, false);
      first.commit();
      first.step(0);
      first.save(folder.file("a"));
    }
    Trained second(group, rank, Place::kGpu, false);
    if (rank == 0) second.load(folder.file("a"), {.partial = false, .local = true});
    second.commit();
    // Rank 1 writes alone what it holds now.
    std::vector<std::byte> bytes;
    for (const model::StateTensor& each : second.adam->state_tensors()) {
      std::vector<std::byte> some(static_cast<size_t>(each.tensor.bytes()));
      if (each.tensor.count > 0) expect(fake_gpu::peek(some.data(), each.tensor.data, each.tensor.bytes()), "peeked");
      bytes.insert(bytes.end(), some.begin(), some.end());
    }
    const std::string mine(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const uint64_t hash = content_hash(mine.data(), mine.size());
    const std::string text = std::to_string(hash) + " " + second.adam->state_fields().begin()->second;
    for (const std::string& each : group.gather("moments", text)) expect(each == text, "the same moments on all ranks");
    expect(mine.find_first_not_of('\0') != std::string::npos, "and they are those of the file");
  });
}
