// SPDX-License-Identifier: Apache-2.0
// Checkpoints when something fails: the reports of each rank, the data that stays untouched, and that the group continues.

#include "core/callback.hpp"
#include "support/check.hpp"
#include "support/state_world.hpp"

ddp_case(a_save_that_fails_fails_everywhere_with_one_text) {
  const TemporaryFolder folder;
  Texts texts;
  run_groups(3, [&](group::Group& group, int) {
    StateWorld world(group);
    texts.add(expect_error(DDP_ERROR_IO, [&] { world.save(folder.file("missing/a")); }));
    world.save(folder.file("a"));  // and the group continues
  });
  expect_contains(texts.one(), "save, on rank 0 (");
  expect_contains(texts.one(), "missing/a\": the folder \"" + folder.file("missing") + "\" does not exist; make it first");
}

ddp_case(a_missing_file_is_named_on_every_rank) {
  expect_contains(refused_load(3, "no/such/file", DDP_ERROR_IO), "cannot open \"no/such/file\": there is no such file");
}

ddp_case(ranks_that_pass_other_parts_are_told) {
  const TemporaryFolder folder;
  Texts texts;
  run_groups(3, [&](group::Group& group, int rank) {
    StateWorld world(group);
    const checkpoint::Parts parts{*world.model, rank == 1 ? nullptr : world.optimizer.get()};
    texts.add(
        expect_error(DDP_ERROR_MISMATCH, [&] { checkpoint::save_file("save", parts, {}, folder.file("a"), std::nullopt); }));
  });
  expect_contains(texts.one(), "rank 1 (");
  expect_contains(texts.one(), "passes no optimizer and no averages, but rank 0 passes optimizer plain and no averages");
  expect_equal(folder.names().size(), 0U, "files");
}

ddp_case(ranks_that_registered_other_tensors_are_told) {
  const TemporaryFolder folder;
  Texts texts;
  run_groups(3, [&](group::Group& group, int rank) {
    StateWorld world(group, rank == 2 ? 7 : 6);
    texts.add(expect_error(DDP_ERROR_MISMATCH, [&] { (void)world.load(folder.file("a")); }));
  });
  expect_contains(texts.one(), "rank 2 (");
  expect_contains(texts.one(), "registered \"layer.weight\" F32 [7], but rank 0 registered \"layer.weight\" F32 [6]");
}

ddp_case(a_refusal_of_one_rank_is_everybodys) {
  Texts texts;
  run_groups(3, [&](group::Group& group, int rank) {
    StateWorld world(group);
    std::optional<Error> refusal;
    if (rank == 2) refusal = Error(DDP_ERROR_INVALID_ARGUMENT, "the argument is wrong");
    texts.add(
        expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { (void)checkpoint::load_file("load", world.parts(), "a", refusal); }));
  });
  expect_contains(texts.one(), "load, on rank 2 (");
}

ddp_case(fields_go_back_when_one_rank_cannot_take_them) {
  const TemporaryFolder folder;
  (void)saved_file(folder.file("a"));
  run_groups(3, [&](group::Group& group, int rank) {
    StateWorld world(group);
    world.fill(30 + rank);
    world.optimizer->refuses = rank == 2;
    const std::string before = world.content();
    expect_error(DDP_ERROR_MISMATCH, [&] { (void)world.load(folder.file("a")); }, {"the optimizer refuses"});
    expect(world.content() == before, "something was touched");
  });
}

ddp_ranks_case(run_groups, an_open_pass_refuses_both, 2) {
  StateWorld world(group);
  world.model->commit();
  world.model->begin_backward(DDP_PASS_REDUCE);
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { world.save("a"); });
  (void)expect_error(DDP_ERROR_INVALID_STATE, [&] { (void)world.load("a"); });
  for (int32_t i = 0; i < 2; ++i) world.model->pass().mark_ready(i);
  world.model->end_backward();
}

ddp_ranks_case(run_groups, callbacks_that_fail_or_throw_fail_everywhere, 2) {
  StateWorld world(group);
  const auto save = [&](const checkpoint::PushFn& push) {
    checkpoint::save_stream("save", world.parts(), {}, push, std::nullopt);
  };
  const auto load = [&](const checkpoint::PullFn& pull) {
    (void)checkpoint::load_stream("load", world.parts(), pull, std::nullopt);
  };
  expect_error(DDP_ERROR_CALLBACK, [&] { save([](const void*, int64_t) { return 3; }); }, {"returned 3"});
  const auto number = [](const void*, int64_t) {  // as the C boundary calls the program's function
    return call_program("the writer", []() -> int32_t { throw 1; });
  };
  expect_error(DDP_ERROR_CALLBACK, [&] { save(number); }, {"the writer threw an exception"});
  expect_error(DDP_ERROR_CALLBACK, [&] { load([](void*, int64_t) { return int64_t{-1}; }); }, {"returned -1"});
  expect_error(DDP_ERROR_IO, [&] { load([](void*, int64_t) { return int64_t{0}; }); }, {"too short"});
}

// Another program writes into the file, after it was verified and before it is read into place.
ddp_case(a_file_that_changes_while_it_is_read_is_noticed) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  std::string bytes = saved_file(path);
  bytes.back() = static_cast<char>(bytes.back() + 1);
  const int64_t reads_to_verify = 2 + 5;  // length, header, five tensors that have bytes
  const auto overwrite = [&] { std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << bytes; };
  const FileFaults faults({.at = reads_to_verify + 1, .only = "read", .before = overwrite});
  Texts texts;
  run_groups(2, [&](group::Group& group, int) {
    StateWorld world(group);
    texts.add(expect_error(DDP_ERROR_IO, [&] { (void)world.load(path); }));
  });
  expect_contains(texts.one(), "changed while it was read; the model is partly overwritten, so load again");
}

// Each call in turn: the other rank gets the error, the former file stays whole, a failed load touches nothing or reports
// that it did, and the next save and load work.
ddp_case(after_any_failed_call_both_ranks_know_and_go_on) {
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
      run_groups(2, [&](group::Group& group, int rank) {
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
        if (text.empty())
          expect(world.content() == (saved ? of_two : of_one), "the former or the new state, whole");
        else if (text.find("partly overwritten") == std::string::npos)
          expect(world.content() == before, "something was touched");
        const std::lock_guard lock(mutex);
        if (rank == 0) calls = faults->calls();
        saves_failed += save_text.empty() ? 0 : 1;
        loads_failed += text.empty() ? 0 : 1;
      });
      faults.reset();
      run_groups(2, [&](group::Group& group, int) {
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
