// Checkpoints with ranks as threads: what comes back, who learns what, and what stays untouched.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "state/layout.hpp"
#include "support/file_faults.hpp"
#include "support/state_world.hpp"

namespace {

using namespace ddp;
using namespace ddp::test;

/// A file saved by one rank with seed 1; its bytes.
std::string saved_file(const std::string& path) {
  run_groups(1, [&](Group& group, int) {
    StateWorld world(group);
    world.fill(1);
    world.save(path);
  });
  return read_whole(path);
}

std::string content_of_seed(int seed) {
  std::string content;
  run_groups(1, [&](Group& group, int) {
    StateWorld world(group);
    world.fill(seed);
    content = world.content();
  });
  return content;
}

/// Texts from all ranks, which must be one and the same.
class Texts {
 public:
  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_.insert(text);
  }
  [[nodiscard]] std::string one() const {
    expect_equal(texts_.size(), 1U, "different texts on the ranks");
    return *texts_.begin();
  }

 private:
  std::mutex mutex_;
  std::set<std::string> texts_;
};

/// A load of `path` on `size` ranks must fail everywhere in the same way and change nothing; gives the text.
std::string refused_load(int size, const std::string& path, ddp_status status) {
  Texts texts;
  run_groups(size, [&](Group& group, int rank) {
    StateWorld world(group);
    world.fill(10 + rank);
    const std::string before = world.content();
    texts.add(expect_error(status, [&] { (void)world.load(path); }));
    expect(world.content() == before, "something was touched");
    group.barrier();  // the group still works
  });
  return texts.one();
}

