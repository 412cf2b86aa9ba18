// SPDX-License-Identifier: Apache-2.0
// At the address of a tcp:// rendezvous, which is free once the group has formed, ranks that are new are told where rank 0
// of the group is now. The lowest rank on the host of that address stands there, whoever rank 0 is. It walks past ports that
// are taken, by whomever; the token admits, and it must prove that it knows it.
// Tested by capi/join_places_test.cpp.
#pragma once

#include <memory>
#include <string>

#include "control/server.hpp"
#include "discovery/rendezvous.hpp"

namespace ddp::bootstrap {

/// Says `record` to those who ask, as long as the result lives. Throws IO where the address is another host's, or its ports
/// are taken.
[[nodiscard]] std::unique_ptr<Server> set_up_signpost(const Meeting& meeting, const ddp_group_options& options,
                                                      const std::string& record);

/// What a signpost says; "" if there is none. Throws its refusal. `doubt`: set to what is to be said of who only pretends to
/// be one.
[[nodiscard]] std::string ask_signpost(const Meeting& meeting, const ddp_group_options& options, std::string& doubt);

}  // namespace ddp::bootstrap
