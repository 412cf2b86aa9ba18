// SPDX-License-Identifier: Apache-2.0
// Checkpoints with ranks as threads: the contents after a load, and the calls that are refused.

#include "checkpoint/layout.hpp"
#include "support/check.hpp"
#include "support/state_world.hpp"

ddp_case(a_checkpoint_of_any_number_of_ranks_loads_on_any_other) {
  const TemporaryFolder folder;
  const std::string wanted = content_of_seed(1);
  std::string bytes;
  for (const int savers : {1, 2, 3}) {
    const std::string path = folder.file("a");
    run_groups(savers, [&](group::Group& group, int rank) {
      StateWorld world(group);
      world.fill(rank == 0 ? 1 : 5);  // rank 0's values are the ones saved
      if (savers == 2) world.model->commit();
      world.save(path);
      expect(!read_whole(path).empty(), "the file is there when save returns");
    });
    if (bytes.empty()) bytes = read_whole(path);
    expect(savers == 2 || read_whole(path) == bytes, "the same state gives the same bytes");
    for (const int loaders : {1, 2, 3})
      for (const bool committed : {false, true})
        run_groups(loaders, [&](group::Group& group, int rank) {
          StateWorld world(group);
          world.fill(20 + rank);
          if (committed) world.model->commit();
          const checkpoint::Counters counters = world.load(path);
          expect(world.content() == wanted, "the content on rank " + std::to_string(rank));
          expect_equal(counters.epoch, 7, "epoch");
          expect_equal(counters.step, 1234567890123, "step");
        });
  }
  expect_equal(folder.names().size(), 1U, "files");
}

ddp_case(names_in_the_file_are_the_users_own) {
  const TemporaryFolder folder;
  const std::string bytes = saved_file(folder.file("a"));
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const checkpoint::Layout layout = checkpoint::read_head(std::string_view(bytes).substr(0, length + 8));
  std::set<std::string> names;
  for (const auto& entry : layout.header.tensors) names.insert(entry.name);
  const std::set<std::string> wanted = {
      "layer.weight", "ddp:odd", "seen", "none", "ddp1:optimizer/layer.weight.exp_avg", "ddp1:optimizer/ddp:odd.exp_avg"};
  expect(names == wanted, "names");
  expect_equal(static_cast<size_t>(layout.file_bytes), bytes.size(), "size");
  expect_equal(layout.header.metadata.at("user.note"), "seed 1", "the user's text");
}

ddp_case(tensors_larger_than_a_chunk_travel_whole) {
  const TemporaryFolder folder;
  constexpr int64_t kWidth = 3 * checkpoint::kChunkBytes / 4 + 17;
  run_groups(2, [&](group::Group& group, int rank) {
    StateWorld world(group, kWidth);
    world.fill(1);
    world.save(folder.file("a"));
    const std::string saved = world.content();
    world.fill(2 + rank);
    (void)world.load(folder.file("a"));
    expect(world.content() == saved, "the content");
  });
}

ddp_case(without_an_optimizer_its_state_is_left_alone) {
  const TemporaryFolder folder;
  (void)saved_file(folder.file("a"));
  run_groups(2, [&](group::Group& group, int) {
    StateWorld world(group);
    world.fill(3);
    const auto averages = world.optimizer->averages;
    (void)checkpoint::load_file("load", {*world.model}, folder.file("a"), std::nullopt);
    expect(world.optimizer->averages == averages, "the optimizer is not touched");
    expect_equal(world.weight[0], 1000.0F, "the first weight");
  });
}

ddp_case(an_optimizer_that_the_file_lacks_is_a_mismatch) {
  const TemporaryFolder folder;
  run_groups(1, [&](group::Group& group, int) {
    StateWorld world(group);
    checkpoint::save_file("save", {*world.model}, {}, folder.file("weights"), std::nullopt);
    PlainOptimizer other(world.model, "other");
    checkpoint::save_file("save", {*world.model, &other}, {}, folder.file("other"), std::nullopt);
  });
  expect_contains(refused_load(2, folder.file("weights"), DDP_ERROR_MISMATCH), "holds no optimizer; pass optimizer = NULL");
  expect_contains(refused_load(2, folder.file("other"), DDP_ERROR_MISMATCH),
                  "the optimizer \"other\", but \"plain\" was passed");
}

ddp_case(a_checkpoint_of_another_model_is_named_and_refused) {
  const TemporaryFolder folder;
  run_groups(1, [&](group::Group& group, int) { StateWorld(group, 8).save(folder.file("a")); });
  const std::string text = refused_load(3, folder.file("a"), DDP_ERROR_MISMATCH);
  expect_contains(text, "load, on rank 0 (");
  expect_contains(text, "\"layer.weight\" is F32 [8] in the file and F32 [6] here");
}

