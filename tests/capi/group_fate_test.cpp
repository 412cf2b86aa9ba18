// SPDX-License-Identifier: Apache-2.0
// One rule for the fate of a group: ddp_group_status returns whether it is broken. Each way in which a call of several ranks
// can fail is tried on one group; afterwards the group is whole, or it is broken with the status of the call, repeats it in
// the next call, and is whole again after ddp_group_recover.

#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/public_api.hpp"

/// A model of its own for each way, so that nothing is left of the way before.
struct Trainee : NotCopied {
  ddp_group* group;
  int rank;
  std::string folder;
  ddp_model* model = nullptr;
  ddp_optimizer* optimizer = nullptr;
  float value[4] = {1, 2, 3, 4}, grad[4] = {}, buffer[4] = {};
  double numbers[2] = {1, 2};

  Trainee(ddp_group* of, int index, std::string place) : group(of), rank(index), folder(std::move(place)) {}
  ~Trainee() {
    ddp_optimizer_destroy(optimizer);
    ddp_model_destroy(model);
  }
  [[nodiscard]] bool is_odd() const { return rank == 1; }
  [[nodiscard]] ddp_tensor tensor(int64_t count) { return {buffer, DDP_F32, DDP_CPU, 0, 1, {count}}; }

  ddp_status commit(int64_t count = 4, int64_t check_every = 0) {
    auto options = defaults<ddp_model_options>();
    options.check_every = check_every;
    OK(ddp_model_create(group, &options, &model));
    OK(ddp_model_add_array(model, "w", value, grad, count, nullptr));
    return ddp_model_commit(model, nullptr);
  }
  ddp_status pass(bool marks = true) {
    OK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    if (marks) OK(ddp_model_mark_ready(model, 0, nullptr));
    return ddp_model_end_backward(model, nullptr);
  }
  ddp_status step(ddp_update_fn rule) {
    auto shared = defaults<ddp_optimizer_options>();
    shared.shard = 1;
    OK(ddp_optimizer_create_custom(model, nullptr, &shared, nullptr, rule, nullptr, nullptr, &optimizer));
    OK(pass());
    return ddp_optimizer_step(optimizer, nullptr);
  }
  [[nodiscard]] ddp_state state() const {
    auto made = defaults<ddp_state>();
    made.model = model;
    return made;
  }
};

int32_t fail(void*, const ddp_update_slice*) { return 7; }

struct Way {
  const char* name;
  ddp_status wanted;
  ddp_status (*make)(Trainee& trainee);
};

const std::vector<Way> ways = {
    {"other models", DDP_ERROR_MISMATCH, [](Trainee& t) { return t.commit(t.is_odd() ? 3 : 4); }},
    {"other values", DDP_ERROR_MISMATCH,
     [](Trainee& t) {
       OK(t.commit());
       t.value[0] = static_cast<float>(t.rank);
       return ddp_model_check_replicas(t.model, nullptr);
     }},
    {"other values after a pass", DDP_ERROR_MISMATCH,
     [](Trainee& t) {
       OK(t.commit(4, 1));
       t.value[0] = static_cast<float>(t.rank);
       return t.pass();
     }},
    {"other options of a sub-group", DDP_ERROR_MISMATCH,
     [](Trainee& t) {
       ddp_group* part = nullptr;
       auto options = defaults<ddp_group_options>();
       options.backend = t.is_odd() ? DDP_BACKEND_GLOO : DDP_BACKEND_AUTO;
       return ddp_group_split(t.group, 0, 0, &options, &part);
     }},
    {"rows of another width", DDP_ERROR_MISMATCH,
     [](Trainee& t) {
       int64_t index = 0, count = 0;
       const ddp_tensor indices{&index, DDP_I64, DDP_CPU, 0, 1, {1}};
       const ddp_tensor rows{t.buffer, DDP_F32, DDP_CPU, 0, 2, {1, t.is_odd() ? 2 : 3}};
       return ddp_group_all_reduce_rows(t.group, &indices, &rows, DDP_SUM, &count, nullptr);
     }},
    {"a file of another model", DDP_ERROR_MISMATCH,
     [](Trainee& t) {
       OK(t.commit(3));
       const ddp_state saved = t.state();
       OK(ddp_state_save_file(&saved, (t.folder + "/three").c_str()));
       ddp_model_destroy(t.model);
       OK(t.commit(4));
       const ddp_state loaded = t.state();
       return ddp_state_load_file(&loaded, (t.folder + "/three").c_str(), nullptr, nullptr);
     }},
    {"no file", DDP_ERROR_IO,
     [](Trainee& t) {
       OK(t.commit());
       const ddp_state loaded = t.state();
       return ddp_state_load_file(&loaded, (t.folder + "/none").c_str(), nullptr, nullptr);
     }},
    {"no checkpoint", DDP_ERROR_NO_CHECKPOINT,
     [](Trainee& t) {
       OK(t.commit());
       const ddp_state loaded = t.state();
       return ddp_state_load_latest(&loaded, t.folder.c_str(), nullptr, nullptr);
     }},
    {"a gradient is missing", DDP_ERROR_INVALID_STATE,
     [](Trainee& t) {
       OK(t.commit());
       return t.pass(!t.is_odd());
     }},
    {"a rule fails", DDP_ERROR_CALLBACK,
     [](Trainee& t) {
       OK(t.commit());
       return t.step(t.is_odd() ? fail : [](void*, const ddp_update_slice*) { return 0; });
     }},
    {"a wrong argument", DDP_ERROR_INVALID_ARGUMENT,
     [](Trainee& t) {
       const ddp_tensor tensor = t.tensor(-1);
       return ddp_group_all_reduce(t.group, &tensor, DDP_SUM, nullptr);
     }},
    {"other calls", DDP_ERROR_DIFFERENT_CALLS,
     [](Trainee& t) {
       return t.is_odd() ? ddp_group_barrier(t.group) : ddp_group_reduce_metrics(t.group, t.numbers, 2, DDP_SUM);
     }},
    {"other sizes", DDP_ERROR_DIFFERENT_CALLS,
     [](Trainee& t) {
       const ddp_tensor tensor = t.tensor(t.is_odd() ? 3 : 4);
       return ddp_group_all_reduce(t.group, &tensor, DDP_SUM, nullptr);
     }},
    {"a commit and a barrier", DDP_ERROR_DIFFERENT_CALLS,
     [](Trainee& t) { return t.is_odd() ? ddp_group_barrier(t.group) : t.commit(); }},
    {"a pass and a save", DDP_ERROR_DIFFERENT_CALLS,
     [](Trainee& t) {
       OK(t.commit());
       const ddp_state saved = t.state();
       return t.is_odd() ? t.pass() : ddp_state_save_file(&saved, (t.folder + "/file").c_str());
     }},
    {"an average and a check", DDP_ERROR_DIFFERENT_CALLS,
     [](Trainee& t) {
       OK(t.commit());
       return t.is_odd() ? ddp_model_average_parameters(t.model, nullptr) : ddp_model_check_replicas(t.model, nullptr);
     }},
    {"an abort", DDP_ERROR_ABORTED,
     [](Trainee& t) {
       if (t.is_odd()) OK(ddp_group_abort(t.group, "the loss is not a number"));
       return ddp_group_barrier(t.group);
     }},
};

