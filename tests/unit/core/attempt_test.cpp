// SPDX-License-Identifier: Apache-2.0
#include "core/attempt.hpp"

#include <new>

#include "support/check.hpp"

ddp_case(what_a_body_throws_is_a_value) {
  expect(!try_to([] {}), "nothing was thrown");
  const std::optional<Error> error = try_to([] { throw Error(DDP_ERROR_IO, "file").as_agreed(); });
  expect(error && error->status() == DDP_ERROR_IO && error->text() == "file" && error->is_agreed(), "as it was thrown");
  expect_equal(try_to([] { throw std::bad_alloc(); })->status(), DDP_ERROR_OUT_OF_MEMORY, "memory");
  expect_equal(try_to([] { throw std::logic_error("x"); })->status(), DDP_ERROR_INTERNAL, "another exception");
}

ddp_case(what_is_not_asked_for_passes_through) {
  bool passed = false;
  try {
    static_cast<void>(try_to<Error>([] { throw std::bad_alloc(); }));
  } catch (const std::bad_alloc&) {
    passed = true;
  }
  expect(passed, "bad_alloc is no Error");
  expect(try_to<Error>([] { throw Error(DDP_ERROR_IO, "file"); }).has_value(), "an Error");
  bool told = false;
  passed = false;
  try {
    on_error<Error>([] { throw std::bad_alloc(); }, [&](const Error&) { told = true; });
  } catch (const std::bad_alloc&) {
    passed = true;
  }
  expect(passed && !told, "nobody hears of it");
}

ddp_case(an_error_is_told_and_goes_on_as_it_is) {
  expect_equal(on_error([] { return 7; }, [](const Error&) { throw std::logic_error("told"); }), 7, "the body's value");
  std::string told;
  bool same = false;
  try {
    on_error([] { throw std::logic_error("x"); }, [&](const Error& error) { told = error.text(); });
  } catch (const std::logic_error& thrown) {
    same = thrown.what() == std::string("x");
  }
  expect_equal(told, std::string("x"), "told");
  expect(same, "the same exception");
  const auto other = [] {
    on_error([] { throw std::bad_alloc(); }, [](const Error& error) { throw Error(error.status(), "another"); });
  };
  expect_equal(try_to(other)->text(), std::string("another"), "what is thrown in its place");
}
