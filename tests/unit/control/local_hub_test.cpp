// SPDX-License-Identifier: Apache-2.0
// The control plane of ranks that are threads, and of a group of one.
#include "control/local_hub.hpp"

#include <future>

#include "control/limits.hpp"
#include "control/solo.hpp"
#include "support/check.hpp"
#include "support/ranks.hpp"

using ddp::bootstrap::Control;
using ddp::os::Deadline;

constexpr int64_t kLimitMs = 20'000;

std::unique_ptr<Control> join(const std::string& name, int rank, int size, int64_t limit_ms = kLimitMs) {
  return ddp::bootstrap::join_local_hub(name, rank, size, Deadline::in_ms(limit_ms), limit_ms);
}

Deadline soon() { return Deadline::in_ms(kLimitMs); }

// The first cause as the callback got it.
class Heard {
 public:
  explicit Heard(Control& control) : state_(std::make_shared<State>()) {
    control.on_failure([state = state_](const Error& cause) {  // may still run after this object's end
      ++state->calls;
      state->promise.set_value(cause);
    });
  }
  Error wait() {
    auto future = state_->promise.get_future();
    if (future.wait_for(std::chrono::milliseconds(kLimitMs)) != std::future_status::ready)
      throw std::runtime_error("the failure callback did not come");
    return future.get();
  }
  int calls() const { return state_->calls; }

 private:
  struct State {
    std::atomic<int> calls{0};
    std::promise<Error> promise;
  };
  std::shared_ptr<State> state_;
};

ddp_case(every_rank_gets_all_blobs_in_rank_order) {
  for (const int size : {2, 3, 5, 8}) {
    run_ranks(size, [&](int rank) {
      const auto control = join("gather", rank, size);
      for (int round = 0; round < 50; ++round) {
        const auto all = control->gather("round", std::to_string(round * 100 + rank), soon());
        expect_equal(all.size(), static_cast<size_t>(size), "number of blobs");
        for (int r = 0; r < size; ++r) expect_equal(all[static_cast<size_t>(r)], std::to_string(round * 100 + r), "blob");
      }
    });
  }
}

ddp_case(a_name_can_be_used_again_while_the_first_group_lives) {
  run_ranks(2, [](int rank) {
    const auto first = join("again", rank, 2);
    const auto second = join("again", rank, 2);
    const auto from_second = second->gather("x", "second", soon());
    const auto from_first = first->gather("x", "first", soon());
    expect_equal(from_first[static_cast<size_t>(1 - rank)], std::string("first"), "first group");
    expect_equal(from_second[static_cast<size_t>(1 - rank)], std::string("second"), "second group");
  });
}

ddp_case(a_rank_that_never_comes_is_named) {
  const auto text = expect_error(DDP_ERROR_TIMED_OUT, [] { static_cast<void>(join("lonely", 1, 3, 50)); });
  expect_equal(text, std::string("ranks 0 and 2 of 3 did not come within 0.05 s"), "text");
}

ddp_case(a_name_works_after_a_time_out) {
  static_cast<void>(expect_error(DDP_ERROR_TIMED_OUT, [] { static_cast<void>(join("retry", 0, 2, 20)); }));
  run_ranks(2, [](int rank) { expect_equal(join("retry", rank, 2)->size(), 2, "size"); });
}

ddp_case(a_rank_twice_is_refused_and_the_others_form_their_group) {
  std::atomic<int> refused{0};
  run_ranks(2, [&](int) {
    try {
      expect_equal(join("twice", 0, 2)->rank(), 0, "rank");  // both threads say that they are rank 0
    } catch (const Error& error) {
      expect_equal(static_cast<int>(error.status()), static_cast<int>(DDP_ERROR_INVALID_ARGUMENT), "status");
      expect_contains(error.text(), "rank 0 is taken: rank 0 (host ");
      ++refused;
      expect_equal(join("twice", 1, 2)->rank(), 1, "rank");  // the other one still waits
    }
  });
  expect_equal(refused.load(), 1, "refused");
}

