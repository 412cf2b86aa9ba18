// Cutting an array into segments, and what one member adds to them, without any rail.
#include "comm/rail/contribution.hpp"

#include <cstring>

#include "comm/rail/segments.hpp"
#include "support/check.hpp"
#include "support/values.hpp"

namespace {

using namespace ddp;
using namespace ddp::test;

void segments_cover_every_element_once_and_fit_their_slot(void**) {
  for (const ddp_dtype dtype : kAllDtypes)
    for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{100}, int64_t{4096}, int64_t{1} << 40})
      for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{17}, int64_t{5000}, int64_t{3'000'001}})
        for (const int32_t members : {1, 2, 64}) {
          const Segments segments(count, cpu::ReduceRule{dtype}, members, ChainOptions{bytes, true});
          int64_t next = 0;
          if (segments.number() > 3'000'000) continue;  // one element each
          for (int64_t t = 0; t < segments.number(); ++t) {
            const Span span = segments.span(t);
            expect_equal(span.first, next, "first element of a segment");
            expect(span.count > 0 && span.count * segments.carry_size() <= kLargestSegment, "a segment fits its slot");
            next += span.count;
          }
          expect_equal(next, count, "elements in all");
        }
}

std::vector<BucketSpec::Piece> three_pieces(Bytes& memory) {
  return {{memory.data(), 4, false}, {memory.data() + 16, 4, false}, {memory.data() + 40, 3, false}};
}

void a_result_lands_at_once_inside_one_piece_that_somebody_uses(void**) {
  Bytes memory(64);
  PieceContribution mine(cpu::ReduceRule{DDP_F32, DDP_SUM, 2}, three_pieces(memory));
  expect_equal(mine.count(), int64_t{11}, "elements");
  expect(mine.landing({1, 3}) == memory.data() + 4 && mine.landing({8, 3}) == memory.data() + 40, "inside a piece");
  expect(mine.landing({7, 2}) == nullptr, "not across two");
  expect(mine.landing({3, 0}) == nullptr, "nothing lands nowhere");
  mine.learn(Note{false, {0b011}});
  expect(mine.landing({8, 3}) == nullptr && mine.landing({1, 3}) != nullptr, "not in a piece that nobody uses");
}

void a_piece_that_nobody_uses_is_left_alone(void**) {
  Bytes memory(64, std::byte{1});
  const Bytes result(44, std::byte{2});
  PieceContribution mine(cpu::ReduceRule{DDP_F32, DDP_SUM, 2}, three_pieces(memory));
  mine.learn(Note{false, {0b101}});
  mine.deliver(result.data(), {0, 11});
  expect(memory[15] == std::byte{2} && memory[16] == std::byte{1} && memory[31] == std::byte{1} && memory[40] == std::byte{2},
         "the first and the third only");
}

void own_elements_are_copied_only_when_they_lie_apart(void**) {
  Bytes memory = random_values(DDP_F32, 16, 1), scratch(44);
  PieceContribution mine(cpu::ReduceRule{DDP_F32, DDP_SUM, 2}, three_pieces(memory));
  expect(mine.own({4, 4}, scratch.data()) == memory.data() + 16, "in place");
  expect(mine.own({0, 11}, scratch.data()) == scratch.data(), "gathered");
  expect(std::memcmp(scratch.data(), memory.data(), 32) == 0 && std::memcmp(scratch.data() + 32, memory.data() + 40, 12) == 0,
         "gathered in order");
}

void two_steps_give_the_bits_of_one_reduction(void**) {
  const auto inputs = random_inputs(3, DDP_BF16, 1000, 4);
  Bytes wanted = reduced(inputs, DDP_BF16, DDP_AVERAGE, 1000);
  const cpu::ReduceRule rule{DDP_BF16, DDP_AVERAGE, 3};
  std::vector<float> carry(1000);
  Bytes first = inputs[0], second = inputs[1], third = inputs[2];
  PieceContribution middle(rule, {{second.data(), 300, false}, {second.data() + 600, 700, false}});
  PieceContribution end(rule, {{third.data(), 1000, false}});
  middle.add(Incoming{first.data(), true}, carry.data(), {0, 1000});
  end.finish(Incoming{carry.data(), false}, third.data(), {0, 1000});
  expect(third == wanted, "the bits");
}

void a_part_takes_only_its_own_elements_of_a_segment(void**) {
  const Bytes input = random_values(DDP_I32, 30, 2);
  Bytes output(40, std::byte{1});
  PartContribution mine(cpu::ReduceRule{DDP_I32, DDP_SUM, 3}, input.data(), output.data(), 10, 3, 1);
  expect(mine.landing({5, 10}) == nullptr && mine.landing({12, 3}) == output.data() + 8, "landing inside the own part only");
  mine.deliver(input.data() + 20, {5, 10});
  expect(std::memcmp(output.data(), input.data() + 40, 20) == 0 && output[20] == std::byte{1}, "elements 10 to 14");
  expect_equal(mine.wanted(1), int64_t{20}, "elements wanted by the first two members");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      ddp_test(segments_cover_every_element_once_and_fit_their_slot),
      ddp_test(a_result_lands_at_once_inside_one_piece_that_somebody_uses),
      ddp_test(a_piece_that_nobody_uses_is_left_alone),
      ddp_test(own_elements_are_copied_only_when_they_lie_apart),
      ddp_test(two_steps_give_the_bits_of_one_reduction),
      ddp_test(a_part_takes_only_its_own_elements_of_a_segment),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
