// How the tallies of the ranks are joined.
#include "comm/note.hpp"

#include "support/cmocka.hpp"

using namespace ddp;

namespace {

void weights_are_added_in_rank_order(void**) {
  Tally all = Tally::none();
  const double weights[] = {0.1, 0.2, 1e17, 0.3};
  double expected = 0;
  for (const double weight : weights) {
    all.add(Tally::of(weight));
    expected = expected + weight;
  }
  assert_true(all.weight == expected);
  assert_int_equal(all.contributors, 4);
}

void a_rank_without_weight_is_no_contributor(void**) {
  Tally all = Tally::none();
  all.add(Tally::of(0));
  all.add(Tally::of(2.5));
  assert_int_equal(all.contributors, 1);
  assert_true(all.weight == 2.5);
}

void flags_and_the_highest_joined_rank_are_known_to_all(void**) {
  Tally all = Tally::none();
  all.add(Tally{1, 1, 0, 4});
  all.add(Tally{0, 0, 2, 1});
  all.add(Tally{1, 1, 0, 0});
  assert_int_equal(all.joined, 2);
  assert_int_equal(all.flags, 5);
}

void a_note_without_contributors_is_void(void**) {
  Note note;
  assert_false(note.is_void());
  note.incomplete = true;
  assert_true(note.is_void());
  note.incomplete = false;
  note.tally = Tally::of(0);
  assert_true(note.is_void());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
    cmocka_unit_test(weights_are_added_in_rank_order),
    cmocka_unit_test(a_rank_without_weight_is_no_contributor),
    cmocka_unit_test(flags_and_the_highest_joined_rank_are_known_to_all),
    cmocka_unit_test(a_note_without_contributors_is_void),
  };
  return cmocka_run_group_tests_name("note", tests, nullptr, nullptr);
}
