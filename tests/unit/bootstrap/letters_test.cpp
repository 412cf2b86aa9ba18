// SPDX-License-Identifier: Apache-2.0
// Letters between ranks: in order, to the right rank, also before there is a reader; over the in-memory control plane, and
// as the state machines of the TCP one pass them on.
#include "control/letters.hpp"

#include "control/local_hub.hpp"
#include "control/messages.hpp"
#include "support/check.hpp"
#include "support/group_world.hpp"

using Read = std::vector<std::pair<int32_t, std::string>>;

ddp_case(letters_wait_for_their_reader) {
  bootstrap::Letters letters;
  Read read;
  letters.deliver(3, "first");
  letters.deliver(1, "second");
  letters.set_reader([&](int32_t from, const std::string& text) { read.emplace_back(from, text); });
  letters.deliver(2, "third");
  expect(read == Read{{3, "first"}, {1, "second"}, {2, "third"}}, "in order");
  letters.set_reader({});
  letters.deliver(2, "fourth");
  expect_equal(read.size(), size_t{3}, "letters that were read");
}

ddp_case(threads_write_to_each_other) {
  run_ranks(3, [](int rank) {
    const auto control = bootstrap::join_local_hub("letters", rank, 3, os::Deadline::in_ms(20'000), 20'000);
    std::mutex mutex;
    Read read;
    const int next = (rank + 1) % 3, before = (rank + 2) % 3;
    control->write_letter(next, "one");
    control->on_letter([&](int32_t from, const std::string& text) {
      const std::lock_guard lock(mutex);
      read.emplace_back(from, text);
    });
    control->write_letter(next, "two");
    wait_until([&] {
      const std::lock_guard lock(mutex);
      return read.size() == 2;
    });
    expect(read == Read{{before, "one"}, {before, "two"}}, "of the rank before");
    static_cast<void>(control->gather("end", "", os::Deadline::in_ms(20'000)));
    control->on_letter({});
  });
}

ddp_case(a_letter_that_is_too_long_is_refused) {
  const bootstrap::messages::Letter letter{2, std::string(bootstrap::limits::kLetterBytes, 'x')};
  const bootstrap::messages::Letter read =
      bootstrap::messages::read<bootstrap::messages::Letter>(bootstrap::messages::write(letter));
  expect_equal(read.rank, 2, "the rank");
  expect(read.text == letter.text, "the text");
  static_cast<void>(expect_error(DDP_ERROR_IO, [&] {
    static_cast<void>(bootstrap::messages::read<bootstrap::messages::Letter>(
        bootstrap::messages::write(bootstrap::messages::Letter{2, letter.text + "x"})));
  }));
}
