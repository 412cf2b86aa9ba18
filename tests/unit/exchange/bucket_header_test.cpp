// SPDX-License-Identifier: Apache-2.0
// How the participations of the ranks are joined.
#include "exchange/bucket_header.hpp"

#include "support/check.hpp"
#include "support/sum_oracle.hpp"

using namespace ddp;

ddp_case(weights_are_added_in_the_tree) {
  std::mt19937_64 random(7);
  for (size_t ranks = 1; ranks <= 33; ++ranks) {
    std::vector<double> weights;
    std::vector<collective::Participation> participations;
    int32_t contributors = 0;
    for (size_t rank = 0; rank < ranks; ++rank) {
      weights.push_back(random() % 4 == 0 ? 0
                                          : static_cast<double>(random() % 1'000'003) * (random() % 2 == 0 ? 0.1 : 1e13));
      participations.push_back(collective::Participation::of(weights.back()));
      contributors += weights.back() > 0 ? 1 : 0;
    }
    const collective::Participation all = collective::sum_weights(participations);
    assert_true(all.weight == test::oracle_sum(weights));
    assert_int_equal(all.contributors, contributors);
  }
  assert_int_equal(collective::sum_weights(std::vector<collective::Participation>{}).contributors, 0);
}

ddp_case(a_rank_without_weight_is_no_contributor) {
  collective::Participation all = collective::Participation::none();
  all.add(collective::Participation::of(0));
  all.add(collective::Participation::of(2.5));
  assert_int_equal(all.contributors, 1);
  assert_true(all.weight == 2.5);
}

ddp_case(flags_and_the_highest_joined_rank_are_known_to_all) {
  collective::Participation all = collective::Participation::none();
  all.add(collective::Participation{1, 1, 0, 4});
  all.add(collective::Participation{0, 0, 2, 1});
  all.add(collective::Participation{1, 1, 0, 0});
  assert_int_equal(all.joined, 2);
  assert_int_equal(all.flags, 5);
}

ddp_case(a_note_without_contributors_is_void) {
  collective::BucketHeader header;
  assert_false(header.is_void());
  header.incomplete = true;
  assert_true(header.is_void());
  header.incomplete = false;
  header.participation = collective::Participation::of(0);
  assert_true(header.is_void());
}
