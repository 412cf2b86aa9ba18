// SPDX-License-Identifier: Apache-2.0
// One connection of the control plane: frames in, frames out, over a non-blocking socket on the owner's Asio thread.
//
// Data that cannot be sent at once is queued; a body for many receivers is shared, not copied. After finish() everything
// queued is still sent, then the other side sees the end; its later messages are read and dropped, so that no reset
// overtakes our last messages. Only the owner's thread touches a link. Tested by process/control_test.cpp.
#pragma once

#include <asio/generic/stream_protocol.hpp>
#include <asio/io_context.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "control/codec.hpp"
#include "control/net.hpp"
#include "os/closed_in_forks.hpp"

namespace ddp::bootstrap {

class Link : public std::enable_shared_from_this<Link> {
 public:
  struct Events {
    std::function<void(Frame&&)> frame;             // may throw for a frame that breaks the protocol
    std::function<void()> closed;                   // by the other side, or by the network
    std::function<void(const std::string&)> broke;  // the other side sent what cannot be understood
    // Here, for data of the other side: nothing more is read. None: the exception propagates.
    std::function<void(const Error&)> no_memory;
  };

  Link(asio::io_context& io, net::Socket socket, FrameReader reader, const FrameWriter& writer);

  void start(Events events);
  /// Encrypt from here on, as rank 0 does, which then has `group`; NULL: there is no token.
  void secure(const auth::SessionKeys& keys, const std::shared_ptr<GroupKey>& group, size_t limit);
  void send(FrameType type, SharedBody body);
  void finish();
  /// The same after an exception of a callback, which may have ended the reading.
  void finish_anyhow() {
    finish();
    wait_to_read();
  }
  /// What has arrived is handled now, and the end of the connection too.
  void read_all();
  /// Closes at once; no event comes any more.
  void close();

 private:
  struct Outgoing {
    FrameWriter::Ends ends;
    SharedBody body;
    size_t sent = 0;
  };
  template <class Make>
  void push(const Make& make);
  void wait_to_read();
  void read();
  [[nodiscard]] bool read_some();
  bool feed(std::string_view bytes);
  void lack(const Error& error);
  void wait_to_write();
  void write();
  [[nodiscard]] bool write_front();
  void lost();

  asio::generic::stream_protocol::socket socket_;
  os::ClosedInForks in_forks_;  // so that others see the end of this process although a fork lives on
  FrameReader reader_;
  FrameWriter writer_;
  Events events_;
  std::deque<Outgoing> queue_;
  bool writing_ = false;
  bool finishing_ = false;
};

}  // namespace ddp::bootstrap
