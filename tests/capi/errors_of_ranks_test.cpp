// SPDX-License-Identifier: Apache-2.0
// What an error is about, as numbers (ddp_get_error_details), on every transport: the same on all ranks.

#include "support/check.hpp"
#include "support/group_paths.hpp"
#include "support/public_api.hpp"

/// What the last error of this thread is about, in one line.
std::string last_error() {
  ddp_error_details details{};
  details.struct_size = sizeof details;
  OK(ddp_get_error_details(&details));
  const auto list = [](ddp_status (*get)(int32_t*, int32_t, int32_t*), int32_t expected) {
    int32_t numbers[DDP_MAX_ERROR_LIST], count = -1;
    OK(get(numbers, DDP_MAX_ERROR_LIST, &count));
    expect_equal(count, expected, "the count of the list is that of the details");
    std::string text;
    for (int32_t at = 0; at < std::min(count, DDP_MAX_ERROR_LIST); ++at)
      text += (at > 0 ? "," : "") + std::to_string(numbers[at]);
    return text;
  };
  std::string text = std::string(ddp_status_name(details.status)).substr(std::string("DDP_ERROR_").size());
  text += " ranks " + list(ddp_get_error_ranks, details.rank_count);
  if (details.parameter_count > 0) text += " parameters " + list(ddp_get_error_parameters, details.parameter_count);
  text += std::string(" in ") + ddp_call_name(details.call);
  if (details.other_call != 0) text += std::string(" and ") + ddp_call_name(details.other_call);
  if (details.bytes_expected >= 0)
    text += " bytes " + std::to_string(details.bytes_expected) + " " + std::to_string(details.bytes_got);
  return text;
}