ddp_case(another_world_size_is_refused_with_both_values) {
  std::atomic<int> refused{0};
  run_ranks(2, [&](int rank) {
    const std::array sizes = {2, 3};
    const auto mine = static_cast<size_t>(rank);
    const size_t other = 1 - mine;
    try {
      static_cast<void>(join("sizes", rank, sizes[mine], 2'000));
      return;
    } catch (const Error& error) {
      expect_equal(static_cast<int>(error.status()), static_cast<int>(DDP_ERROR_MISMATCH), "status");
      expect_equal(error.text(),
                   "rank " + std::to_string(rank) + " was started with a world size of " + std::to_string(sizes[mine]) +
                       ", but rank " + std::to_string(other) + " with " + std::to_string(sizes[other]),
                   "text");
      ++refused;
    }
    // Complete the other's group.
    run_ranks(sizes[other] - 1, [&](int i) {
      const int missing = rank == 0 ? 2 * i : 1;
      expect_equal(join("sizes", missing, sizes[other])->size(), sizes[other], "size");
    });
  });
  expect_equal(refused.load(), 1, "refused");
}

ddp_case(a_rank_out_of_range_is_refused) {
  const auto text = expect_error(DDP_ERROR_INVALID_ARGUMENT, [] { static_cast<void>(join("range", 4, 4)); });
  expect_equal(text, std::string("rank 4 is out of range: the group has 4 ranks, 0 to 3"), "text");
}

ddp_case(abort_reaches_all_with_status_and_text) {
  run_ranks(4, [](int rank) {
    const auto control = join("abort", rank, 4);
    Heard heard(*control);
    static_cast<void>(control->gather("ready", "", soon()));
    if (rank == 2) {
      control->abort(Error(DDP_ERROR_CALLBACK, "the hook said no"));
      return;
    }
    const Error cause = heard.wait();
    expect_equal(static_cast<int>(cause.status()), static_cast<int>(DDP_ERROR_CALLBACK), "status");
    expect_equal(cause.text(), std::string("the hook said no"), "text");
    const auto text = expect_error(DDP_ERROR_CALLBACK, [&] { static_cast<void>(control->gather("x", "", soon())); });
    expect_equal(text, cause.text(), "text of a later gather");
  });
}

ddp_case(a_blocked_gather_ends_with_the_first_cause) {
  run_ranks(3, [](int rank) {
    const auto control = join("blocked", rank, 3);
    if (rank == 0) {
      control->abort(Error(DDP_ERROR_ABORTED, "enough"));
    } else {
      const auto text = expect_error(DDP_ERROR_ABORTED, [&] { static_cast<void>(control->gather("x", "", soon())); });
      expect_equal(text, std::string("enough"), "text");
    }
  });
}

ddp_case(leaving_is_told_as_leaving_and_vanishing_as_vanishing) {
  for (const bool says_goodbye : {true, false}) {
    run_ranks(2, [&](int rank) {
      auto control = join("leave", rank, 2);
      Heard heard(*control);
      static_cast<void>(control->gather("ready", "", soon()));
      if (rank == 1) {
        if (says_goodbye) control->leave();
        control.reset();
        return;
      }
      const Error cause = heard.wait();
      expect_equal(static_cast<int>(cause.status()),
                   static_cast<int>(says_goodbye ? DDP_ERROR_ABORTED : DDP_ERROR_PEER_FAILED), "status");
      const std::string how = says_goodbye ? " left the group" : " is gone: its connection closed without a goodbye";
      expect_equal(cause.text(), control->member(1).name() + how, "text");
    });
  }
}

ddp_case(the_last_answer_is_heard_before_the_goodbye) {
  for (int round = 0; round < 200; ++round) {
    run_ranks(2, [](int rank) {
      const auto control = join("last word", rank, 2);
      expect_equal(control->gather("last", "word", soon())[static_cast<size_t>(1 - rank)], std::string("word"), "blob");
      control->leave();
    });
  }
}

ddp_case(a_callback_set_after_the_failure_is_called_at_once) {
  run_ranks(2, [](int rank) {
    const auto control = join("late callback", rank, 2);
    if (rank == 1) {
      control->abort(Error(DDP_ERROR_ABORTED, "early"));
      return;
    }
    static_cast<void>(expect_error(DDP_ERROR_ABORTED, [&] { static_cast<void>(control->gather("x", "", soon())); }));
    int calls = 0;
    control->on_failure([&](const Error&) { ++calls; });
    expect_equal(calls, 1, "calls");
  });
}

ddp_case(a_gather_that_takes_too_long_names_who_is_missing_everywhere) {
  std::promise<void> over;
  auto done = over.get_future().share();
  run_ranks(3, [&](int rank) {
    const auto control = join("slow", rank, 3);
    Heard heard(*control);
    if (rank == 2) {
      control->set_progress(17, 2);
      const Error cause = heard.wait();
      expect_equal(static_cast<int>(cause.status()), static_cast<int>(DDP_ERROR_TIMED_OUT), "status");
      expect_contains(cause.text(), control->member(2).name() + " did not join \"plan\" within 0.1 s: last heard ");
      expect_contains(cause.text(), "in pass 17, bucket 2");
      done.wait();
      return;
    }
    const auto text =
        expect_error(DDP_ERROR_TIMED_OUT, [&] { static_cast<void>(control->gather("plan", "", Deadline::in_ms(100))); });
    expect_contains(text, "rank 2 ");
    expect_contains(text, " did not join \"plan\"");
    if (rank == 0)
      over.set_value();
    else
      done.wait();
  });
}

ddp_case(a_blob_over_the_limit_is_refused) {
  run_ranks(2, [](int rank) {
    const auto control = join("large", rank, 2);
    const std::string large(ddp::bootstrap::limits::kBlobBytes + 1, 'x');
    static_cast<void>(
        expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { static_cast<void>(control->gather("large", large, soon())); }));
    const std::string fits(ddp::bootstrap::limits::kBlobBytes, 'x');
    expect(control->gather("large", fits, soon())[0] == fits, "8 MiB come through");
  });
}

ddp_case(after_leaving_a_gather_is_the_wrong_state) {
  run_ranks(2, [](int rank) {
    const auto control = join("left", rank, 2);
    control->leave();
    control->leave();
    static_cast<void>(expect_error(DDP_ERROR_INVALID_STATE, [&] { static_cast<void>(control->gather("x", "", soon())); }));
  });
}

ddp_case(a_group_of_one_needs_nobody) {
  const auto control = ddp::bootstrap::make_solo_control();
  expect_equal(control->size(), 1, "size");
  expect(control->gather("x", "mine", soon()) == std::vector<std::string>{"mine"}, "own blob");
  expect_equal(control->member(0).address, std::string("127.0.0.1"), "address");
  control->leave();
  static_cast<void>(expect_error(DDP_ERROR_INVALID_STATE, [&] { static_cast<void>(control->gather("x", "", soon())); }));
}