void a_checkpoint_of_any_number_of_ranks_loads_on_any_other(void**) {
  const TemporaryFolder folder;
  const std::string wanted = content_of_seed(1);
  std::string bytes;
  for (const int savers : {1, 2, 3}) {
    const std::string path = folder.file("a");
    run_groups(savers, [&](Group& group, int rank) {
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
        run_groups(loaders, [&](Group& group, int rank) {
          StateWorld world(group);
          world.fill(20 + rank);
          if (committed) world.model->commit();
          const state::Counters counters = world.load(path);
          expect(world.content() == wanted, "the content on rank " + std::to_string(rank));
          expect_equal(counters.epoch, 7, "epoch");
          expect_equal(counters.step, 1234567890123, "step");
        });
  }
  expect_equal(folder.names().size(), 1U, "files");
}

void names_in_the_file_are_the_users_own(void**) {
  const TemporaryFolder folder;
  const std::string bytes = saved_file(folder.file("a"));
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const state::Layout layout = state::read_head(std::string_view(bytes).substr(0, length + 8));
  std::set<std::string> names;
  for (const auto& entry : layout.header.tensors) names.insert(entry.name);
  const std::set<std::string> wanted = {"layer.weight", "ddp:odd", "seen", "none", "ddp1:optimizer/layer.weight.exp_avg",
                                        "ddp1:optimizer/ddp:odd.exp_avg"};
  expect(names == wanted, "names");
  expect_equal(static_cast<size_t>(layout.file_bytes), bytes.size(), "size");
  expect_equal(layout.header.metadata.at("user.note"), "seed 1", "the user's text");
}

void tensors_larger_than_a_chunk_travel_whole(void**) {
  const TemporaryFolder folder;
  constexpr int64_t kWidth = 3 * state::kChunkBytes / 4 + 17;
  run_groups(2, [&](Group& group, int rank) {
    StateWorld world(group, kWidth);
    world.fill(1);
    world.save(folder.file("a"));
    const std::string saved = world.content();
    world.fill(2 + rank);
    (void)world.load(folder.file("a"));
    expect(world.content() == saved, "the content");
  });
}

void without_an_optimizer_its_state_is_left_alone(void**) {
  const TemporaryFolder folder;
  (void)saved_file(folder.file("a"));
  run_groups(2, [&](Group& group, int) {
    StateWorld world(group);
    world.fill(3);
    const auto averages = world.optimizer->averages;
    (void)state::load_file("load", {*world.model}, folder.file("a"), std::nullopt);
    expect(world.optimizer->averages == averages, "the optimizer is not touched");
    expect_equal(world.weight[0], 1000.0F, "the first weight");
  });
}

void an_optimizer_that_the_file_lacks_is_a_mismatch(void**) {
  const TemporaryFolder folder;
  run_groups(1, [&](Group& group, int) {
    StateWorld world(group);
    state::save_file("save", {*world.model}, {}, folder.file("weights"), std::nullopt);
    PlainOptimizer other(world.model, "other");
    state::save_file("save", {*world.model, &other}, {}, folder.file("other"), std::nullopt);
  });
  expect_contains(refused_load(2, folder.file("weights"), DDP_ERROR_MISMATCH), "holds no optimizer; pass optimizer = NULL");
  expect_contains(refused_load(2, folder.file("other"), DDP_ERROR_MISMATCH), "the optimizer \"other\", but \"plain\" was passed");
}

void a_checkpoint_of_another_model_is_named_and_refused(void**) {
  const TemporaryFolder folder;
  run_groups(1, [&](Group& group, int) { StateWorld(group, 8).save(folder.file("a")); });
  const std::string text = refused_load(3, folder.file("a"), DDP_ERROR_MISMATCH);
  expect_contains(text, "load, on rank 0 (");
  expect_contains(text, "\"layer.weight\" is F32 [8] in the file and F32 [6] here");
}

void plain_weights_of_another_program_load(void**) {
  const TemporaryFolder folder;
  state::Header header;
  header.metadata["format"] = "pt";
  const auto add = [&](const char* name, const char* dtype, int64_t count, int64_t bytes) {
    const int64_t at = header.data_bytes();
    header.tensors.push_back({name, state::find_dtype(dtype), {count}, at, at + bytes});
  };
  add("seen", "U8", 5, 5);
  add("none", "I64", 0, 0);
  add("layer.weight", "F32", 6, 24);  // at an odd address
  add("ddp:odd", "F64", 3, 24);
  write_whole(folder.file("a"), state::serialize_header(header) + std::string("\1\2\3\4\5") + std::string(48, '\0'));
  run_groups(2, [&](Group& group, int) {
    StateWorld world(group);
    world.fill(3);
    const state::Counters counters = state::load_file("load", {*world.model}, folder.file("a"), std::nullopt);
    expect(counters.epoch == 0 && counters.step == 0, "counters");
    expect(world.seen == std::vector<uint8_t>({1, 2, 3, 4, 5}) && world.weight == std::vector<float>(6), "the content");
    expect_equal(world.model->metadata().at("note"), "seed 3", "texts stay");
  });
  (void)refused_load(2, folder.file("a"), DDP_ERROR_MISMATCH);
}

void any_damaged_byte_is_refused(void**) {
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  const std::string bytes = saved_file(folder.file("a"));
  const std::string path = folder.file("damaged");
  run_groups(1, [&](Group& group, int) {
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

void a_file_of_another_length_is_refused(void**) {
  const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
  const std::string bytes = saved_file(folder.file("a"));
  const std::string path = folder.file("cut");
  run_groups(1, [&](Group& group, int) {
    StateWorld world(group);
    world.fill(4);
    const std::string before = world.content();
    for (size_t size = 0; size < bytes.size(); ++size) {
      write_whole(path, bytes.substr(0, size));
      (void)expect_error(DDP_ERROR_IO, [&] { (void)world.load(path); });
    }
    write_whole(path, bytes + "x");
    expect_contains(expect_error(DDP_ERROR_IO, [&] { (void)world.load(path); }), "more than the");
    write_whole(path, std::string(bytes.size(), '\0'));
    (void)expect_error(DDP_ERROR_IO, [&] { (void)world.load(path); });
    expect(world.content() == before, "something was touched");
  });
}

void a_save_that_fails_fails_everywhere_with_one_text(void**) {
  const TemporaryFolder folder;
  Texts texts;
  run_groups(3, [&](Group& group, int) {
    StateWorld world(group);
    texts.add(expect_error(DDP_ERROR_IO, [&] { world.save(folder.file("missing/a")); }));
    world.save(folder.file("a"));  // and the group goes on
  });
  expect_contains(texts.one(), "save, on rank 0 (");
  expect_contains(texts.one(), "missing/a\": No such file or directory; check the path");
}

void a_missing_file_is_named_on_every_rank(void**) {
  expect_contains(refused_load(3, "no/such/file", DDP_ERROR_IO), "cannot open \"no/such/file\"");
}

void ranks_that_pass_other_parts_are_told(void**) {
  const TemporaryFolder folder;
  Texts texts;
  run_groups(3, [&](Group& group, int rank) {
    StateWorld world(group);
    const state::Parts parts{*world.model, rank == 1 ? nullptr : world.optimizer.get()};
    texts.add(expect_error(DDP_ERROR_MISMATCH, [&] { state::save_file("save", parts, {}, folder.file("a"), std::nullopt); }));
  });
  expect_contains(texts.one(), "rank 1 (");
  expect_contains(texts.one(), "passes no optimizer and no averages, but rank 0 passes optimizer plain and no averages");
  expect_equal(folder.names().size(), 0U, "files");
}

void ranks_that_registered_other_tensors_are_told(void**) {
  const TemporaryFolder folder;
  Texts texts;
  run_groups(3, [&](Group& group, int rank) {
    StateWorld world(group, rank == 2 ? 7 : 6);
    texts.add(expect_error(DDP_ERROR_MISMATCH, [&] { (void)world.load(folder.file("a")); }));
  });
  expect_contains(texts.one(), "rank 2 (");
  expect_contains(texts.one(), "registered \"layer.weight\" F32 [7], but rank 0 registered \"layer.weight\" F32 [6]");
}

void a_refusal_of_one_rank_is_everybodys(void**) {
  Texts texts;
  run_groups(3, [&](Group& group, int rank) {
    StateWorld world(group);
    std::optional<Error> refusal;
    if (rank == 2) refusal = Error(DDP_ERROR_INVALID_ARGUMENT, "the argument is wrong");
    texts.add(expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { (void)state::load_file("load", world.parts(), "a", refusal); }));
  });
  expect_contains(texts.one(), "load, on rank 2 (");
}

void fields_go_back_when_one_rank_cannot_take_them(void**) {
  const TemporaryFolder folder;
  (void)saved_file(folder.file("a"));
  run_groups(3, [&](Group& group, int rank) {
    StateWorld world(group);
    world.fill(30 + rank);
    world.optimizer->refuses = rank == 2;
    const std::string before = world.content();
    expect_contains(expect_error(DDP_ERROR_MISMATCH, [&] { (void)world.load(folder.file("a")); }), "the optimizer refuses");
    expect(world.content() == before, "something was touched");
  });
}

void an_open_pass_refuses_both(void**) {
  run_groups(2, [&](Group& group, int) {
    StateWorld world(group);
    world.model->commit();
    world.model->begin_backward(DDP_PASS_REDUCE);
    (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { world.save("a"); });
    (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { (void)world.load("a"); });
    for (int32_t i = 0; i < 2; ++i) world.model->mark_ready(i);
    world.model->end_backward();
  });
}

void streams_carry_the_same_bytes_as_files(void**) {
  const TemporaryFolder folder;
  const std::string bytes = saved_file(folder.file("a"));
  const std::string wanted = content_of_seed(1);
  run_groups(2, [&](Group& group, int rank) {
    StateWorld world(group);
    world.fill(1);
    std::string written;
    const state::PushFn push = [&](const void* data, int64_t count) {
      expect(rank == 0, "only rank 0 is asked");
      written.append(static_cast<const char*>(data), static_cast<size_t>(count));
      return 0;
    };
    state::save_stream("save", world.parts(), {7, 1234567890123}, push, std::nullopt);
    expect(written == (rank == 0 ? bytes : ""), "what was written");
    world.fill(2);
    size_t at = 0;
    const state::PullFn pull = [&](void* data, int64_t capacity) {
      const size_t now = std::min({static_cast<size_t>(capacity), size_t{100}, bytes.size() - at});
      std::memcpy(data, bytes.data() + at, now);
      at += now;
      return static_cast<int64_t>(now);
    };
    expect_equal(state::load_stream("load", world.parts(), pull, std::nullopt).epoch, 7, "epoch");
    expect(world.content() == wanted, "the content");
  });
}

void callbacks_that_fail_or_throw_fail_everywhere(void**) {
  run_groups(2, [&](Group& group, int) {
    StateWorld world(group);
    const auto save = [&](const state::PushFn& push) { state::save_stream("save", world.parts(), {}, push, std::nullopt); };
    const auto load = [&](const state::PullFn& pull) { (void)state::load_stream("load", world.parts(), pull, std::nullopt); };
    expect_contains(expect_error(DDP_ERROR_CALLBACK, [&] { save([](const void*, int64_t) { return 3; }); }), "returned 3");
    (void)expect_error(DDP_ERROR_CALLBACK, [&] { save([](const void*, int64_t) -> int32_t { throw 1; }); });
    expect_contains(expect_error(DDP_ERROR_CALLBACK, [&] { load([](void*, int64_t) { return int64_t{-1}; }); }), "returned -1");
    expect_contains(expect_error(DDP_ERROR_IO, [&] { load([](void*, int64_t) { return int64_t{0}; }); }), "too short");
  });
}

// Another program writes into the file, after it was verified and before it is read into place.
void a_file_that_changes_while_it_is_read_is_noticed(void**) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  std::string bytes = saved_file(path);
  bytes.back() = static_cast<char>(bytes.back() + 1);
  const int64_t reads_to_verify = 2 + 5;  // length, header, five tensors that have bytes
  const auto overwrite = [&] { std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << bytes; };
  const FileFaults faults({.at = reads_to_verify + 1, .only = "read", .before = overwrite});
  Texts texts;
  run_groups(2, [&](Group& group, int) {
    StateWorld world(group);
    texts.add(expect_error(DDP_ERROR_IO, [&] { (void)world.load(path); }));
  });
  expect_contains(texts.one(), "changed while it was read; the model is partly overwritten, so load again");
}

// Each call in turn: the other rank learns it, the former file stays whole, a failed load touches nothing or says that it did, and the
// next save and load work.
void after_any_failed_call_both_ranks_know_and_go_on(void**) {
  const std::string of_one = content_of_seed(1);
  const std::string of_two = content_of_seed(2);
  int saves_failed = 0, loads_failed = 0;
  for (const int code : {ENOSPC, EIO}) {
    for (int64_t at = 1; at < 1000; ++at) {
      const TemporaryFolder folder(TemporaryFolder::Where::kMemory);
      const std::string path = folder.file("a");
      (void)saved_file(path);
      int64_t calls = 0;
      std::mutex mutex;
      std::optional<FileFaults> faults(std::in_place, FilePlan{.at = at, .code = code});
      run_groups(2, [&](Group& group, int rank) {
        StateWorld world(group);
        bool failed = false;
        const auto attempt = [&](auto&& body) {
          try {
            body();
            return std::string();
          } catch (const Error& error) {
            failed = true;
            expect_equal(static_cast<int>(error.status()), static_cast<int>(DDP_ERROR_IO), "status");
            return error.text();
          }
        };
        world.fill(2);
        const std::string save_text = attempt([&] { world.save(path); });
        const bool saved = save_text.empty() || save_text.find("is in place") != std::string::npos;
        world.fill(3 + rank);
        const std::string before = world.content();
        const std::string text = attempt([&] { (void)world.load(path); });
        if (text.empty()) expect(world.content() == (saved ? of_two : of_one), "the former or the new state, whole");
        else if (text.find("partly overwritten") == std::string::npos) expect(world.content() == before, "something was touched");
        const std::lock_guard lock(mutex);
        if (rank == 0) calls = faults->calls();
        saves_failed += save_text.empty() ? 0 : 1;
        loads_failed += text.empty() ? 0 : 1;
      });
      faults.reset();
      run_groups(2, [&](Group& group, int) {
        StateWorld world(group);
        world.fill(2);
        world.save(path);
        world.fill(3);
        (void)world.load(path);
        expect(world.content() == of_two, "the next load");
      });
      expect_equal(folder.names().size(), 1U, "files");
      if (at > calls) break;
    }
  }
  expect(saves_failed > 20 && saves_failed % 2 == 0, "saves failed on both ranks");
  expect(loads_failed > 20 && loads_failed % 2 == 0, "loads failed on both ranks");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      ddp_test(a_checkpoint_of_any_number_of_ranks_loads_on_any_other),
      ddp_test(names_in_the_file_are_the_users_own),
      ddp_test(tensors_larger_than_a_chunk_travel_whole),
      ddp_test(without_an_optimizer_its_state_is_left_alone),
      ddp_test(an_optimizer_that_the_file_lacks_is_a_mismatch),
      ddp_test(a_checkpoint_of_another_model_is_named_and_refused),
      ddp_test(plain_weights_of_another_program_load),
      ddp_test(any_damaged_byte_is_refused),
      ddp_test(a_file_of_another_length_is_refused),
      ddp_test(a_save_that_fails_fails_everywhere_with_one_text),
      ddp_test(a_missing_file_is_named_on_every_rank),
      ddp_test(ranks_that_pass_other_parts_are_told),
      ddp_test(ranks_that_registered_other_tensors_are_told),
      ddp_test(a_refusal_of_one_rank_is_everybodys),
      ddp_test(fields_go_back_when_one_rank_cannot_take_them),
      ddp_test(an_open_pass_refuses_both),
      ddp_test(streams_carry_the_same_bytes_as_files),
      ddp_test(callbacks_that_fail_or_throw_fail_everywhere),
      ddp_test(a_file_that_changes_while_it_is_read_is_noticed),
      ddp_test(after_any_failed_call_both_ranks_know_and_go_on),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
