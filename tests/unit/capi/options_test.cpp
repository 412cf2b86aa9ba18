// SPDX-License-Identifier: Apache-2.0
// Options of older and newer programs.
#include "capi/options.hpp"

#include "support/check.hpp"

struct Options {
  int64_t struct_size;
  int32_t first;
  int32_t second;
  int64_t third;
};
struct Newer {
  Options known;
  int64_t unknown;
};

constexpr Options kDefaults{0, 1, 2, 3};

ddp_case(init_writes_what_the_caller_has_room_for) {
  Newer newer;
  std::memset(static_cast<void*>(&newer), 0xee, sizeof newer);
  capi::init_options(&newer.known, sizeof newer, kDefaults, "f");
  expect(newer.known.struct_size == sizeof newer && newer.known.third == 3 && newer.unknown == 0,
         "a newer program's tail is zero");
  Options older;
  std::memset(static_cast<void*>(&older), 0xee, sizeof older);
  capi::init_options(&older, 12, kDefaults, "f");
  expect(older.struct_size == 12 && older.first == 1 && older.second == static_cast<int32_t>(0xeeeeeeee),
         "an older program's is untouched");
}

ddp_case(reading_takes_what_both_know) {
  Options given{12, 7, 8, 9};
  const Options read = capi::read_options(&given, kDefaults, "f");
  expect(read.first == 7 && read.second == 2 && read.third == 3, "the rest are defaults");
  expect(capi::read_options<Options>(nullptr, kDefaults, "f").first == 1, "NULL: defaults");
}

ddp_case(a_field_from_the_future_is_refused_unless_it_is_zero) {
  Newer newer{{sizeof(Newer), 7, 8, 9}, 0};
  expect(capi::read_options(&newer.known, kDefaults, "f").third == 9, "zero");
  newer.unknown = 1;
  expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { (void)capi::read_options(&newer.known, kDefaults, "f"); },
               {"update the library"});
}

ddp_case(a_struct_without_a_size_is_refused) {
  Options given{0, 7, 8, 9};
  (void)expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { (void)capi::read_options(&given, kDefaults, "f"); });
  (void)expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { capi::init_options(&given, 4, kDefaults, "f"); });
  (void)expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { capi::init_options<Options>(nullptr, 24, kDefaults, "f"); });
}