/// The statuses that break a group, as ddp/types.h lists them.
bool always_breaks(ddp_status status) { return (status >= 5 && status <= 7) || status == 16; }

void try_way(const Way& way, Trainee& t) {
  const auto name = [](ddp_status status) { return std::string(ddp_status_name(status)); };
  const ddp_status got = way.make(t);
  const std::string text = got == DDP_OK ? "" : ddp_last_error();
  expect_equal(name(got), name(way.wanted), std::string(way.name) + ": " + text);
  const ddp_status fate = ddp_group_status(t.group);
  expect_equal(name(fate), name(always_breaks(way.wanted) ? way.wanted : DDP_OK), std::string(way.name) + ", the group");
  if (fate == DDP_OK) {
    const ddp_status next = ddp_group_recover(t.group, nullptr, nullptr);
    expect_equal(name(next), name(DDP_ERROR_INVALID_STATE), std::string(way.name) + ": a whole group is not recovered");
  } else {
    expect_equal(std::string(ddp_last_error()), text, std::string(way.name) + ": one cause");
    expect_equal(name(ddp_group_barrier(t.group)), name(fate), std::string(way.name) + ": the next call");
    OK(ddp_group_recover(t.group, nullptr, nullptr));
  }
  OK(ddp_group_status(t.group));
  double number = 1;
  OK(ddp_group_reduce_metrics(t.group, &number, 1, DDP_SUM));
  expect_equal(number, 2.0, std::string(way.name) + ": the group goes on");
}

ddp_case(the_group_status_is_the_only_rule) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    ddp_group_options options = patient_options(rank, 2);
    options.recoverable = 1;
    ddp_group* const group = create_group("file://" + folder.path() + "/meet", options);
    for (const Way& way : ways) {
      Trainee trainee(group, rank, folder.path());
      try_way(way, trainee);
    }
    ddp_group_destroy(group);
  });
  expect_success(procs, 60'000);
}

/// A rank that is late: TIMED_OUT on both, and both continue together.
ddp_case(a_late_rank_breaks_it_too) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    ddp_group_options options = patient_options(rank, 2);
    options.recoverable = 1;
    options.timeout_ms = 300;
    ddp_group* const group = create_group("file://" + folder.path() + "/meet", options);
    if (rank == 1)
      while (ddp_group_status(group) == DDP_OK) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    expect_equal(std::string(ddp_status_name(ddp_group_barrier(group))), "DDP_ERROR_TIMED_OUT", "the call");
    expect_equal(std::string(ddp_status_name(ddp_group_status(group))), "DDP_ERROR_TIMED_OUT", "the group");
    OK(ddp_group_recover(group, nullptr, nullptr));
    OK(ddp_group_barrier(group));
    ddp_group_destroy(group);
  });
  expect_success(procs, 60'000);
}
