// SPDX-License-Identifier: Apache-2.0
// At the address of a tcp:// rendezvous, which is free once the group has formed, new ranks get the present address of rank
// 0. The lowest rank on the host of that address serves there, even if it is not rank 0. It walks past ports that are taken;
// the token admits, and it must prove that it knows it. Tested by capi/join_places_test.cpp.
#pragma once

#include <memory>
#include <string>

#include "control/server.hpp"
#include "discovery/rendezvous.hpp"

namespace ddp::bootstrap {

/// Answers requests with `record`, as long as the result exists. Throws IO where the address is another host's, or its ports
/// are taken.
[[nodiscard]] std::unique_ptr<Server> set_up_signpost(const Meeting& meeting, const ddp_group_options& options,
                                                      const std::string& record);

/// The record of a signpost; "" without a signpost. Throws its refusal. `doubt`: set to the warning about a program that
/// only pretends to be one.
[[nodiscard]] std::string ask_signpost(const Meeting& meeting, const ddp_group_options& options, std::string& doubt);

}  // namespace ddp::bootstrap
