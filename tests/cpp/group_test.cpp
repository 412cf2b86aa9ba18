// SPDX-License-Identifier: Apache-2.0
// <ddp/ddp.hpp>: groups, tensors, errors, memory, the log.
#include <array>
#include <complex>
#include <numeric>

#include "ranks.hpp"

namespace {

void a_tensor_knows_its_type_and_shape() {
  std::vector<float> vector(6);
  std::array<double, 3> array{};
  std::int64_t raw[4] = {};
  std::complex<float> complex[2] = {};
  std::uint8_t bytes[6] = {};
  const ddp::Tensor flat(vector);
  REQUIRE(flat.dtype == DDP_F32 && flat.ndim == 1 && flat.shape[0] == 6 && flat.data == vector.data() &&
          flat.device == DDP_CPU);
  REQUIRE(ddp::Tensor(array).dtype == DDP_F64 && ddp::Tensor(array).count() == 3);
  REQUIRE(ddp::Tensor(raw).dtype == DDP_I64 && ddp::Tensor(complex).dtype == DDP_C64);
  const ddp::Tensor matrix(vector.data(), {2, 3});
  REQUIRE(matrix.ndim == 2 && matrix.shape[0] == 2 && matrix.shape[1] == 3 && matrix.count() == 6);
  REQUIRE(flat.reshaped({3, 2, 1}).ndim == 3 && flat.reshaped({3, 2, 1}).data == vector.data());
  REQUIRE(error_of([&] { (void)flat.reshaped({5}); }).status() == DDP_ERROR_INVALID_ARGUMENT);
  REQUIRE(ddp::Tensor(bytes, DDP_BF16, {3}).dtype == DDP_BF16);
  REQUIRE(ddp::Tensor(vector.data(), {}).count() == 1);
  REQUIRE(flat.span<float>().size() == 6 && flat.span<const float>().data() == vector.data());
  REQUIRE(error_of([&] { (void)flat.span<double>(); }).status() == DDP_ERROR_INVALID_ARGUMENT);
  REQUIRE(error_of([] { ddp::Tensor(nullptr, DDP_F32, {-1}); }).status() == DDP_ERROR_INVALID_ARGUMENT);
}

void numbers_of_the_program_are_checked() {
  on_ranks(2, "cpp_log", [](ddp::Group& group) {
    group.log_metric("cpp/loss", 0.5);
    REQUIRE(error_of([&] { group.log_metric("my loss", 0.5); }).status() == DDP_ERROR_INVALID_ARGUMENT);
  });
}

void what_is_posted_ends_by_itself() {
  on_ranks(3, "cpp_posted", [](ddp::Group& group) {
    const std::int32_t rank = group.rank();
    const std::vector<std::int32_t> mine{10 * rank, 10 * rank + 1, 10 * rank + 2};
    std::vector<std::int32_t> sum(mine), all(9), part(1), told(mine), most(mine), gathered(9), scattered(1), swapped(3),
        six(6);
    const std::vector<std::int64_t> counts{1, 2, 3};
    const ddp::Tensor root(gathered), values(told);
    {
      const ddp::Request first = ddp::post_barrier(group), reduced = ddp::post_all_reduce(group, sum, DDP_SUM);
      const ddp::Request joined = ddp::post_all_gather(group, mine, all);
      const ddp::Request own = ddp::post_reduce_scatter(group, mine, part, DDP_SUM),
                         copied = ddp::post_broadcast(group, told, 1);
      const ddp::Request largest = ddp::post_reduce(group, most, DDP_MAX, 2);
      const ddp::Request collected = ddp::post_gather(group, mine, rank == 0 ? &root : nullptr);
      const ddp::Request dealt = ddp::post_scatter(group, rank == 1 ? &values : nullptr, scattered, 1);
      const ddp::Request exchanged = ddp::post_all_to_all(group, mine, swapped);
      const ddp::Request counted = ddp::post_all_gather_counts(
          group, ddp::Span<const std::int32_t>(mine.data(), static_cast<std::size_t>(rank) + 1), six, counts);
      counted.wait();
      REQUIRE(first.test() && reduced.wait_for(std::chrono::milliseconds(0)) && joined.source() == -1);
    }
    REQUIRE(sum[1] == 33 && all[8] == 22 && part[0] == 30 + 3 * rank && told[2] == 12 && swapped[2] == 20 + rank);
    REQUIRE((rank != 2 || most[0] == 20) && (rank != 0 || gathered[8] == 22) && scattered[0] == 10 + rank && six[5] == 22);
    const ddp::Request received = ddp::post_receive(group, part, DDP_ANY_SOURCE, 3);
    const ddp::Request* const one[] = {&received};
    REQUIRE(!ddp::wait_any(one, std::chrono::milliseconds(5)));
    group.barrier();
    const std::vector<std::int32_t> number{rank};
    const ddp::Request sent = ddp::post_send(group, number, (rank + 1) % 3, 3);
    REQUIRE(ddp::wait_any(one) == std::size_t{0} && part[0] == (rank + 2) % 3 && received.source() == part[0]);
    group.barrier();
  });
}

void messages_go_from_one_rank_to_another() {
  on_ranks(3, "cpp_messages", [](ddp::Group& group) {
    const int rank = group.rank();
    const std::vector<std::int32_t> mine{10 * rank, 10 * rank + 1, 10 * rank + 2};
    std::vector<std::int32_t> got(3), six(6), part(1);
    if (rank > 0) group.send(mine, 0, 4);
    for (int from = 1; rank == 0 && from < 3; ++from) {
      REQUIRE(group.receive(got, from, 4) == from && got[2] == 10 * from + 2);
    }
    if (rank == 2) group.send(mine, 0);
    if (rank == 0) REQUIRE(group.receive(got, DDP_ANY_SOURCE) == 2);
    if (rank == 1) {
      std::vector<std::int32_t> all(9);
      group.gather(mine, all, 1);
      REQUIRE(all[8] == 22);
      group.scatter(got, part, 1);
    } else {
      group.gather(mine, nullptr, 1);
      group.scatter(nullptr, part, 1);
    }
    REQUIRE(part[0] == 0);
    group.all_to_all(mine, got);
    REQUIRE((got == std::vector<std::int32_t>{rank, 10 + rank, 20 + rank}));
    const std::vector<std::int64_t> counts{1, 2, 3};
    group.all_gather_counts(ddp::Span<const std::int32_t>(mine.data(), static_cast<std::size_t>(rank) + 1), six, counts);
    REQUIRE((six == std::vector<std::int32_t>{0, 10, 11, 20, 21, 22}));
    REQUIRE(error_of([&] { group.all_to_all(mine, got, ddp::Span<const std::int64_t>(counts.data(), 2)); }).status() ==
            DDP_ERROR_INVALID_ARGUMENT);
    double product[1] = {rank + 2.0};
    group.reduce(product, DDP_PRODUCT);
    if (rank == 0) REQUIRE(product[0] == 24);
    group.barrier();
  });
}

void collectives_give_what_a_loop_gives() {
  on_ranks(3, "cpp_collectives", [](ddp::Group& group) {
    const int rank = group.rank();
    REQUIRE(group.size() == 3 && group.backend() == DDP_BACKEND_LOCAL);
    std::vector<float> sum{1.0F + static_cast<float>(rank), 10};
    group.all_reduce(sum, DDP_SUM);
    REQUIRE(sum[0] == 6 && sum[1] == 30);
    const std::vector<std::int32_t> mine{rank, 2 * rank};  // const memory is an input
    std::vector<std::int32_t> all(6);
    group.all_gather(mine, all);
    REQUIRE((all == std::vector<std::int32_t>{0, 0, 1, 2, 2, 4}));
    const std::vector<double> part{1, 2, 3};
    double piece[1] = {};
    group.reduce_scatter(part, piece, DDP_SUM);
    REQUIRE(piece[0] == 3 * (rank + 1));
    std::vector<std::int64_t> root{rank == 2 ? 7 : 0};
    group.broadcast(root, 2);
    REQUIRE(root[0] == 7);
    double metrics[2] = {1.5, static_cast<double>(rank)};
    group.reduce_metrics(metrics);
    REQUIRE(metrics[0] == 4.5 && metrics[1] == 3);
    double parts[1] = {static_cast<double>(rank)};
    group.reduce_part_metrics(parts, 1, DDP_MAX);
    REQUIRE(parts[0] == 2);
    REQUIRE(error_of([&] { group.reduce_part_metrics(parts, 2); }).status() == DDP_ERROR_INVALID_ARGUMENT);
    REQUIRE(group.virtual_ranks().first == rank && group.virtual_ranks().total == 3);
    group.barrier();
  });
}

void groups_move_split_and_own_their_memory() {
  on_ranks(3, "cpp_split", [](ddp::Group& group) {
    auto part = group.split(group.rank() < 2 ? 0 : DDP_NO_COLOR, -group.rank());
    REQUIRE(part.has_value() == (group.rank() < 2));
    if (part) {
      ddp::Group moved = std::move(*part);
      REQUIRE(moved.size() == 2 && moved.rank() == 1 - group.rank() && part->get() == nullptr);
      const std::string text = error_of([&] { part->barrier(); }).what();
      REQUIRE(text.find("the group is closed, or was never made") != std::string::npos);
      ddp::Memory<float> memory = moved.alloc<float>(100);
      REQUIRE(memory.size() == 100 && std::accumulate(memory.begin(), memory.end(), 0.0F) == 0);
      ddp::Memory<float> other(std::move(memory));
      REQUIRE(memory.data() == nullptr && other.size() == 100);
      other = moved.alloc<float>(3);
      other[0] = 1;
      moved.all_reduce(other, DDP_SUM);
      REQUIRE(other[0] == 2);
    }
  });
}

void errors_have_status_rank_and_text() {
  const auto wrong = error_of([] { ddp::Group("nowhere://"); });
  REQUIRE(wrong.status() == DDP_ERROR_INVALID_ARGUMENT && wrong.rank() == -1 && !wrong.breaks_group());
  REQUIRE(std::string(wrong.what()).find("nowhere") != std::string::npos);
  on_ranks(2, "cpp_errors", [](ddp::Group& group) {
    const int rank = group.rank();
    group.check_status();
    group.barrier();
    if (rank == 1) group.abort("the loss is not a number");
    const auto error = error_of([&] {
      for (;;) group.barrier();
    });
    REQUIRE(error.status() == DDP_ERROR_ABORTED && error.rank() == rank && error.breaks_group());
    REQUIRE(std::string(error.what()).find("the loss is not a number") != std::string::npos);
    REQUIRE(std::string(error.status_name()) == "DDP_ERROR_ABORTED");
    REQUIRE(error_of([&] { group.check_status(); }).status() == DDP_ERROR_ABORTED);
    REQUIRE(error_of([&] { group.recover(); }).status() == DDP_ERROR_INVALID_STATE);  // not made for it
  });
  on_ranks(2, "cpp_calls", [](ddp::Group& group) {
    std::vector<double> numbers{1};
    const auto error = error_of([&] { group.rank() == 0 ? group.barrier() : group.reduce_metrics(numbers, DDP_SUM); });
    REQUIRE(error.status() == DDP_ERROR_DIFFERENT_CALLS && error.breaks_group());
    REQUIRE(error_of([&] { group.check_status(); }).status() == DDP_ERROR_DIFFERENT_CALLS);
    const ddp::ErrorNumbers& numbers_of_it = error.numbers();
    REQUIRE((numbers_of_it.ranks == std::vector<std::int32_t>{0, 1}) && numbers_of_it.parameters.empty());
    REQUIRE(ddp_call_name(numbers_of_it.details.call) == std::string("ddp_group_barrier"));
    REQUIRE(ddp_call_name(numbers_of_it.details.other_call) == std::string("ddp_group_reduce_metrics"));
  });
}

void listeners_are_told_of_the_group() {
  std::vector<ddp_log_message> messages;
  {
    const ddp::LogListener listener([&](const ddp_log_message& message, const char*) { messages.push_back(message); },
                                    DDP_LOG_DEBUG);
    on_ranks(1, "cpp_listener", [&](ddp::Group& group) {
      ddp::Model model(group);
      model.commit();
      REQUIRE(!messages.empty() && messages.back().group == group.number() && messages.back().rank == 0);
    });
  }
  const std::size_t count = messages.size();
  on_ranks(1, "cpp_listener", [](ddp::Group& group) { ddp::Model(group).commit(); });
  REQUIRE(messages.size() == count);
}

void the_log_goes_to_a_function() {
  std::vector<std::string> lines;
  ddp::set_log(DDP_LOG_DEBUG, [&](ddp_log_level, const char* text) { lines.emplace_back(text); });
  on_ranks(2, "cpp_log", [](ddp::Group& group) { group.barrier(); });
  ddp::set_log(DDP_LOG_WARNING);
  const std::size_t count = lines.size();
  on_ranks(2, "cpp_log", [](ddp::Group& group) { group.barrier(); });
  REQUIRE(lines.size() == count);  // the function is not called any more
  REQUIRE(!ddp::version().empty() && ddp::virtual_rank_key(1, 2, 3) == ddp::virtual_rank_key(1, 2, 3));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {TEST(a_tensor_knows_its_type_and_shape),  TEST(what_is_posted_ends_by_itself),
                              TEST(numbers_of_the_program_are_checked), TEST(messages_go_from_one_rank_to_another),
                              TEST(collectives_give_what_a_loop_gives), TEST(groups_move_split_and_own_their_memory),
                              TEST(errors_have_status_rank_and_text),   TEST(listeners_are_told_of_the_group),
                              TEST(the_log_goes_to_a_function)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
