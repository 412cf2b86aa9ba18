// SPDX-License-Identifier: Apache-2.0
// A connection's end whose owner has no memory for what came: no fault of the other side.
#include "control/link.hpp"

#include <sys/socket.h>

#include <asio/io_context.hpp>
#include <new>

#include "support/check.hpp"

/// What a link makes of a frame whose handler throws.
template <class Thrown>
std::string after(const Thrown& thrown) {
  std::array<int, 2> ends{};
  expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0, "a pair of sockets");
  const bootstrap::net::Socket far(ends[1]);
  asio::io_context io;
  const auto link = std::make_shared<bootstrap::Link>(io, bootstrap::net::Socket(ends[0]), bootstrap::FrameReader(1'000),
                                                      bootstrap::FrameWriter());
  std::string heard;
  link->start({[&](bootstrap::Frame&&) { throw thrown; }, [&] { heard += "closed "; },
               [&](const std::string& how) { heard += "broke: " + how + " "; },
               [&](const Error&) { heard += "no memory "; }});
  const bootstrap::Body body(std::string("12345"));
  const std::string bytes = bootstrap::FrameWriter().frame(bootstrap::FrameType::kBeat, body).head + body.bytes();
  for (int i = 0; i < 2; ++i)
    expect(::send(far.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "sent");
  for (int i = 0; i < 20; ++i) io.run_for(std::chrono::milliseconds(5));
  link->close();
  return heard;
}

ddp_case(an_own_lack_of_memory_is_said_once) { expect_equal(after(std::bad_alloc()), std::string("no memory "), "heard"); }

ddp_case(nonsense_is_the_other_sides) {
  expect_equal(after(Error(DDP_ERROR_IO, "nonsense")), std::string("broke: nonsense "), "heard");
}
