// SPDX-License-Identifier: Apache-2.0
// The control plane over TCP: one thread per rank for the connection to rank 0, with the socket and the time for
// ClientState. The threads of the program ask and wait here.
//
// Threads: as for Control; the failure callback comes from the control thread.
// Tested by process/control_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "control/client_state.hpp"
#include "control/control.hpp"
#include "control/net.hpp"
#include "control/server.hpp"

namespace ddp::bootstrap {

using Witness = std::function<void(int32_t id)>;
using Check = std::function<void(const Witness&)>;

/// A connection to rank 0 that has passed the challenge.
struct Admission {
  net::Socket socket;
  std::optional<auth::SessionKeys> keys;
  auth::Key link_key{};
  FrameWriter writer{};  // for this rank's frames
  bool has_said_first_words = false;
};

/// Join the group over this connection and wait for the others. Returns nothing if the connection was lost before the group
/// had formed: look for rank 0 again. Throws what rank 0 refused the rank with, and TIMED_OUT a little after config.left_ms
/// at the latest. `server` is taken only when the group has formed. `check` is called several times a second while this
/// waits; its exception ends the wait. It gets a function that reports the ids of a broken group which it has seen to have
/// ended. If the config has an opening, this rank's first gather has to be the same.
[[nodiscard]] std::unique_ptr<Control> join_over_tcp(Admission admission, ClientConfig config,
                                                     std::unique_ptr<Server>& server, const Check& check);

}  // namespace ddp::bootstrap
