// SPDX-License-Identifier: Apache-2.0

#include "control/net.hpp"
#include "os/log.hpp"
#include "support/check.hpp"

ddp_case(a_name_that_is_not_known_is_told_once_and_looked_up_again) {
  std::string told;
  const auto tell = [](void* lines, ddp_log_level, const char* line) {
    *static_cast<std::string*>(lines) += line + std::string("\n");
  };
  os::set_log_sink(DDP_LOG_WARNING, tell, &told);
  const std::string text = expect_error(
      DDP_ERROR_IO, [] { static_cast<void>(bootstrap::net::resolve("no-such-host.invalid", os::Deadline::in_ms(400))); });
  os::set_log_sink(DDP_LOG_WARNING, nullptr, nullptr);
  expect_contains(text, "no-such-host.invalid, given for rank 0, could not be resolved until the time was up");
  expect_contains(told, "no-such-host.invalid, given for rank 0, is not known here");
  expect(std::count(told.begin(), told.end(), '\n') == 1, "once: " + told);
}

ddp_case(numbers_need_no_lookup) {
  expect_equal(bootstrap::net::resolve("127.0.0.1", os::Deadline::in_ms(1)).front().host(), std::string("127.0.0.1"),
               "IPv4");
}