ddp_case(plain_weights_of_another_program_load) {
  const TemporaryFolder folder;
  checkpoint::Header header;
  header.metadata["format"] = "pt";
  const auto add = [&](const char* name, const char* dtype, int64_t count, int64_t bytes) {
    const int64_t at = header.data_bytes();
    header.tensors.push_back({name, checkpoint::find_dtype(dtype), {count}, at, at + bytes});
  };
  add("seen", "U8", 5, 5);
  add("none", "I64", 0, 0);
  add("layer.weight", "F32", 6, 24);  // at an odd address
  add("ddp:odd", "F64", 3, 24);
  write_whole(folder.file("a"), checkpoint::serialize_header(header) + std::string("\1\2\3\4\5") + std::string(48, '\0'));
  run_groups(2, [&](group::Group& group, int) {
    StateWorld world(group);
    world.fill(3);
    const checkpoint::Counters counters = checkpoint::load_file("load", {*world.model}, folder.file("a"), std::nullopt);
    expect(counters.epoch == 0 && counters.step == 0, "counters");
    expect(world.seen == std::vector<uint8_t>({1, 2, 3, 4, 5}) && world.weight == std::vector<float>(6), "the content");
    expect_equal(world.model->checkpoint_info().metadata.at("note"), "seed 3", "texts stay");
  });
  (void)refused_load(2, folder.file("a"), DDP_ERROR_MISMATCH);
}

ddp_case(any_damaged_byte_is_refused) {
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  const std::string bytes = saved_file(folder.file("a"));
  const std::string path = folder.file("damaged");
  run_groups(1, [&](group::Group& group, int) {
    StateWorld world(group);
    world.fill(4);
    const std::string before = world.content();
    for (size_t at = 0; at < bytes.size(); ++at) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(static_cast<unsigned char>(damaged[at]) ^ (1U << at % 8));
      write_whole(path, damaged);
      (void)expect_error(DDP_ERROR_IO, [&] { (void)world.load(path); });
      expect(world.content() == before, "something was touched");
    }
    write_whole(path, bytes);
    (void)world.load(path);
  });
  std::string damaged = bytes;
  damaged.back() = static_cast<char>(damaged.back() + 1);
  write_whole(path, damaged);
  expect_contains(refused_load(2, path, DDP_ERROR_IO), "the data of the tensor \"seen\" at byte");
}

ddp_case(a_file_of_another_length_is_refused) {
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  const std::string bytes = saved_file(folder.file("a"));
  const std::string path = folder.file("cut");
  run_groups(1, [&](group::Group& group, int) {
    StateWorld world(group);
    world.fill(4);
    const std::string before = world.content();
    for (size_t size = 0; size < bytes.size(); ++size) {
      write_whole(path, bytes.substr(0, size));
      (void)expect_error(DDP_ERROR_IO, [&] { (void)world.load(path); });
    }
    write_whole(path, bytes + "x");
    expect_error(DDP_ERROR_IO, [&] { (void)world.load(path); }, {"more than the"});
    write_whole(path, std::string(bytes.size(), '\0'));
    (void)expect_error(DDP_ERROR_IO, [&] { (void)world.load(path); });
    expect(world.content() == before, "something was touched");
  });
}

ddp_case(streams_carry_the_same_bytes_as_files) {
  const TemporaryFolder folder;
  const std::string bytes = saved_file(folder.file("a"));
  const std::string wanted = content_of_seed(1);
  run_groups(2, [&](group::Group& group, int rank) {
    StateWorld world(group);
    world.fill(1);
    std::string written;
    const checkpoint::PushFn push = [&](const void* data, int64_t count) {
      expect(rank == 0, "only rank 0 is asked");
      written.append(static_cast<const char*>(data), static_cast<size_t>(count));
      return 0;
    };
    checkpoint::save_stream("save", world.parts(), {7, 1234567890123}, push, std::nullopt);
    expect(written == (rank == 0 ? bytes : ""), "what was written");
    world.fill(2);
    size_t at = 0;
    const checkpoint::PullFn pull = [&](void* data, int64_t capacity) {
      const size_t now = std::min({static_cast<size_t>(capacity), size_t{100}, bytes.size() - at});
      std::memcpy(data, bytes.data() + at, now);
      at += now;
      return static_cast<int64_t>(now);
    };
    expect_equal(checkpoint::load_stream("load", world.parts(), pull, std::nullopt).epoch, 7, "epoch");
    expect(world.content() == wanted, "the content");
  });
}