/// Fails unless the call fails with these numbers.
#define ABOUT(wanted, call)                                            \
  do {                                                                 \
    expect((call) != DDP_OK, #call " fails");                          \
    expect_equal(last_error(), std::string(wanted), ddp_last_error()); \
  } while (false)

struct Trainee : NotCopied {
  ddp_model* model = nullptr;
  std::vector<std::vector<float>> values, grads;

  Trainee(ddp_group* group, const std::vector<int64_t>& sizes, int64_t check_every = 0) {
    auto options = defaults<ddp_model_options>();
    options.check_every = check_every;
    options.bucket_bytes = options.first_bucket_bytes = 64;  // several buckets
    OK(ddp_model_create(group, &options, &model));
    for (const int64_t size : sizes) {
      values.emplace_back(static_cast<size_t>(size), 1.0F);
      grads.emplace_back(static_cast<size_t>(size));
    }
    for (size_t at = 0; at < sizes.size(); ++at)
      OK(ddp_model_add_array(model, ("p" + std::to_string(at)).c_str(), values[at].data(), grads[at].data(), sizes[at],
                             nullptr));
  }
  ~Trainee() { ddp_model_destroy(model); }

  ddp_status pass(const std::vector<int32_t>& left_out = {}) {
    OK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    for (auto index = static_cast<int32_t>(values.size()); index-- > 0;)
      if (std::find(left_out.begin(), left_out.end(), index) == left_out.end())
        OK(ddp_model_mark_ready(model, index, nullptr));
    return ddp_model_end_backward(model, nullptr);
  }
};

using Body = void (*)(ddp_group* group, int rank);

void run(Path path, int size, Body body, int64_t timeout_ms = 20'000) {
  run_at(path, size, [&](const std::string& place, const ddp_group_options& inside, int rank) {
    ddp_group_options options = patient_options(rank, size);
    options.backend = inside.backend;
    options.timeout_ms = timeout_ms;
    ddp_group* const group = create_group(place, options);
    body(group, rank);
    ddp_group_destroy(group);
  });
}

ddp_case_on(kEveryHostPath, parameters_that_were_not_marked) {
  run(path, 4, [](ddp_group* group, int rank) {
    Trainee trainee(group, std::vector<int64_t>(200, 8));
    OK(ddp_model_commit(trainee.model, nullptr));
    const std::vector<int32_t> left_out = rank == 1   ? std::vector<int32_t>{7, 150}
                                          : rank == 3 ? std::vector<int32_t>{3, 7}
                                                      : std::vector<int32_t>{};
    ABOUT("INVALID_STATE ranks 1,3 parameters 3,7,150 in ddp_model_end_backward", trainee.pass(left_out));
    OK(trainee.pass());

    // More than the list has room for: the count is that of all.
    std::vector<int32_t> all(200);
    for (int32_t at = 0; at < 200; ++at) all[static_cast<size_t>(at)] = at;
    expect(trainee.pass(rank == 0 ? all : std::vector<int32_t>{}) == DDP_ERROR_INVALID_STATE, "nothing was marked");
    int32_t few[2] = {-1, -1}, count = 0;
    OK(ddp_get_error_parameters(few, 2, &count));
    expect(count == 200 && few[0] == 0 && few[1] == 1, "200 in all");
    OK(ddp_get_error_parameters(all.data(), 200, &count));
    expect(all[127] == 127, "of which 128 are listed");

    OK(ddp_model_begin_backward(trainee.model, DDP_PASS_REDUCE));
    if (rank == 2) {
      OK(ddp_model_abandon_backward(trainee.model, "no memory", nullptr));
    } else {
      for (int32_t at = 0; at < 200; ++at) OK(ddp_model_mark_ready(trainee.model, at, nullptr));
      ABOUT("INVALID_STATE ranks 2 in ddp_model_end_backward", ddp_model_end_backward(trainee.model, nullptr));
    }
    OK(ddp_group_barrier(group));
  });
}

ddp_case_on(kEveryHostPath, replicas_that_drift) {
  run(path, 4, [](ddp_group* group, int rank) {
    Trainee trainee(group, {4, 4, 4}, 2);
    OK(ddp_model_commit(trainee.model, nullptr));
    if (rank == 2) trainee.values[0][3] = trainee.values[2][1] = 9;
    ABOUT("MISMATCH ranks 2 parameters 0,2 in ddp_model_check_replicas", ddp_model_check_replicas(trainee.model, nullptr));
    OK(trainee.pass());
    ABOUT("MISMATCH ranks 2 parameters 0,2 in ddp_model_end_backward", trainee.pass());
    OK(ddp_group_barrier(group));
  });
}

ddp_case_on(kEveryHostPath, models_that_differ) {
  run(path, 4, [](ddp_group* group, int rank) {
    {
      const Trainee trainee(group, {4, rank == 1 ? 6 : 5, 4});
      ABOUT("MISMATCH ranks 1 parameters 1 in ddp_model_commit bytes 20 24", ddp_model_commit(trainee.model, nullptr));
    }
    const Trainee trainee(group, {4}, rank < 2 ? 0 : 5);
    ABOUT("MISMATCH ranks 2,3 in ddp_model_commit", ddp_model_commit(trainee.model, nullptr));
    OK(ddp_group_barrier(group));
  });
}

ddp_case_on(kEveryHostPath, different_calls) {
  run(path, 2, [](ddp_group* group, int rank) {
    double numbers[2] = {};
    ABOUT("DIFFERENT_CALLS ranks 0,1 in ddp_group_reduce_metrics and ddp_group_barrier",
          rank == 0 ? ddp_group_reduce_metrics(group, numbers, 2, DDP_SUM) : ddp_group_barrier(group));
    ABOUT("DIFFERENT_CALLS ranks 0,1 in ddp_group_reduce_metrics and ddp_group_barrier", ddp_group_status(group));
  });
  run(path, 2, [](ddp_group* group, int rank) {
    float data[5] = {};
    const ddp_tensor tensor{data, DDP_F32, DDP_CPU, 0, 1, {rank == 0 ? 4 : 5}};
    ABOUT("DIFFERENT_CALLS ranks 0,1 in ddp_group_all_reduce and ddp_group_all_reduce bytes 16 20",
          ddp_group_all_reduce(group, &tensor, DDP_SUM, nullptr));
  });
  run(path, 2, [](ddp_group* group, int rank) {
    const Trainee trainee(group, {4});
    ABOUT("DIFFERENT_CALLS ranks 0,1 in ddp_model_commit and ddp_group_barrier",
          rank == 0 ? ddp_model_commit(trainee.model, nullptr) : ddp_group_barrier(group));
  });
}

ddp_case_on(kEveryHostPath, messages_of_another_size) {
  run(path, 2, [](ddp_group* group, int rank) {
    float data[8] = {};
    const ddp_tensor tensor{data, DDP_F32, DDP_CPU, 0, 1, {rank == 0 ? 8 : 6}};
    if (rank == 0) {
      (void)ddp_group_send(group, &tensor, 1, 5, nullptr);  // may have returned before the receive
    } else {
      ABOUT("MISMATCH ranks 0 in ddp_group_receive bytes 24 32", ddp_group_receive(group, &tensor, 0, 5, nullptr, nullptr));
    }
    const int64_t counts[2] = {rank == 0 ? 4 : 2, 4}, expected[2] = {4, 4};
    float out[8] = {};
    const ddp_tensor from{data, DDP_F32, DDP_CPU, 0, 1, {counts[0] + counts[1]}}, to{out, DDP_F32, DDP_CPU, 0, 1, {8}};
    ABOUT("MISMATCH ranks 0,1 in ddp_group_all_to_all bytes 16 8",
          ddp_group_all_to_all(group, &from, &to, counts, expected, nullptr));
    OK(ddp_group_barrier(group));
  });
}

ddp_case_on(kEveryHostPath, counts_of_which_several_ranks_have_others) {
  run(path, 4, [](ddp_group* group, int rank) {
    float data[8] = {}, out[8] = {};
    const int64_t counts[4] = {rank == 1 ? 1 : 2, rank == 1 ? 3 : 2, rank == 3 ? 1 : 2, rank == 3 ? 3 : 2};
    const ddp_tensor from{data, DDP_F32, DDP_CPU, 0, 1, {counts[rank]}}, to{out, DDP_F32, DDP_CPU, 0, 1, {8}};
    ABOUT("MISMATCH ranks 1,3 in ddp_group_all_gather_counts",
          ddp_group_all_gather_counts(group, &from, &to, counts, nullptr));
    OK(ddp_group_barrier(group));
  });
}

int32_t reduce_by_rank(void*, ddp_bucket* bucket) {
  ddp_group* group = nullptr;
  ddp_tensor contents{};
  OK(ddp_bucket_get_group(bucket, &group));
  OK(ddp_bucket_get_contents(bucket, &contents));
  if (ddp_group_get_rank(group) > 1) contents.shape[0] = 1;
  return ddp_group_all_reduce(group, &contents, DDP_AVERAGE, nullptr);
}

ddp_case_on(kEveryHostPath, hooks_that_do_other_things) {
  run(path, 4, [](ddp_group* group, int) {
    const Trainee trainee(group, {4});
    OK(ddp_model_set_hook(trainee.model, reduce_by_rank, nullptr, nullptr));
    OK(ddp_model_commit(trainee.model, nullptr));
    OK(ddp_model_begin_backward(trainee.model, DDP_PASS_REDUCE));
    OK(ddp_model_mark_ready(trainee.model, 0, nullptr));
    ABOUT("MISMATCH ranks 2,3 in ddp_model_end_backward", ddp_model_end_backward(trainee.model, nullptr));
    OK(ddp_group_barrier(group));
  });
}

ddp_case_on(kEveryHostPath, a_rank_that_aborts) {
  run(path, 3, [](ddp_group* group, int rank) {
    (void)ddp_group_barrier(group);  // all are there; rank 1 may be the first to return
    if (rank == 1) OK(ddp_group_abort(group, "it has seen enough"));
    ABOUT("ABORTED ranks 1 in ddp_group_barrier", ddp_group_barrier(group));
    ABOUT("ABORTED ranks 1 in ", ddp_group_status(group));
  });
  run(path, 3, [](ddp_group* group, int rank) {
    Trainee trainee(group, {4});
    OK(ddp_model_commit(trainee.model, nullptr));
    (void)ddp_group_barrier(group);
    if (rank == 1) {
      OK(ddp_model_begin_backward(trainee.model, DDP_PASS_REDUCE));
      ddp_model_destroy(trainee.model);
    }
    while (ddp_group_status(group) == DDP_OK) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ABOUT("ABORTED ranks 1 in ", ddp_group_status(group));
  });
}

ddp_case_on(kEveryHostPath, a_rank_that_is_late) {
  run(
      path, 3,
      [](ddp_group* group, int rank) {
        if (rank == 1)
          while (ddp_group_status(group) == DDP_OK) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        else
          expect(ddp_group_barrier(group) == DDP_ERROR_TIMED_OUT, ddp_last_error());
        int32_t late = -1, count = 0;
        expect(ddp_group_status(group) == DDP_ERROR_TIMED_OUT, ddp_last_error());
        OK(ddp_get_error_ranks(&late, 1, &count));
        expect(count == 1 && late == 1, "rank 1 is late: " + last_error());
      },
      2'000);
}

ddp_case_on(kEveryHostPath, a_rank_that_leaves) {
  run(path, 3, [](ddp_group* group, int rank) {
    if (rank == 2) return;
    ABOUT("ABORTED ranks 2 in ddp_group_barrier", ddp_group_barrier(group));
  });
}

/// Killed where ranks are processes.
ddp_case_on(kEveryHostPath, a_rank_that_dies) {
  if (path == Path::kLocal) return;
  const Folder folder;
  Procs procs(3, [&](int rank, Reporter& report) {
    if (path == Path::kHosts) setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
    ddp_group_options options = patient_options(rank, 3);
    options.backend = path == Path::kShm ? DDP_BACKEND_SHM : path == Path::kGloo ? DDP_BACKEND_GLOO : DDP_BACKEND_AUTO;
    ddp_group* const group = create_group("file://" + folder.path() + "/meet", options);
    OK(ddp_group_barrier(group));
    report.say("works");
    if (rank == 1) pause();
    ABOUT("PEER_FAILED ranks 1 in ddp_group_barrier", ddp_group_barrier(group));
    ddp_group_destroy(group);
  });
  for (int rank = 0; rank < 3; ++rank) procs.wait_for(rank, "works");
  procs.signal(1, SIGKILL);
  int rank = 0;
  for (const ProcResult& result : procs.wait()) expect(rank++ == 1 || result.exit_code == 0, result.describe());
}
